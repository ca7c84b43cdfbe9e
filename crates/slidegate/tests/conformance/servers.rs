//! Servers of the tests' own, of each kind that a store can be put on. All tests of this binary share them: they
//! are started by the first who asks, and end with the process.

use std::sync::LazyLock;

use slidegate_testbed::redis::{Cluster, Release, Sentinels, Server};

/// Where a store is put.
pub(crate) trait Servers: Send + Sync + 'static {
    /// Whether keys lie in slots.
    const ARE_A_CLUSTER: bool = false;

    /// How many histories the model is compared over: fewer where the scripts are the same and only the way to them
    /// is another.
    const WALKS: u32;

    /// Whether they can be had on this machine.
    fn are_here() -> bool {
        true
    }

    /// The URL of a store on them.
    fn url() -> String;
}

/// One server, of the release that the system brings.
pub(crate) struct Single;

impl Servers for Single {
    const WALKS: u32 = 256;

    fn url() -> String {
        static SERVER: LazyLock<Server> = LazyLock::new(Server::start);
        SERVER.url()
    }
}

/// A master and two replicas under three Sentinels.
pub(crate) struct Watched;

impl Servers for Watched {
    const WALKS: u32 = 32;

    fn url() -> String {
        static SENTINELS: LazyLock<Sentinels> = LazyLock::new(Sentinels::start);
        let addresses: Vec<String> = SENTINELS.sentinels().iter().map(Server::address).collect();
        format!("redis-sentinel://{}/{}", addresses.join(","), Sentinels::NAME)
    }
}

/// Three masters with a replica each.
pub(crate) struct Clustered;

impl Servers for Clustered {
    const ARE_A_CLUSTER: bool = true;
    const WALKS: u32 = 64;

    fn url() -> String {
        static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);
        format!("redis-cluster://{}", CLUSTER.addresses())
    }
}

/// One server of Redis 8.2.
pub(crate) struct Redis82;

impl Servers for Redis82 {
    const WALKS: u32 = 64;

    fn are_here() -> bool {
        Release::Redis82.program().is_some()
    }

    fn url() -> String {
        static SERVER: LazyLock<Server> =
            LazyLock::new(|| Server::options().release(Release::Redis82).start());
        SERVER.url()
    }
}

/// One server of Valkey.
pub(crate) struct Valkey;

impl Servers for Valkey {
    const WALKS: u32 = 64;

    fn are_here() -> bool {
        Release::Valkey.program().is_some()
    }

    fn url() -> String {
        static SERVER: LazyLock<Server> =
            LazyLock::new(|| Server::options().release(Release::Valkey).start());
        SERVER.url()
    }
}
