//! How a Redis store is reached and asked: a URL, and what stands beside it.
//!
//! Everything is checked here, so that what exists is valid; whether a server answers there is found out later
//! ([`start`](super::link::Link::start) never fails because one is away). Secrets show in no `Debug` and no error.

use std::fmt;
use std::sync::Arc;

use slidegate_core::instance::ladder::Thresholds;
use slidegate_core::instance::share::INSTANCES_MAX;
use slidegate_core::time::Millis;

use super::link::tls::Authenticated;
use super::scripts::FORMAT;
use super::skew::SKEW_MAX;
use super::url::{self, ParsedUrl, Topology};
use crate::clock::{Clock, WallClock};

/// A check's whole time with the store, unless configured: Envoy gives a rate limit service 20 ms, and has to
/// hear from us before.
const TIMEOUT: Millis = Millis(10);
/// Nobody waits longer for a limiter than for the work that it guards.
const TIMEOUT_MAX: Millis = Millis(60_000);
/// Kept short, as it is part of every key.
const PREFIX_LEN_MAX: usize = 32;

/// Where Redis or Valkey is, and how it is asked.
#[derive(Clone)]
pub struct RedisConfig {
    url: ParsedUrl,
    tls: Option<Authenticated>,
    sentinel: Option<Login>,
    timeout: Millis,
    retry: Option<Retry>,
    prefix: String,
    flights: bool,
    denial_cache: bool,
    clock: Option<(Arc<dyn Clock>, Millis)>,
    client_clock: bool,
    instances: Option<u32>,
    on_slow_store: OnSlowStore,
    ladder: Thresholds,
    newest_format: u8,
}

/// What is done while a node of the store answers slowly ([`Thresholds`] say what is slow).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSlowStore {
    /// Permits are leased, many with one call, and spent here: as exact as one by one.
    #[default]
    Lease,
    /// Checks are decided as if the node failed: by what the policies say.
    Local,
    /// Nothing: checks take as long as the node does, and no longer than their deadline.
    None,
}

/// Asks a second time after a slow first: for networks that lose packets now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How long the first try may take.
    pub after: Millis,
    /// How long both may take.
    pub budget: Millis,
}

/// Certificates for TLS, in PEM.
#[derive(Clone, Default)]
pub struct Tls {
    /// Authorities that vouch for the server. Without: those that browsers trust.
    pub ca: Option<Vec<u8>>,
    /// Our certificate (with what links it to its authority) and its key, for servers that ask for one.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("ca", &self.ca.is_some()).field("client", &self.client.is_some()).finish()
    }
}

/// A user and a password. Shows neither.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) username: Option<String>,
    pub(crate) password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(..)")
    }
}

impl RedisConfig {
    /// A store at this URL, with defaults for all else.
    ///
    /// | URL | what is there |
    /// |---|---|
    /// | `redis://127.0.0.1:6379/0` | one server; database 0 |
    /// | `redis+unix:///run/redis.sock?db=0` | one server, over a Unix socket |
    /// | `redis-sentinel://s1:26379,s2:26379/mymaster/0` | whoever these sentinels say is the master |
    /// | `redis-cluster://n1:6379,n2:6379` | a cluster that these nodes belong to |
    ///
    /// `rediss`, `rediss-sentinel` and `rediss-cluster` speak TLS. `valkey` may stand for `redis` everywhere.
    /// Before the hosts, `user:password@` or `:password@`, percent-encoded. Ports are 6379, and 26379 of sentinels,
    /// if left out.
    ///
    /// # Errors
    /// Where the URL is wrong, and what to write instead; never a part of it, as it may hold a password.
    pub fn parse(url: &str) -> Result<Self, RedisConfigError> {
        Ok(Self {
            url: url::parse(url)?,
            tls: None,
            sentinel: None,
            timeout: TIMEOUT,
            retry: None,
            prefix: "sg".to_owned(),
            flights: true,
            denial_cache: true,
            clock: None,
            client_clock: false,
            instances: None,
            on_slow_store: OnSlowStore::default(),
            ladder: Thresholds::default(),
            newest_format: FORMAT,
        })
    }

    /// The password, in place of the URL's.
    #[must_use]
    pub fn password(mut self, text: impl Into<String>) -> Self {
        self.url.password = Some(text.into());
        self
    }

    /// The ACL user, in place of the URL's. It needs a password as well.
    #[must_use]
    pub fn username(mut self, name: impl Into<String>) -> Self {
        self.url.username = Some(name.into());
        self
    }

