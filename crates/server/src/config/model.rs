//! What a configuration comes to once it has been read and found good: nothing here can be wrong any more.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use slidegate::Policy;
use slidegate::core::time::Millis;
use slidegate::http::AnswerOptions;
use slidegate::http::client_ip::ClientIpRule;
use slidegate::http::path::PathRules;
use slidegate::secret::SecretKey;
use slidegate::store::memory::MAX_KEYS_DEFAULT;
use slidegate::store::redis::RedisConfig;

use super::tokens::Token;

/// A whole configuration.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) store: StoreConfig,
    pub(crate) client_ip: ClientIpRule,
    pub(crate) answers: AnswerOptions,
    pub(crate) policies: Vec<Policy>,
    pub(crate) gateway: Option<GatewayConfig>,
    pub(crate) api: Option<DoorConfig>,
    pub(crate) admin: Option<DoorConfig>,
    pub(crate) shutdown: ShutdownConfig,
    pub(crate) telemetry: TelemetryConfig,
}

/// Where counters are kept.
#[derive(Clone, Debug)]
pub(crate) struct StoreConfig {
    pub(crate) kind: StoreKind,
    /// Hashes secret key parts; random without. There is one where instances share a store and a policy has
    /// such parts.
    pub(crate) secret_key: Option<SecretKey>,
}

/// The embedded store of the default size.
impl Default for StoreConfig {
    fn default() -> Self {
        Self { kind: StoreKind::Memory { max_keys: MAX_KEYS_DEFAULT }, secret_key: None }
    }
}

/// Which store.
#[derive(Clone, Debug)]
pub(crate) enum StoreKind {
    /// The embedded one.
    Memory { max_keys: usize },
    /// Redis or Valkey.
    Redis {
        config: Box<RedisConfig>,
        /// A check's whole time with the store.
        time: Millis,
    },
}

/// The reverse proxy.
#[derive(Clone, Debug)]
pub(crate) struct GatewayConfig {
    pub(crate) listen: SocketAddr,
    /// Request line and headers together.
    pub(crate) max_header_bytes: usize,
    pub(crate) max_body_bytes: u64,
    pub(crate) paths: PathRules,
    /// The first that matches is taken.
    pub(crate) routes: Vec<Route>,
}

/// Which requests go where, under which policies.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) path: PathMatch,
    /// Empty: any.
    pub(crate) methods: Vec<Method>,
    /// In lower case, without port. `*.example.com` matches any name below.
    pub(crate) host: Option<Box<str>>,
    pub(crate) policies: Vec<Arc<str>>,
    pub(crate) upstream: Upstream,
    /// From the first byte of the request until the last of the response's head.
    pub(crate) timeout: Duration,
}

/// Which paths a route takes. As written in the configuration, and compared with the normalized path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathMatch {
    /// `path: /login`
    Exact(Box<str>),
    /// `prefix: /api/`
    Prefix(Box<str>),
    /// `pattern: /users/{id}`: a parameter is one segment.
    Pattern(Box<str>),
}

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Upstream {
    /// Answered here, with what was received.
    Echo,
    /// `http://host:port`, without path.
    Http(http::uri::Authority),
}

/// A port that is not the gateway's.
#[derive(Clone, Debug)]
pub(crate) struct DoorConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) tokens: Tokens,
}

/// Who may use a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tokens {
    /// Whoever reaches it: loopback addresses only.
    Anyone,
    /// Whoever brings one of these; there is at least one. `Debug` doesn't show them; compare them in
    /// constant time.
    List(Vec<Token>),
}

/// How a server ends that is told to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShutdownConfig {
    /// How long it goes on serving after it has said that it is not ready: until balancers have heard of it.
    pub(crate) delay: Millis,
    /// How long requests may still take after that.
    pub(crate) grace: Millis,
}

/// Together below the 30 s after which Kubernetes kills.
impl Default for ShutdownConfig {
    fn default() -> Self {
        Self { delay: Millis::ZERO, grace: Millis(25_000) }
    }
}

/// Logs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TelemetryConfig {
    pub(crate) log: LogFormat,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}
