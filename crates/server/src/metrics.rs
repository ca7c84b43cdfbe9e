//! What the server measures itself, beside the counters of limiter and store.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Bounds in seconds: a check in memory takes microseconds, one over the network a millisecond or so.
const CHECK_SECONDS: [f64; 12] =
    [0.000_001, 0.000_005, 0.000_025, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1];

/// Which port a check came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Door {
    Gateway,
    Api,
}

/// In lower case, as all label values are.
impl EncodeLabelValue for Door {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        let name = match self {
            Self::Gateway => "gateway",
            Self::Api => "api",
        };
        name.encode(encoder)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DoorLabel {
    door: Door,
}

/// Handles to the server's own metrics. A fixed number of series, whatever requests come.
#[derive(Debug)]
pub(crate) struct Metrics {
    gateway_check_seconds: Histogram,
    api_check_seconds: Histogram,
    /// Requests whose forwarding header had fewer addresses than `client_ip.hops`.
    pub(crate) too_few_hops: Counter,
    /// Requests without a client address (Unix sockets).
    pub(crate) no_client_ip: Counter,
}

impl Metrics {
    /// Registers the metrics and keeps their handles.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let check_seconds: Family<DoorLabel, Histogram> =
            Family::new_with_constructor(|| Histogram::new(CHECK_SECONDS));
        let of_door = |door| check_seconds.get_or_create(&DoorLabel { door }).clone();
        let (gateway_check_seconds, api_check_seconds) = (of_door(Door::Gateway), of_door(Door::Api));
        registry.register("check_duration_seconds", "Time from question to decision", check_seconds);
        let too_few_hops = Counter::default();
        registry.register(
            "client_ip_too_few_hops",
            "Requests with fewer forwarded addresses than hops",
            too_few_hops.clone(),
        );
        let no_client_ip = Counter::default();
        registry.register("client_ip_missing", "Requests whose peer has no address", no_client_ip.clone());
        Self { gateway_check_seconds, api_check_seconds, too_few_hops, no_client_ip }
    }

    /// Takes note of how long a check took.
    pub(crate) fn checked(&self, door: Door, took: std::time::Duration) {
        let histogram = match door {
            Door::Gateway => &self.gateway_check_seconds,
            Door::Api => &self.api_check_seconds,
        };
        histogram.observe(took.as_secs_f64());
    }
}