    /// User (`None`: the default one) and password of the sentinels themselves, which the URL's are not meant
    /// for. Without, they are asked without a password.
    #[must_use]
    pub fn sentinel_login(mut self, username: Option<String>, password: impl Into<String>) -> Self {
        self.sentinel = Some(Login { username, password: password.into() });
        self
    }

    /// Certificates for a URL whose scheme speaks TLS.
    ///
    /// # Errors
    /// If the scheme speaks no TLS, or the PEM holds no certificate or key.
    pub fn tls(mut self, tls: Tls) -> Result<Self, RedisConfigError> {
        if !self.url.tls {
            return Err(RedisConfigError::TlsUnused);
        }
        self.tls = Some(Authenticated::parse(&tls)?);
        Ok(self)
    }

    /// A check's whole time with the store, queue and retry included. 10 ms unless set; at least 1 ms and at
    /// most 60 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Millis) -> Self {
        self.timeout = timeout.clamp(Millis(1), TIMEOUT_MAX);
        self
    }

    /// Whether a check that was certainly not executed is tried again. Not unless set.
    #[must_use]
    pub const fn retry(mut self, retry: Option<Retry>) -> Self {
        self.retry = retry;
        self
    }

    /// What the names of all keys begin with; `sg` unless set. Products that share a server need one each.
    ///
    /// # Errors
    /// If it is empty, longer than 32 bytes, or holds anything but printable ASCII without spaces and braces: a
    /// brace would decide which slot of a cluster a key belongs to.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, RedisConfigError> {
        if prefix.is_empty() || prefix.len() > PREFIX_LEN_MAX {
            return Err(RedisConfigError::PrefixLength { most: PREFIX_LEN_MAX });
        }
        let fits = |byte: &u8| byte.is_ascii_graphic() && !b"{}".contains(byte);
        if let Some(at) = prefix.bytes().position(|byte| !fits(&byte)) {
            return Err(RedisConfigError::PrefixByte { at: at + 1 });
        }
        prefix.clone_into(&mut self.prefix);
        Ok(self)
    }

    /// Whether checks that wait for the store leave together. On unless set.
    #[must_use]
    pub const fn flights(mut self, on: bool) -> Self {
        self.flights = on;
        self
    }

    /// Whether denials are remembered until they end. On unless set.
    #[must_use]
    pub const fn denial_cache(mut self, on: bool) -> Self {
        self.denial_cache = on;
        self
    }

    /// How many instances share the counters: while the store is away, each grants its share. Without, it is as many
    /// as were seen at once within the last minute; the higher of the two counts. From 1 to 100,000.
    #[must_use]
    pub fn instances(mut self, count: u32) -> Self {
        self.instances = Some(count.clamp(1, INSTANCES_MAX));
        self
    }

    /// What is done while a node answers slowly; leases, unless set.
    #[must_use]
    pub const fn on_slow_store(mut self, answer: OnSlowStore) -> Self {
        self.on_slow_store = answer;
        self
    }

    /// When a node counts as slow, as failing, and as well again.
    #[must_use]
    pub const fn ladder(mut self, thresholds: Thresholds) -> Self {
        self.ladder = thresholds;
        self
    }

    /// Decides by this machine's clock instead of the server's: for servers that don't tell the time to scripts.
    /// All instances must have the same time. While it differs from the server's by more than a second, checks are
    /// decided as if the store were away.
    #[must_use]
    pub const fn client_clock(mut self, on: bool) -> Self {
        self.client_clock = on;
        self
    }

    /// Whether a user is named. One without a password is refused when the store starts.
    pub const fn has_username(&self) -> bool {
        self.url.username.is_some()
    }

    /// Whether there is a password, the URL's or another.
    pub const fn has_password(&self) -> bool {
        self.url.password.is_some()
    }

    /// Whether it was said how many instances share the counters.
    pub const fn has_instances(&self) -> bool {
        self.instances.is_some()
    }

    /// Whether connections speak TLS, as the URL's scheme says.
    pub const fn speaks_tls(&self) -> bool {
        self.url.tls
    }
}

/// For tests of what the server's clock decides.
#[cfg(feature = "test-util")]
impl RedisConfig {
    /// Decides by this clock instead of the server's. Keys then outlive what they need to by `linger`, because
    /// the server's own clock goes on and ends them.
    #[doc(hidden)]
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>, linger: Millis) -> Self {
        self.clock = Some((clock, linger));
        self
    }

    /// Is of a release to come, which has introduced the next format of counters.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_next_format(mut self) -> Self {
        self.newest_format = FORMAT + 1;
        self
    }
}

