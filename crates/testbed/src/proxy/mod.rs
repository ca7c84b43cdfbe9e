//! A TCP proxy on the loopback that makes the network behind it as bad as a test needs it, at run time.
//!
//! It is put in front of a server that is well, so what a client sees is the network's doing alone, and the server
//! can be asked what it really did. It knows where requests and replies of Redis begin and end ([`Wire::Resp`]),
//! so a fault can be aimed at one reply: *executed, but the answer got lost* is the case that a limiter must get
//! right. In front of anything else ([`Wire::Opaque`]) a "reply" is what came in one read.
//!
//! It keeps what TCP keeps: bytes stay in order within a connection, and whoever waits behind a held request waits
//! as well. The one exception, [`Fate::Vanish`], says so.
//!
//! With nobody behind it, it accepts and ends each connection at once; [`FaultProxy::refuse`] is what a client sees of
//! a server that is gone. Clients that ask Sentinels or a Cluster for addresses are told those of the servers, and go
//! there past any proxy.
//!
//! It runs on threads of its own, in real time: a test that pauses tokio's clock does not pause its network.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Runtime;

mod accept;
mod faults;
mod frames;
mod pump;
mod tests;

use accept::Accepting;
use faults::{Faults, Hold, Shared, Until};

/// What goes over the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Redis' protocol, version 2 or 3, in plain text: whole requests and replies are passed on.
    Resp,
    /// Anything: bytes are passed on as they come.
    Opaque,
}

/// Which half of the conversation a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Replies,
    /// Both.
    Both,
}

/// What becomes of a reply that was chosen. Its request was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is gone, and the next one is delivered: a client with several requests under way takes the next for the
    /// answer to the wrong one. TCP never does this; only clients that send one request at a time can be asked to
    /// cope.
    Vanish,
    /// It is gone, and so is all that would follow on its connection, which stays open.
    VanishThenSilence,
    /// It is gone, and its connection is reset.
    VanishThenReset,
    /// This many of its bytes are delivered (all but one, if it has no more than that), then its connection ends.
    CutAfter(usize),
}

/// What went through, of all connections since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were accepted.
    pub connections: u64,
    /// Requests that came from clients, whatever became of them.
    pub requests: u64,
    /// Their bytes.
    pub request_bytes: u64,
    /// Replies that came from the server, whatever became of them.
    pub replies: u64,
    /// Their bytes.
    pub reply_bytes: u64,
    /// Requests that were [held](FaultProxy::hold) or made [late](FaultProxy::late).
    pub held: u64,
    /// Replies whose [`Fate`] was decided by the test.
    pub spoiled: u64,
}

/// A proxy in front of one address. Dropping it ends all connections.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    accepting: Accepting,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl FaultProxy {
    /// A proxy before a Redis server at `target` (`127.0.0.1:6379`), that passes everything.
    ///
    /// # Panics
    ///
    /// When `target` is no address, or no port or thread is to be had.
    #[must_use]
    pub fn start(target: &str) -> Self {
        Self::start_with(target, Wire::Resp)
    }

    /// [`start`](Self::start) before a server of any kind.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with(target: &str, wire: Wire) -> Self {
        let target: SocketAddr = target.parse().unwrap_or_else(|_| panic!("{target}: no address"));
        // Two, so that a busy connection can't keep another from being accepted.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("fault-proxy")
            .enable_all()
            .build()
            .expect("threads for the proxy");
        let shared = Arc::new(Shared::new(target, wire));
        let (accepting, address) = Accepting::start(&runtime, &shared);
        Self { shared, accepting, address, runtime: Some(runtime) }
    }

    /// Where clients connect: `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The port of [`address`](Self::address).
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// What went through.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.tally.counts()
    }

    /// Ends all faults: what was stalled or held goes on, connections are accepted. What vanished stays lost.
    ///
    /// # Panics
    ///
    /// When the proxy refused connections and another process has taken its port meanwhile.
    pub fn pass(&self) {
        self.accepting.accept();
        let released = self.shared.holds.load(Ordering::SeqCst);
        self.change(|faults| {
            *faults = Faults { released, reset_below: faults.reset_below, ..Faults::default() }
        });
    }

    /// Everything arrives this much later, in order, as on a longer way.
    pub fn delay(&self, way: Way, by: Duration) {
        self.change(|faults| way.each(|index| faults.delay[index] = by));
    }

    /// The connections of now freeze: they stay open and nothing gets through until [`pass`](Self::pass), when all
    /// of it does. Connections made later are not affected.
    pub fn stall(&self, way: Way) {
        let next = self.shared.next_connection.load(Ordering::SeqCst);
        self.change(|faults| way.each(|index| faults.stalled_below[index] = next));
    }

    /// Whatever is sent is lost, on all connections, also on new ones, which are accepted: for
    /// [`Way::Requests`] nothing is executed, for [`Way::Replies`] everything, and nobody hears of it.
    pub fn black_hole(&self, way: Way) {
        self.change(|faults| way.each(|index| faults.black_hole[index] = true));
    }

    /// New connections are refused by the kernel, as where nobody listens. Those of now are not affected.
    ///
    /// # Panics
    ///
    /// Never: the thread that accepts connections runs as long as the proxy.
    pub fn refuse(&self) {
        self.accepting.refuse();
    }

    /// The connections of now are reset.
    pub fn reset(&self) {
        let next = self.shared.next_connection.load(Ordering::SeqCst);
        self.change(|faults| faults.reset_below = next);
    }

    /// Every `every`-th reply from now on, of all connections together, meets this fate.
    ///
    /// # Panics
    ///
    /// When `every` is 0.
    pub fn spoil_replies(&self, every: u64, fate: Fate) {
        assert!(every > 0, "every 0th reply is none");
        self.shared.tally.since_spoiled.store(0, Ordering::SeqCst);
        self.change(|faults| faults.spoil = Some((every, fate)));
    }

    /// So many of a hundred requests, chosen by `seed`, are kept back until [`release`](Self::release), and with each
    /// one what its connection sends behind it. They are delivered and executed even if the client has left
    /// by then: *late execution*.
    pub fn hold(&self, percent: u8, seed: u64) {
        self.hold_until(percent, seed, Until::Released);
    }

    /// [`hold`](Self::hold), but each one only for this long.
    pub fn late(&self, percent: u8, by: Duration, seed: u64) {
        self.hold_until(percent, seed, Until::After(by));
    }

    /// Delivers what was held until now. Requests that are chosen later are held again.
    pub fn release(&self) {
        let released = self.shared.holds.load(Ordering::SeqCst);
        self.change(|faults| faults.released = released);
    }

    fn hold_until(&self, percent: u8, seed: u64, until: Until) {
        self.shared.seed(seed);
        self.change(|faults| faults.hold = Some(Hold { percent, until }));
    }

    fn change(&self, how: impl FnOnce(&mut Faults)) {
        self.shared.faults.send_modify(how);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The plain drop waits, which is forbidden where a test's own runtime drops this.
            runtime.shutdown_background();
        }
    }
}
