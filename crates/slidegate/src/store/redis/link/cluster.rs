//! Calls to a cluster: each to the node that serves its slot, which is followed when it moves.
//!
//! * The table of slots is read without locks and replaced as a whole. Tables come from whichever node answers,
//!   every few seconds and whenever something went wrong; a `MOVED` changes its slot at once.
//! * Each master has a [`Node`] of its own, opened ahead, so one that is away holds up nobody else's calls.
//! * Within a call only redirections are followed, which nothing was executed before, and no longer than its
//!   deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use ::redis::{Cmd, Value};
use arc_swap::ArcSwap;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};

use super::masters::Master;
use super::node::{Counting, Node, Surroundings, Target};
use super::pause::jittered;
use super::refusal::Refusal;
use super::slots::{self, Range, SLOTS};
use super::task::OwnedTask;
use crate::error::Fault;
use crate::store::redis::url::Address;

/// How often the table is read when all is well.
const REFRESH_EVERY: Duration = Duration::from_secs(10);
/// How often while a master is away or slots are served by nobody.
const REFRESH_IN_TROUBLE: Duration = Duration::from_millis(200);
/// Between two readings, whatever happens.
const REFRESH_SPACING: Duration = Duration::from_millis(100);
/// How long one node may take to tell its table; there are others.
const TABLE_WAIT: Duration = Duration::from_millis(200);
/// Redirections that are followed without a pause: two are usual while a slot moves. With more of them, or TRYAGAIN,
/// the nodes are in the middle of something: for some milliseconds, both ends of a move send callers to the other.
const QUICK_HOPS: u32 = 2;
/// Until they are asked again.
const DISAGREEMENT_PAUSE: Duration = Duration::from_millis(2);
/// A slot that nobody serves.
const NOBODY: u16 = u16::MAX;

/// The cluster, and the task that keeps its table.
pub(super) struct Cluster {
    routing: Arc<Routing>,
    _keeper: OwnedTask,
}

struct Routing {
    around: Surroundings,
    seeds: Vec<Address>,
    table: ArcSwap<Table>,
    /// Whether any node has told its table, be it an empty one.
    told: AtomicBool,
}

/// Who serves which slot.
#[derive(Clone)]
struct Table {
    /// For each slot the place of its node, or [`NOBODY`].
    owners: Box<[u16]>,
    nodes: Vec<(Address, Arc<Node>)>,
}

impl Table {
    fn empty() -> Self {
        Self { owners: vec![NOBODY; usize::from(SLOTS)].into(), nodes: Vec::new() }
    }

    fn owner(&self, slot: u16) -> Option<&(Address, Arc<Node>)> {
        let place = *self.owners.get(usize::from(slot))?;
        self.nodes.get(usize::from(place))
    }

    fn node(&self, address: &Address) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|(known, _)| known == address).map(|(_, node)| node)
    }

    /// The place of a node, which is added if it is not there.
    fn place(&mut self, address: &Address, start: impl FnOnce() -> Arc<Node>) -> u16 {
        let found = self.nodes.iter().position(|(known, _)| known == address);
        let place = found.unwrap_or_else(|| {
            self.nodes.push((address.clone(), start()));
            self.nodes.len() - 1
        });
        u16::try_from(place).unwrap_or(NOBODY)
    }

    /// Whether every slot has an owner, and every owner a connection.
    fn is_whole(&self) -> bool {
        let connected: Vec<bool> = self.nodes.iter().map(|(_, node)| node.is_connected()).collect();
        self.owners.iter().all(|place| connected.get(usize::from(*place)).copied().unwrap_or(false))
    }
}

impl Cluster {
    pub(super) fn start(around: Surroundings, seeds: &[Address]) -> Self {
        let routing = Arc::new(Routing {
            around,
            seeds: seeds.to_vec(),
            table: ArcSwap::from_pointee(Table::empty()),
            told: AtomicBool::new(false),
        });
        let keeper = OwnedTask::spawn(keep(routing.clone()));
        Self { routing, _keeper: keeper }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.routing.table.load().is_whole()
    }

