//! The fields of every mapping in a configuration: the names that files are written with.
//!
//! An option that isn't here doesn't exist. Those of later versions are here too, so that they are refused
//! as "not available yet" instead of as misspelled.

/// The file itself.
pub(super) const CONFIGURATION: [&str; 10] =
    ["store", "client_ip", "headers", "policies", "gateway", "api", "admin", "rls", "shutdown", "telemetry"];

pub(super) const STORE: [&str; 12] = [
    "url",
    "max_keys",
    "password_file",
    "tls",
    "timeout",
    "retry",
    "clock",
    "prefix",
    "hash_key_file",
    "instances",
    "on_slow_store",
    "ladder",
];

pub(super) const SHUTDOWN: [&str; 2] = ["delay", "grace"];

pub(super) const TLS: [&str; 3] = ["ca", "cert", "key"];

pub(super) const RETRY: [&str; 2] = ["after", "budget"];

pub(super) const LADDER: [&str; 6] = ["slow", "slow_for", "fast", "fast_for", "trip_after", "recover_for"];

pub(super) const CLIENT_IP: [&str; 5] = ["trusted_proxies", "header", "hops", "ipv4_prefix", "ipv6_prefix"];

pub(super) const HEADERS: [&str; 2] = ["legacy", "mode"];

pub(super) const POLICY: [&str; 14] = [
    "name",
    "limits",
    "key",
    "missing",
    "cost",
    "charge_if",
    "count_denied",
    "exempt",
    "on_store_failure",
    "failover",
    "lease",
    "shards",
    "shadow",
    "overrides",
];

pub(super) const LIMIT: [&str; 7] =
    ["name", "permits", "window", "algorithm", "resolution", "burst", "max_delay"];

pub(super) const COST: [&str; 4] = ["from", "min", "max", "default"];

pub(super) const EXEMPT: [&str; 3] = ["methods", "client_ip", "header"];

pub(super) const OVERRIDE: [&str; 2] = ["key", "limits"];

pub(super) const GATEWAY: [&str; 6] =
    ["listen", "tls", "max_header_bytes", "max_body_bytes", "paths", "routes"];

pub(super) const PATHS: [&str; 2] = ["merge_slashes", "trailing_slash"];

pub(super) const ROUTE: [&str; 4] = ["match", "policies", "upstream", "timeout"];

pub(super) const MATCH: [&str; 5] = ["path", "prefix", "pattern", "methods", "host"];

pub(super) const API: [&str; 2] = ["listen", "token_file"];

pub(super) const ADMIN: [&str; 2] = ["listen", "tokens_file"];

pub(super) const TELEMETRY: [&str; 2] = ["log", "otlp"];

/// All of them. A test wants for each a broken file, and a place in `examples/full.yaml`.
pub(super) const ALL: [(&str, &[&str]); 20] = [
    ("configuration", &CONFIGURATION),
    ("store", &STORE),
    ("tls", &TLS),
    ("retry", &RETRY),
    ("ladder", &LADDER),
    ("client_ip", &CLIENT_IP),
    ("headers", &HEADERS),
    ("policy", &POLICY),
    ("limit", &LIMIT),
    ("cost", &COST),
    ("exempt", &EXEMPT),
    ("override", &OVERRIDE),
    ("gateway", &GATEWAY),
    ("paths", &PATHS),
    ("route", &ROUTE),
    ("match", &MATCH),
    ("api", &API),
    ("admin", &ADMIN),
    ("shutdown", &SHUTDOWN),
    ("telemetry", &TELEMETRY),
];
