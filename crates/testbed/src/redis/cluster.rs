//! Three masters with a replica each, as a Redis Cluster, which moves slots and fails over while it serves.
//!
//! Who serves a slot is never remembered here: the nodes are asked. Frozen and ended ones are not, as they
//! would not answer.

use std::collections::BTreeSet;

use super::{Options, Release, Server};
use crate::wait;

mod view;

use view::{Node, view};

/// Masters, and replicas as well: the smallest number that can elect a new one.
const MASTERS: usize = 3;

/// A node that does not answer for this long is taken for failed by the others.
const NODE_TIMEOUT_MS: &str = "1000";

/// How many keys one MIGRATE takes: few, so that it does not hold up the clients of a test that measures them.
const KEYS_PER_MIGRATE: &str = "100";

/// Six nodes. Dropping kills them.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// The number of slots in any Cluster.
    pub const SLOTS: u16 = 16_384;

    /// Starts Debian's release; returns when all slots are served and all replicas are in sync.
    ///
    /// # Panics
    ///
    /// As [`Options::start`], and when the nodes don't find each other.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(Release::Debian)
    }

    /// [`start`](Self::start) with another release.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with(release: Release) -> Self {
        let options = Server::options()
            .release(release)
            .directive("cluster-node-timeout", &[NODE_TIMEOUT_MS])
            // A replica takes over however long it has heard nothing, and stays with its master.
            .directive("cluster-replica-validity-factor", &["0"])
            .directive("cluster-allow-replica-migration", &["no"]);
        let node = || Options { cluster: true, ..options.clone() }.start();
        let started = Self { nodes: std::iter::repeat_with(node).take(2 * MASTERS).collect() };
        started.join();
        started
    }

    /// All nodes; the first three began as masters.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The addresses of all nodes, comma-separated, as most clients' configurations want them.
    #[must_use]
    pub fn addresses(&self) -> String {
        self.nodes.iter().map(Server::address).collect::<Vec<_>>().join(",")
    }

    /// The slot of a key, hash tags included.
    ///
    /// # Panics
    ///
    /// When no node runs.
    #[must_use]
    pub fn slot_of(&self, key: &str) -> u16 {
        self.running().next().expect("a node that runs").ask(&["CLUSTER", "KEYSLOT", key])
    }

    /// The running node that serves this slot, in its own opinion: of several, the one elected last.
    ///
    /// # Panics
    ///
    /// When there is none for [`wait::PATIENCE`].
    #[must_use]
    pub fn master_of(&self, slot: u16) -> &Server {
        wait::for_some(&format!("a master of slot {slot}"), wait::PATIENCE, || {
            let owners = self.running().filter_map(|node| {
                let own = own_entry(node)?;
                (own.is_master && own.serves(slot)).then_some((own.epoch, node))
            });
            owners.max_by_key(|(epoch, _)| *epoch).map(|(_, node)| node)
        })
    }

    /// The running replicas of this slot's master.
    ///
    /// # Panics
    ///
    /// As [`master_of`](Self::master_of).
    #[must_use]
    pub fn replicas_of(&self, slot: u16) -> Vec<&Server> {
        let master = id(self.master_of(slot));
        self.running().filter(|node| own_entry(node).is_some_and(|own| own.master == master)).collect()
    }

    /// Gives the slot to another master while both serve, as `redis-cli --cluster reshard` does: clients see MOVED,
    /// and in between ASK for keys that have left already.
    ///
    /// # Panics
    ///
    /// When a node refuses.
    pub fn move_slot(&self, slot: u16, to: &Server) {
        let from = self.master_of(slot);
        if from.port() == to.port() {
            return;
        }
        let number = slot.to_string();
        let (from_id, to_id) = (id(from), id(to));
        to.ask::<()>(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &from_id]);
        from.ask::<()>(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &to_id]);
        while migrate_some(from, to, &number) {}
        // The new owner first: until the old one knows, it sends clients there, and not into a circle.
        to.ask::<()>(&["CLUSTER", "SETSLOT", &number, "NODE", &to_id]);
        from.ask::<()>(&["CLUSTER", "SETSLOT", &number, "NODE", &to_id]);
        // The others too, as redis-cli does; and all have to know before the next move, replicas too, which can only be
        // waited for. One that heard of the old owner's next epoch (it may just have been given another slot) before it
        // hears of this move would tell the new owner that the slot is the old one's: then each of the two sends callers
        // to the other, and that does not heal.
        let concerned = [from.port(), to.port()];
        for other in self.running().filter(|node| !concerned.contains(&node.port())) {
            if own_entry(other).is_some_and(|own| own.is_master) {
                other.ask::<()>(&["CLUSTER", "SETSLOT", &number, "NODE", &to_id]);
            }
        }
        wait::until("a slot whose move everybody knows of", wait::PATIENCE, || {
            self.running().all(|node| view(node).iter().any(|owner| owner.id == to_id && owner.serves(slot)))
        });
    }

    /// Moves the first `count` slots of one master to another, one after another; returns which.
    ///
    /// # Panics
    ///
    /// When a node refuses.
    pub fn move_slots(&self, from: &Server, to: &Server, count: usize) -> Vec<u16> {
        let own = own_entry(from).expect("a node knows itself");
        let slots: Vec<u16> = (0..Self::SLOTS).filter(|slot| own.serves(*slot)).take(count).collect();
        for slot in &slots {
            self.move_slot(*slot, to);
        }
        slots
    }

    /// A planned failover of the slot's master to its replica (`CLUSTER FAILOVER`), which loses nothing; returns
    /// when all nodes know.
    ///
    /// # Panics
    ///
    /// When it has no replica that runs, or nothing happens.
    pub fn failover(&self, slot: u16) {
        let old = self.master_of(slot).port();
        let replica = self.replicas_of(slot).into_iter().next().expect("a replica that runs");
        replica.ask::<()>(&["CLUSTER", "FAILOVER"]);
        self.wait_for_other_master(slot, old);
        self.settle();
    }

    /// Has a replica of the slot's master, which may be gone, ask for its place at once (`CLUSTER FAILOVER FORCE`), and
    /// does not wait for it.
    ///
    /// # Panics
    ///
    /// When it refuses.
    pub fn begin_failover(&self, replica: &Server) {
        replica.ask::<()>(&["CLUSTER", "FAILOVER", "FORCE"]);
    }

    /// Waits until another node than the one at port `old` serves the slot.
    ///
    /// # Panics
    ///
    /// When none does after [`wait::PATIENCE`].
    pub fn wait_for_other_master(&self, slot: u16, old: u16) {
        wait::until("another master", wait::PATIENCE, || self.master_of(slot).port() != old);
    }

    /// Waits until all running nodes serve, agree on who serves what, and running replicas are in sync.
    ///
    /// # Panics
    ///
    /// When that is not so after [`wait::PATIENCE`].
    pub fn settle(&self) {
        wait::until("a Cluster that agrees with itself", wait::PATIENCE, || {
            let opinions: BTreeSet<Serving> = self.running().map(|node| masters_in(&view(node))).collect();
            opinions.len() == 1 && self.running().all(is_well)
        });
    }

    /// Makes strangers a Cluster.
    fn join(&self) {
        let (masters, replicas) = self.nodes.split_at(MASTERS);
        let share = Self::SLOTS / 3 + 1;
        for (index, master) in (0_u16..).zip(masters) {
            let (first, last) = (index * share, ((index + 1) * share).min(Self::SLOTS) - 1);
            master.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        for (epoch, node) in (1..).zip(&self.nodes) {
            // Two masters of one epoch would have to settle that first, and slots could be moved back.
            node.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch.to_string()]);
        }
        let first = &self.nodes[0];
        for node in &self.nodes[1..] {
            let (port, bus) = (node.port().to_string(), node.bus().to_string());
            first.ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        wait::until("nodes that have met", wait::PATIENCE, || {
            self.nodes
                .iter()
                .all(|node| view(node).iter().filter(|other| other.is_known).count() == 2 * MASTERS)
        });
        for (master, replica) in masters.iter().zip(replicas) {
            replica.ask::<()>(&["CLUSTER", "REPLICATE", &id(master)]);
        }
        self.settle();
    }

    fn running(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter(|node| node.runs())
    }
}

