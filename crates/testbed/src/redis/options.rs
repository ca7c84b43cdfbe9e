//! What a server is started with, beyond what every server here has.

use super::{Release, Server};
use crate::clock::Clock;

/// How to start a [`Server`]. Begin with [`Server::options`].
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) release: Release,
    pub(super) args: Vec<String>,
    pub(super) password: Option<String>,
    pub(super) tls: bool,
    /// The configuration of a Sentinel, which this is then.
    pub(super) sentinel: Option<String>,
    /// Whether it is a node of a Cluster.
    pub(super) cluster: bool,
    /// Its wall clock, if it is not the machine's.
    pub(super) clock: Option<Clock>,
}

impl Options {
    pub(super) const fn new() -> Self {
        Self {
            release: Release::Debian,
            args: Vec::new(),
            password: None,
            tls: false,
            sentinel: None,
            cluster: false,
            clock: None,
        }
    }

    /// Runs this release; without it, [`Release::Debian`].
    #[must_use]
    pub const fn release(mut self, release: Release) -> Self {
        self.release = release;
        self
    }

    /// A directive of `redis.conf` with its words: `.directive("maxmemory", &["1mb"])`.
    #[must_use]
    pub fn directive(mut self, name: &str, words: &[&str]) -> Self {
        self.args.push(format!("--{name}"));
        self.args.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Clients of the default user need this password (`requirepass`); [`Server::url`] has it.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.directive("requirepass", &[password])
    }

    /// A user with these ACL rules: `.user("limiter", "on >secret ~sg:* +@all")`.
    #[must_use]
    pub fn user(self, name: &str, rules: &str) -> Self {
        let words: Vec<&str> = std::iter::once(name).chain(rules.split_whitespace()).collect();
        self.directive("user", &words)
    }

    /// No more than this many bytes, and what happens then: `.max_memory(1 << 20, "noeviction")`.
    #[must_use]
    pub fn max_memory(self, bytes: u64, policy: &str) -> Self {
        self.directive("maxmemory", &[&bytes.to_string()]).directive("maxmemory-policy", &[policy])
    }

    /// Listens with TLS in place of plain TCP, and asks clients for a certificate
    /// ([`Server::certificates`]).
    #[must_use]
    pub const fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Its wall clock is this one.
    #[must_use]
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Starts it, and waits until it answers.
    ///
    /// # Panics
    ///
    /// When it can't be started; the message holds what the server printed.
    #[must_use]
    pub fn start(self) -> Server {
        Server::start_with(self)
    }
}