    /// The node of a slot.
    pub(super) fn node(&self, slot: u16) -> Option<Arc<Node>> {
        self.routing.table.load().owner(slot).map(|(_, node)| node.clone())
    }

    /// All nodes.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.routing.table.load().nodes.iter().map(|(_, node)| node.clone()).collect()
    }

    pub(super) fn master(&self, slot: u16) -> Option<Master> {
        self.routing.table.load().owner(slot)?.1.master()
    }

    /// Sends a command to the node of its slot, wherever that is by then.
    pub(super) async fn call(
        &self,
        slot: u16,
        command: &Cmd,
        counting: Counting,
        deadline: Instant,
    ) -> Result<Value, Refusal> {
        let owner = self.routing.table.load().owner(slot).cloned();
        let Some((mut address, mut node)) = owner else {
            self.routing.around.trouble.notify_one();
            return Err(Refusal::unavailable(self.routing.nobody()));
        };
        let mut asking = false;
        node.serves(slot);
        for hop in 0.. {
            let refusal = match node.call(command, asking, counting, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(refusal) => refusal,
            };
            let next = match refusal {
                Refusal::Moved(moved, text) => {
                    asking = false;
                    slots::redirect(&text, &address).map(|next| (self.routing.moved(moved, &next), next))
                }
                Refusal::Ask(text) => {
                    asking = true;
                    slots::redirect(&text, &address).map(|next| (self.routing.node(&next), next))
                }
                Refusal::TryAgain => {
                    self.routing.around.trouble.notify_one();
                    Some((node, address))
                }
                Refusal::Final { ref error, .. } => {
                    if error.fault() == Some(Fault::ClusterDown) {
                        self.routing.around.trouble.notify_one();
                    }
                    return Err(refusal);
                }
                Refusal::NoScript => return Err(refusal),
            };
            let Some(next) = next else {
                return Err(Refusal::unavailable(Fault::Protocol));
            };
            (node, address) = next;
            node.tried(deadline).await;
            if hop >= QUICK_HOPS && !agree(deadline).await {
                break;
            }
        }
        self.routing.around.trouble.notify_one();
        Err(Refusal::unavailable(Fault::ClusterDown))
    }
}

/// Gives the nodes some time to agree; false if there is none left.
async fn agree(deadline: Instant) -> bool {
    let end = Instant::now() + DISAGREEMENT_PAUSE;
    if end >= deadline {
        return false;
    }
    sleep_until(end).await;
    Instant::now() < deadline
}

impl Routing {
    /// Why a slot has no owner: because the cluster says so, or because nobody could be asked yet.
    fn nobody(&self) -> Fault {
        if self.told.load(Relaxed) { Fault::ClusterDown } else { Fault::Disconnected }
    }

    fn start(&self, address: &Address) -> Arc<Node> {
        Arc::new(Node::start(self.around.clone(), Target::Fixed(address.clone())))
    }

    /// The node at this address, connected to from now on if it was not before.
    fn node(&self, address: &Address) -> Arc<Node> {
        self.change(address, |_, _| {})
    }

    /// As [`node`](Self::node); and the slot is its own from now on.
    fn moved(&self, slot: u16, address: &Address) -> Arc<Node> {
        self.around.trouble.notify_one();
        self.change(address, |owners, place| {
            if let Some(owner) = owners.get_mut(usize::from(slot)) {
                *owner = place;
            }
        })
    }

    /// Replaces the table by one that has this node, and is changed otherwise as asked.
    fn change(&self, address: &Address, change: impl Fn(&mut [u16], u16)) -> Arc<Node> {
        let known = self.table.load().node(address).cloned();
        let node = known.unwrap_or_else(|| self.start(address));
        node.mark_used();
        self.table.rcu(|table| {
            let mut next = Table::clone(table);
            let place = next.place(address, || node.clone());
            change(&mut next.owners, place);
            next
        });
        // Had another call been faster, its node is the one.
        self.table.load().node(address).cloned().unwrap_or(node)
    }

    /// Reads the table from whoever answers.
    async fn refresh(&self) -> bool {
        let ranges = match self.ask_connected().await {
            Some(ranges) => Some(ranges),
            None => self.ask_seeds().await,
        };
        let Some(ranges) = ranges else {
            return false;
        };
        self.adopt(&ranges);
        true
    }