/// What the parts of the store ask.
impl RedisConfig {
    /// The clock that decides, if it is not the server's, and how much longer keys live for its sake.
    pub(crate) fn own_clock(&self) -> (Option<Arc<dyn Clock>>, Millis) {
        match &self.clock {
            Some((clock, linger)) => (Some(clock.clone()), *linger),
            None if self.client_clock => (Some(Arc::new(WallClock)), SKEW_MAX),
            None => (None, Millis::ZERO),
        }
    }

    /// Whether the machine's clock decides, which then must not be far from the server's.
    pub(crate) const fn has_client_clock(&self) -> bool {
        self.client_clock
    }

    pub(crate) const fn instance_count(&self) -> Option<u32> {
        self.instances
    }

    pub(crate) const fn slow_answer(&self) -> OnSlowStore {
        self.on_slow_store
    }

    pub(crate) const fn ladder_thresholds(&self) -> &Thresholds {
        &self.ladder
    }

    /// The format of counters that the release has introduced.
    pub(crate) const fn newest_format(&self) -> u8 {
        self.newest_format
    }

    pub(crate) const fn topology(&self) -> &Topology {
        &self.url.topology
    }

    /// What TLS connections show and trust; `None` for plain ones.
    pub(crate) fn authenticated(&self) -> Result<Option<Authenticated>, RedisConfigError> {
        match &self.tls {
            _ if !self.url.tls => Ok(None),
            Some(given) => Ok(Some(given.clone())),
            None => Authenticated::public().map(Some),
        }
    }

    pub(crate) const fn database(&self) -> u32 {
        self.url.database
    }

    pub(crate) fn login(&self) -> Result<Option<Login>, RedisConfigError> {
        let username = self.url.username.clone();
        match &self.url.password {
            Some(password) => Ok(Some(Login { username, password: password.clone() })),
            None if username.is_some() => Err(RedisConfigError::PasswordMissing),
            None => Ok(None),
        }
    }

    pub(crate) fn login_of_sentinels(&self) -> Option<Login> {
        self.sentinel.clone()
    }

    pub(crate) const fn check_timeout(&self) -> Millis {
        self.timeout
    }

    pub(crate) const fn check_retry(&self) -> Option<Retry> {
        self.retry
    }

    pub(crate) fn key_prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) const fn has_flights(&self) -> bool {
        self.flights
    }

    pub(crate) const fn has_denial_cache(&self) -> bool {
        self.denial_cache
    }
}

/// Without user, password and certificates.
impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("topology", &self.url.topology)
            .field("tls", &self.url.tls)
            .field("database", &self.url.database)
            .field("timeout", &self.timeout)
            .field("retry", &self.retry)
            .field("prefix", &self.prefix)
            .field("flights", &self.flights)
            .field("denial_cache", &self.denial_cache)
            .field("client_clock", &self.client_clock)
            .field("instances", &self.instances)
            .field("on_slow_store", &self.on_slow_store)
            .field("ladder", &self.ladder)
            .finish_non_exhaustive()
    }
}

/// A configuration of a Redis store that can't work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisConfigError {
    /// The URL is wrong. It is not repeated: it may hold a password.
    #[error("store URL, character {at}: write {write}")]
    Url {
        /// Which byte, counted from 1.
        at: usize,
        /// What belongs there.
        write: String,
    },
    /// Certificates for a scheme without TLS.
    #[error("certificates are given, but the store URL speaks no TLS: write rediss in place of redis")]
    TlsUnused,
    /// A PEM text without what it should hold.
    #[error("TLS: {what} {problem}")]
    Tls {
        /// `the authority's certificate`, `the client's certificate` or `the client's key`.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A user without password.
    #[error("the store URL names a user and no password: give both, or neither")]
    PasswordMissing,
    /// The key prefix is empty or too long.
    #[error("the key prefix has 1 to {most} characters")]
    PrefixLength {
        /// The cap.
        most: usize,
    },
    /// The key prefix holds what it must not.
    #[error("key prefix, character {at}: write printable ASCII without spaces and braces")]
    PrefixByte {
        /// Which byte, counted from 1.
        at: usize,
    },
    /// There is nothing to run connections on.
    #[error("a Redis store is started inside of a tokio runtime with IO and time")]
    NoRuntime,
}

#[cfg(test)]
mod tests;