/// Moves some keys of a slot; whether there were any.
fn migrate_some(from: &Server, to: &Server, slot: &str) -> bool {
    let keys: Vec<Vec<u8>> = from.ask(&["CLUSTER", "GETKEYSINSLOT", slot, KEYS_PER_MIGRATE]);
    if keys.is_empty() {
        return false;
    }
    let port = to.port().to_string();
    let mut words: Vec<&[u8]> =
        ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"].map(str::as_bytes).into();
    words.extend(keys.iter().map(Vec::as_slice));
    from.command(&words).unwrap_or_else(|error| panic!("keys of slot {slot} can't be moved: {error}"));
    true
}

fn id(node: &Server) -> String {
    node.ask(&["CLUSTER", "MYID"])
}

/// What a node knows of itself.
fn own_entry(node: &Server) -> Option<Node> {
    view(node).into_iter().find(|other| other.is_self)
}

/// Masters by their ids, and the ranges of slots that each serves.
type Serving = Vec<(String, Vec<(u16, u16)>)>;

/// Who serves what in a node's opinion, ordered.
fn masters_in(nodes: &[Node]) -> Serving {
    let serving = nodes.iter().filter(|node| node.is_master && !node.slots.is_empty());
    let mut masters: Vec<_> = serving.map(|node| (node.id.clone(), node.slots.clone())).collect();
    masters.sort();
    masters
}

fn is_well(node: &Server) -> bool {
    let state: String = node.ask(&["CLUSTER", "INFO"]);
    let is_master = node.info("role") == "master";
    state.contains("cluster_state:ok") && (is_master || node.info("master_link_status") == "up")
}