    /// Asks the nodes that there are connections to, one after another; each has only a short time to answer.
    async fn ask_connected(&self) -> Option<Vec<Range>> {
        let table = self.table.load_full();
        let start = usize::from(random_place(table.nodes.len()));
        for index in 0..table.nodes.len() {
            let (address, node) = &table.nodes[(start + index) % table.nodes.len()];
            if !node.is_connected() {
                continue;
            }
            let deadline = Instant::now() + TABLE_WAIT;
            if let Ok(reply) = node.question(&question(), false, deadline).await
                && let Some(ranges) = self.read_table(&reply, address)
            {
                return Some(ranges);
            }
        }
        None
    }

    /// Asks the configured nodes, over connections for this purpose.
    async fn ask_seeds(&self) -> Option<Vec<Range>> {
        for address in &self.seeds {
            let Ok(opened) = self.around.connector.open(address).await else {
                continue;
            };
            let mut transport = opened.transport;
            let reply = timeout(TABLE_WAIT, transport.connection.send_packed_command(&question())).await;
            if let Ok(Ok(reply)) = reply
                && let Some(ranges) = self.read_table(&reply, address)
            {
                return Some(ranges);
            }
        }
        None
    }

    /// Reads a table. An empty one is no news to act on: the node has just been reset or not joined yet.
    fn read_table(&self, reply: &Value, address: &Address) -> Option<Vec<Range>> {
        let ranges = slots::ranges(reply, address)?;
        self.told.store(true, Relaxed);
        (!ranges.is_empty()).then_some(ranges)
    }

    /// Makes this the table. Nodes that were there stay connected; those that serve nothing and that nobody asked
    /// for lately are left.
    fn adopt(&self, ranges: &[Range]) {
        let before = self.table.load_full();
        let mut next = Table::empty();
        for range in ranges {
            let known = before.node(&range.master).cloned();
            let place = next.place(&range.master, || known.unwrap_or_else(|| self.start(&range.master)));
            next.owners[usize::from(range.first)..=usize::from(range.last)].fill(place);
        }
        for (address, node) in &before.nodes {
            let used = node.was_used();
            if used && next.node(address).is_none() {
                next.nodes.push((address.clone(), node.clone()));
            }
        }
        // A node that is in the middle of a change may know no owner: the one of before does.
        for slot in 0..usize::from(SLOTS) {
            if next.owners[slot] == NOBODY
                && let Some((address, node)) = before.nodes.get(usize::from(before.owners[slot]))
            {
                next.owners[slot] = next.place(address, || node.clone());
            }
        }
        let moved = next.owners.iter().zip(&before.owners).filter(|(now, was)| {
            next.nodes.get(usize::from(**now)).map(|node| &node.0)
                != before.nodes.get(usize::from(**was)).map(|node| &node.0)
        });
        let moved = moved.count();
        if moved > 0 {
            info!(moved, masters = next.nodes.len(), "slots of the cluster are served by other nodes");
        }
        self.table.store(Arc::new(next));
    }
}

fn question() -> Cmd {
    let mut question = ::redis::cmd("CLUSTER");
    question.arg("SLOTS");
    question
}

fn random_place(count: usize) -> u16 {
    let count = u128::try_from(count.max(1)).unwrap_or(1);
    u16::try_from(crate::random::u128() % count).unwrap_or(0)
}

/// Reads the table again and again, for as long as the cluster is used.
async fn keep(routing: Arc<Routing>) {
    let mut told = false;
    loop {
        let refreshed = routing.refresh().await;
        if refreshed {
            told = false;
        } else if !std::mem::replace(&mut told, true) {
            warn!(seeds = routing.seeds.len(), "no node of the cluster tells its slots");
        }
        sleep(REFRESH_SPACING).await;
        let whole = refreshed && routing.table.load().is_whole();
        let due = jittered(if whole { REFRESH_EVERY } else { REFRESH_IN_TROUBLE });
        tokio::select! {
            () = sleep(due) => {}
            () = routing.around.trouble.notified() => {}
        }
    }
}
