//! `store`: what happens while a shared one is slow or away, and whose clock decides.

use slidegate::core::instance::ladder::Thresholds;
use slidegate::core::instance::share::INSTANCES_MAX;
use slidegate::core::time::Millis;
use slidegate::store::redis::{OnSlowStore, RedisConfig};

use super::Places;
use crate::config::fields::{Fields, Reader};
use crate::config::schema;
use crate::config::yaml::{Node, Value};

/// Nobody waits longer for a limiter, slow or not.
const THRESHOLD_MAX: Millis = Millis(60_000);
/// The most calls that may have to fail: behind so many, everybody has waited for long.
const TRIP_AFTER_MAX: u64 = 1_000;

/// The fields, read.
pub(super) struct Options {
    instances: Option<u32>,
    on_slow_store: OnSlowStore,
    ladder: Thresholds,
    client_clock: bool,
}

/// Reads the fields, whatever the URL says. `places` learns of those that mean something to a shared store only.
pub(super) fn options(fields: &Fields<'_>, places: &mut Places, reader: &mut Reader<'_>) -> Option<Options> {
    let instances = fields.get("instances").map_or(Some(None), |node| {
        let count = reader.int(node, "instances", 1..=INSTANCES_MAX.into())?;
        u32::try_from(count).ok().map(Some)
    });
    let words = [("lease", OnSlowStore::Lease), ("local", OnSlowStore::Local), ("none", OnSlowStore::None)];
    let on_slow_store = fields.get("on_slow_store").map_or(Some(OnSlowStore::default()), |node| {
        // A store in memory is never slow: whatever would be done then, is done.
        reader.choice(node, "on_slow_store", &words, &[])
    });
    let ladder = fields.get("ladder").map_or(Some(Thresholds::default()), |node| ladder(node, reader));
    let client_clock = fields.get("clock").map_or(Some(false), |node| {
        reader.choice(node, "clock", &[("server", false), ("client", true)], &[])
    });
    for name in ["instances", "ladder", "clock"] {
        let idle = name == "clock" && client_clock == Some(false);
        places.of_shared_store.extend(fields.get(name).filter(|_| !idle).map(|node| (name, node.at)));
    }
    Some(Options {
        instances: instances?,
        on_slow_store: on_slow_store?,
        ladder: ladder?,
        client_clock: client_clock?,
    })
}

impl Options {
    /// The store with these.
    pub(super) fn apply(self, config: RedisConfig) -> RedisConfig {
        let config = self.instances.into_iter().fold(config, RedisConfig::instances);
        config.on_slow_store(self.on_slow_store).ladder(self.ladder).client_clock(self.client_clock)
    }
}

fn ladder(node: &Node, reader: &mut Reader<'_>) -> Option<Thresholds> {
    let help =
        "write a mapping such as {slow: 5ms, slow_for: 100ms, fast: 2ms, fast_for: 500ms, trip_after: 5}";
    if !matches!(node.value, Value::Map(_)) {
        reader.error(node.at, "`ladder` maps thresholds to values", help);
        return None;
    }
    let fields = Fields::of(node, "ladder", &schema::LADDER, reader)?;
    let usual = Thresholds::default();
    let mut duration = |name: &str, usual: Millis| {
        fields.get(name).map_or(Some(usual), |node| reader.duration(node, name, Millis(1)..=THRESHOLD_MAX))
    };
    let (slow, slow_for) = (duration("slow", usual.slow), duration("slow_for", usual.slow_for));
    let (fast, fast_for) = (duration("fast", usual.fast), duration("fast_for", usual.fast_for));
    let recover_for = duration("recover_for", usual.recover_for);
    let failures = fields.get("trip_after").map_or(Some(usual.failures), |node| {
        u32::try_from(reader.int(node, "trip_after", 1..=TRIP_AFTER_MAX)?).ok()
    });
    let ladder = Thresholds {
        slow: slow?,
        slow_for: slow_for?,
        fast: fast?,
        fast_for: fast_for?,
        recover_for: recover_for?,
        failures: failures?,
        ..usual
    };
    if ladder.fast > ladder.slow {
        let message = format!("what takes {} would be slow and fast at once", ladder.slow);
        reader.error(fields.head(reader.source), message, "write a `fast` of at most `slow`");
        return None;
    }
    Some(ladder)
}
