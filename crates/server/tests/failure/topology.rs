//! A master with replicas, under Sentinel or in a Cluster, asked for the same things.

use std::time::Duration;

use slidegate_testbed::clock::Clock;
use slidegate_testbed::redis::{Cluster, Release, Sentinels, Server};
use slidegate_testbed::wait;

/// The one counter of all scenes.
const COUNTER: &str = "sg:{all}:all:1";

/// Where in the bytes of a `sliding_window` its permits in use are, as it was last written.
const USED_AT: std::ops::Range<usize> = 32..36;

/// A silent master is down after this long, under Sentinel.
const DOWN_AFTER: Duration = Duration::from_millis(500);

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sentinel,
    Cluster,
}

/// How a master is replaced on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planned {
    SentinelFailover,
    FailoverTo,
    ClusterFailover,
}

#[derive(Debug)]
pub(crate) enum Topology {
    Sentinel(Sentinels),
    Cluster(Cluster),
}

impl Topology {
    pub(crate) fn start(kind: Kind) -> Self {
        match kind {
            Kind::Sentinel => Self::Sentinel(Sentinels::start_with(Release::Debian, DOWN_AFTER)),
            Kind::Cluster => Self::Cluster(Cluster::start()),
        }
    }

    /// Under Sentinel, with replicas of this clock.
    pub(crate) fn start_with_replicas_at(clock: &Clock) -> Self {
        Self::Sentinel(Sentinels::start_at(Release::Debian, DOWN_AFTER, Some(clock)))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sentinel(sentinels) => {
                let addresses: Vec<String> = sentinels.sentinels().iter().map(Server::address).collect();
                format!("redis-sentinel://{}/{}", addresses.join(","), Sentinels::NAME)
            }
            Self::Cluster(cluster) => format!("redis-cluster://{}", cluster.addresses()),
        }
    }

    /// Who counts.
    pub(crate) fn master(&self) -> &Server {
        match self {
            Self::Sentinel(sentinels) => sentinels.master(),
            Self::Cluster(cluster) => cluster.master_of(cluster.slot_of(COUNTER)),
        }
    }

    /// Who would take over.
    pub(crate) fn replicas(&self) -> Vec<&Server> {
        match self {
            Self::Sentinel(sentinels) => sentinels.replicas(),
            Self::Cluster(cluster) => cluster.replicas_of(cluster.slot_of(COUNTER)),
        }
    }

    /// Kills the master, lets frozen replicas go on, and has one of them promoted at once, or when the servers have
    /// found out for themselves. Returns when it is done, and what the replicas had counted, if they say so.
    pub(crate) fn kill_master(&self, replicas: &[&Server], at_once: bool) -> Option<u32> {
        let old = self.master();
        old.kill();
        for replica in replicas {
            replica.cont();
        }
        let counted = replicas.iter().filter_map(|replica| used(replica)).max();
        if at_once {
            match self {
                Self::Sentinel(sentinels) => sentinels.begin_failover(),
                Self::Cluster(cluster) => cluster.begin_failover(replicas[0]),
            }
        }
        wait::until("a replica that is promoted", wait::PATIENCE, || {
            replicas.iter().any(|replica| replica.info("role") == "master")
        });
        counted
    }

    /// Replaces the master on purpose, and returns when another one says that it is master.
    pub(crate) fn replace_master(&self, how: Planned) {
        let old = self.master().port();
        let replicas = self.replicas();
        match (self, how) {
            (Self::Sentinel(sentinels), Planned::SentinelFailover) => sentinels.begin_failover(),
            (Self::Sentinel(sentinels), Planned::FailoverTo) => sentinels.failover_to_replica(),
            (Self::Cluster(_), Planned::ClusterFailover) => {
                replicas[0].ask::<()>(&["CLUSTER", "FAILOVER"]);
            }
            _ => panic!("no {how:?} at {old} here"),
        }
        wait::until("a replica that is promoted", wait::PATIENCE, || {
            replicas.iter().any(|replica| replica.info("role") == "master")
        });
    }
}

/// The permits in use at a server, as it was last written; 0 without such a counter. A replica of a Cluster sends those
/// who ask away.
pub(crate) fn used(server: &Server) -> Option<u32> {
    let bytes: Vec<u8> = server.try_ask(&["GET", COUNTER])?;
    Some(bytes.get(USED_AT).and_then(|used| used.try_into().ok()).map_or(0, u32::from_be_bytes))
}
