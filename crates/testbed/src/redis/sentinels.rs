//! One master, two replicas, and three Sentinels that watch them.
//!
//! Which server is master is never remembered here: the Sentinels are asked, as clients do.

use std::time::Duration;

use super::{Options, Release, Server};
use crate::clock::Clock;
use crate::wait;

const REPLICAS: usize = 2;
const SENTINELS: usize = 3;

/// Sentinels that must agree that the master is down: with three, one of them may be wrong or gone.
const QUORUM: usize = 2;

/// A failover that fails is tried again after twice this time. Short, since a test waits for it; long enough
/// for a busy machine to finish one.
const FAILOVER_TIMEOUT_MS: u32 = 3000;

/// A master that does not answer for this long is down, in [`Sentinels::start`].
const DOWN_AFTER: Duration = Duration::from_millis(1000);

/// Six servers. Dropping kills them.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Sentinels {
    /// The name of the master, which clients ask for.
    pub const NAME: &'static str = "limits";

    /// Starts Debian's release; a master that is silent for 1 s is replaced. Returns when replicas are in sync,
    /// and when all Sentinels know of each other and of the replicas: before that, they can't fail over.
    ///
    /// # Panics
    ///
    /// As [`Options::start`], and when they don't find each other.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(Release::Debian, DOWN_AFTER)
    }

    /// [`start`](Self::start) with another release, and another time until a silent master is down.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with(release: Release, down_after: Duration) -> Self {
        Self::start_at(release, down_after, None)
    }

    /// [`start_with`](Self::start_with), and the clock of both replicas is this one.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_at(release: Release, down_after: Duration, replicas: Option<&Clock>) -> Self {
        let master = Server::options().release(release).start();
        let port = master.port().to_string();
        let replica = || {
            let options = Server::options().release(release).directive("replicaof", &["127.0.0.1", &port]);
            replicas.into_iter().fold(options, Options::clock).start()
        };
        let mut servers = vec![master];
        servers.extend(std::iter::repeat_with(replica).take(REPLICAS));
        let configuration = format!(
            "sentinel monitor {name} 127.0.0.1 {port} {QUORUM}\n\
             sentinel down-after-milliseconds {name} {down_after}\n\
             sentinel failover-timeout {name} {FAILOVER_TIMEOUT_MS}\n\
             sentinel parallel-syncs {name} {REPLICAS}\n",
            name = Self::NAME,
            down_after = down_after.as_millis(),
        );
        let sentinel =
            || Options { sentinel: Some(configuration.clone()), ..Server::options().release(release) };
        let sentinels = std::iter::repeat_with(|| sentinel().start()).take(SENTINELS).collect();
        let started = Self { servers, sentinels };
        started.settle();
        started
    }

    /// The three data servers; the first began as master.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The three Sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The server that most Sentinels call master.
    ///
    /// # Panics
    ///
    /// When no two of them agree for long.
    #[must_use]
    pub fn master(&self) -> &Server {
        wait::for_some("a master that two Sentinels agree on", wait::PATIENCE, || {
            let ports: Vec<u16> = self.running_sentinels().filter_map(master_port).collect();
            let port =
                ports.iter().find(|port| ports.iter().filter(|other| other == port).count() >= QUORUM)?;
            self.servers.iter().find(|server| server.port() == *port)
        })
    }

    /// The others, running or not.
    #[must_use]
    pub fn replicas(&self) -> Vec<&Server> {
        let master = self.master().port();
        self.servers.iter().filter(|server| server.port() != master).collect()
    }

    /// A planned failover (`SENTINEL FAILOVER`), while all is well: returns when another server is master, for
    /// itself and for the Sentinels. The old one may still believe that it is one too.
    ///
    /// # Panics
    ///
    /// When no failover happens.
    pub fn failover(&self) {
        let old = self.master().port();
        self.begin_failover();
        self.wait_for_other_master(old);
    }

    /// Has a Sentinel begin a failover, of a master that is gone as well, and does not wait for it: a test that can't
    /// give the Sentinels the time to find out for themselves acts as an operator would.
    ///
    /// # Panics
    ///
    /// When none begins one.
    pub fn begin_failover(&self) {
        wait::until("a Sentinel that begins a failover", wait::PATIENCE, || {
            self.running_sentinels().any(|one| one.command(&["SENTINEL", "FAILOVER", Self::NAME]).is_ok())
        });
    }

    /// A planned failover without two masters at any time (`FAILOVER TO`): the old one pauses its clients until the
    /// new one has all. Returns when the new one calls itself master; Sentinels take their time to believe it.
    ///
    /// # Panics
    ///
    /// When no failover happens.
    pub fn failover_to_replica(&self) {
        let old = self.master();
        let to = self.replicas().into_iter().find(|replica| replica.runs()).expect("a replica that runs");
        old.ask::<()>(&["FAILOVER", "TO", "127.0.0.1", &to.port().to_string(), "TIMEOUT", "5000"]);
        wait::until("a replica that is promoted", wait::PATIENCE, || to.info("role") == "master");
    }

    /// Waits until another server than the one at `old` is master, for itself and for most Sentinels.
    ///
    /// # Panics
    ///
    /// When none is after [`wait::PATIENCE`].
    pub fn wait_for_other_master(&self, old: u16) {
        wait::until("another master", wait::PATIENCE, || {
            let master = self.master();
            master.port() != old && master.runs() && master.info("role") == "master"
        });
    }

    /// Waits until all running replicas follow the master and have its data, and all Sentinels know them and each
    /// other.
    ///
    /// # Panics
    ///
    /// When that is not so after [`wait::PATIENCE`].
    pub fn settle(&self) {
        wait::until("replicas in sync and Sentinels that know them", wait::PATIENCE, || {
            let master = self.master();
            let replicas = self.replicas().iter().filter(|replica| replica.runs()).count();
            let all_follow = master.runs()
                && self
                    .replicas()
                    .iter()
                    .filter(|replica| replica.runs())
                    .all(|replica| follows(replica, master));
            let others = (self.running_sentinels().count() - 1).to_string();
            all_follow
                && self.running_sentinels().all(|sentinel| {
                    master_port(sentinel) == Some(master.port())
                        && field(sentinel, "num-slaves")
                            .is_some_and(|known| known.parse().is_ok_and(|known: usize| known >= replicas))
                        && field(sentinel, "num-other-sentinels") == Some(others.clone())
                        && field(sentinel, "flags").is_some_and(|flags| flags == "master")
                })
        });
    }

    fn running_sentinels(&self) -> impl Iterator<Item = &Server> {
        self.sentinels.iter().filter(|sentinel| sentinel.runs())
    }
}

fn master_port(sentinel: &Server) -> Option<u16> {
    field(sentinel, "port")?.parse().ok()
}

/// What this Sentinel knows of the master.
fn field(sentinel: &Server, name: &str) -> Option<String> {
    let answer = sentinel.command(&["SENTINEL", "MASTER", Sentinels::NAME]).ok()?;
    let words: Vec<String> = ::redis::FromRedisValue::from_redis_value(answer).ok()?;
    words.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone())
}

/// By one answer: asked twice, it may have become a master in between.
fn follows(replica: &Server, master: &Server) -> bool {
    let told: String = replica.ask(&["INFO", "replication"]);
    let is = |field: &str, expected: &str| {
        let mut lines = told.lines().filter_map(|line| line.trim_end().split_once(':'));
        lines.any(|(name, value)| name == field && value == expected)
    };
    is("role", "slave")
        && is("master_port", &master.port().to_string())
        && is("master_link_status", "up")
        && is("master_sync_in_progress", "0")
}
