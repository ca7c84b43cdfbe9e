//! From the tree to the configuration, one file for each part of it.
//!
//! Every part is read even when another is broken, and references between parts are checked against what
//! was written rather than against what was good, so that one mistake is reported once.

mod client_ip;
mod doors;
mod leases;
mod limits;
mod net;
mod outage;
mod overrides;
mod paths;
mod policies;
mod redis;
mod routes;
mod store;
mod upstream;

use std::sync::Arc;

use slidegate::core::time::Millis;
use slidegate::http::{AnswerOptions, Legacy};

use super::fields::{Fields, Reader};
use super::files::Files;
use super::model::{Config, LogFormat, ShutdownConfig, StoreConfig, StoreKind, TelemetryConfig};
use super::schema;
use super::source::Span;
use super::yaml::{ENVOY_FILES, ENVOY_HELP, Node, Value};

/// A configuration, and where its parts stand in the file: what warnings point at.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) config: Config,
    pub(super) places: Places,
}

/// Where parts of a configuration stand.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    pub(super) store_url: Option<Span>,
    pub(super) max_keys: Option<Span>,
    /// Options that mean something to a shared store only.
    pub(super) of_shared_store: Vec<(&'static str, Span)>,
    /// What says how long a check may take with a shared store.
    pub(super) timeout: Option<Span>,
    pub(super) hops: Option<Span>,
    /// One for each trusted network.
    pub(super) trusted_proxies: Vec<Span>,
    pub(super) ipv4_prefix: Option<Span>,
    pub(super) ipv6_prefix: Option<Span>,
    /// In the order of `Config::policies`.
    pub(super) policies: Vec<PolicyPlaces>,
    pub(super) gateway_listen: Option<Span>,
    /// In the order of `GatewayConfig::routes`.
    pub(super) routes: Vec<Span>,
}

/// Where parts of a policy stand.
#[derive(Clone, Debug)]
pub(super) struct PolicyPlaces {
    pub(super) name: Span,
    /// One for each limit.
    pub(super) limits: Vec<Span>,
    pub(super) missing: Option<Span>,
    pub(super) cost: Option<Span>,
    pub(super) shadow: Option<Span>,
    pub(super) count_denied: Option<Span>,
    pub(super) exempt: Option<Span>,
    /// The first part of the key that is hashed.
    pub(super) secret: Option<Span>,
}

/// A policy as far as it could be read: routes may refer to one that is broken.
#[derive(Clone, Debug)]
struct Draft {
    name: Arc<str>,
    places: PolicyPlaces,
    policy: Option<slidegate::Policy>,
}

/// Reads a whole configuration. `None` when something is wrong; the reader knows what.
pub(super) fn config(root: &Node, files: &Files<'_>, reader: &mut Reader<'_>) -> Option<Read> {
    if matches!(root.value, Value::Null) {
        let help = "start from examples/quickstart.yaml or examples/gateway.yaml";
        reader.error(root.at, "the file is empty, or nothing but comments", help);
        return None;
    }
    if is_envoy_file(root) {
        reader.not_yet(root.at, ENVOY_FILES, ENVOY_HELP);
        return None;
    }
    let fields = Fields::of(root, "configuration", &schema::CONFIGURATION, reader)?;
    let mut places = Places::default();
    let store = store::store(fields.get("store"), files, &mut places, reader);
    let client_ip = client_ip::rule(fields.get("client_ip"), &mut places, reader);
    let answers =
        fields.get("headers").map_or_else(|| Some(AnswerOptions::default()), |node| headers(node, reader));
    let telemetry = fields
        .get("telemetry")
        .map_or_else(|| Some(TelemetryConfig::default()), |node| telemetry(node, reader));
    fields.later("rls", None, reader);
    let shutdown =
        fields.get("shutdown").map_or_else(|| Some(ShutdownConfig::default()), |node| shutdown(node, reader));
    let drafts = policies::policies(&fields, client_ip.as_ref(), reader);
    refuse_secrets_without_key(store.as_ref(), drafts.as_deref().unwrap_or_default(), reader);
    let gateway =
        fields.get("gateway").map(|node| routes::gateway(node, drafts.as_deref(), &mut places, reader));
    let (api, admin) =
        doors::doors(&fields, files, gateway.as_ref().and_then(|gateway| gateway.listen), reader);

    let gateway = match gateway {
        None => None,
        Some(read) => Some(read.config?),
    };
    let mut policies = Vec::new();
    for draft in drafts? {
        places.policies.push(draft.places);
        policies.push(draft.policy?);
    }
    Some(Read {
        config: Config {
            store: store?,
            client_ip: client_ip?,
            answers: answers?,
            policies,
            gateway,
            api: api?,
            admin: admin?,
            shutdown: shutdown?,
            telemetry: telemetry?,
        },
        places,
    })
}

/// Hashed under a random key, a secret would have another counter on each instance.
fn refuse_secrets_without_key(store: Option<&StoreConfig>, drafts: &[Draft], reader: &mut Reader<'_>) {
    let Some(StoreConfig { kind: StoreKind::Redis { .. }, secret_key: None }) = store else {
        return;
    };
    for at in drafts.iter().filter_map(|draft| draft.places.secret) {
        let message = "each instance would hash this part in its own way, and count apart from the others";
        let help = "write store: {hash_key_file: FILE}: `openssl rand -hex 32 > hash.key` makes one";
        reader.error(at, message, help);
    }
}

fn is_envoy_file(root: &Node) -> bool {
    let Value::Map(entries) = &root.value else {
        return false;
    };
    let has = |name| entries.iter().any(|(found, _)| found.text == name);
    has("descriptors") && !has("policies")
}

fn headers(node: &Node, reader: &mut Reader<'_>) -> Option<AnswerOptions> {
    let fields = Fields::of(node, "headers", &schema::HEADERS, reader)?;
    let words = [("none", Legacy::None), ("delta", Legacy::Delta), ("epoch", Legacy::Epoch)];
    let legacy =
        fields.get("legacy").map_or(Some(Legacy::None), |node| reader.choice(node, "legacy", &words, &[]));
    let mode = fields.get("mode").map_or(Some(false), |node| reader.bool(node, "mode"));
    Some(AnswerOptions { legacy: legacy?, mode: mode? })
}

/// The longest delay or grace: an orchestrator has lost its patience long before.
const ENDING_MAX: Millis = Millis(3_600_000);

fn shutdown(node: &Node, reader: &mut Reader<'_>) -> Option<ShutdownConfig> {
    let fields = Fields::of(node, "shutdown", &schema::SHUTDOWN, reader)?;
    let usual = ShutdownConfig::default();
    let mut length = |name: &'static str, usual: Millis| {
        fields.get(name).map_or(Some(usual), |node| reader.duration(node, name, Millis::ZERO..=ENDING_MAX))
    };
    let (delay, grace) = (length("delay", usual.delay), length("grace", usual.grace));
    Some(ShutdownConfig { delay: delay?, grace: grace? })
}

fn telemetry(node: &Node, reader: &mut Reader<'_>) -> Option<TelemetryConfig> {
    let fields = Fields::of(node, "telemetry", &schema::TELEMETRY, reader)?;
    fields.later("otlp", Some("none"), reader);
    let words = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let log = fields.get("log").map_or(Some(LogFormat::Text), |node| reader.choice(node, "log", &words, &[]));
    Some(TelemetryConfig { log: log? })
}
