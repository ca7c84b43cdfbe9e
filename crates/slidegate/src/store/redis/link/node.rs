//! One server under supervision: a connection that is there or not, and a task that sees to it.
//!
//! * A call never waits for a connection: without one it fails at once, with the reason.
//! * A connection is published after it has shown that a master of a known version answers.
//! * It is left when it breaks, when the server says that it is no master any more, when nothing has come back
//!   for a while although calls were sent, when the watchdog's question is not answered, and when Sentinel names
//!   another master. Calls that are under way on it keep it until their deadline.
//! * Every call and every probe moves the node's ladder ([`Condition`]).
//! * Dropping the node ends its tasks.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, Pipeline, RedisError, Value};
use arc_swap::ArcSwapOption;
use slidegate_core::instance::Era;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use super::condition::{Condition, ConditionFigures, Conditions, Standing, number};
use super::figures::Figures;
use super::follow;
use super::masters::{Master, Masters};
use super::open::{self, NotOpened, Opened, SharedConnector, Transport};
use super::pause::{Pause, jittered};
use super::probe::{PROBE_EVERY, Probing};
use super::refusal::{self, Refusal};
use super::startup;
use super::task::OwnedTask;
use crate::error::Fault;
use crate::store::redis::url::Address;

/// Calls under way on one connection. Behind so many, a call waits longer than its deadline: at 100,000 calls in
/// a second, 40 ms.
const CALLS_MAX: usize = 4096;
/// How often the watchdog asks. A demoted master whose socket stays open is left within this time.
const WATCH_EVERY: Duration = Duration::from_millis(250);
/// A connection that has lived for so long was a good one, and the next is tried without a pause.
const GOOD_AFTER: Duration = Duration::from_secs(1);

/// Where a node's server is.
#[derive(Clone)]
pub(super) enum Target {
    /// Always there.
    Fixed(Address),
    /// Where the sentinels say; nowhere as long as none has said it.
    Named(watch::Receiver<Option<Address>>),
}

impl Target {
    /// What the node is called in logs and metrics, whoever is behind it.
    fn name(&self) -> String {
        match self {
            Self::Fixed(address) => address.to_string(),
            Self::Named(_) => "master".to_owned(),
        }
    }

    /// Waits until there is an address.
    async fn address(&mut self) -> Address {
        match self {
            Self::Fixed(address) => address.clone(),
            Self::Named(named) => loop {
                if let Some(address) = named.borrow_and_update().clone() {
                    return address;
                }
                if named.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            },
        }
    }

    /// Waits until the address is another than this one.
    async fn moved_from(&mut self, current: &Address) {
        match self {
            Self::Fixed(_) => std::future::pending().await,
            Self::Named(named) => {
                let elsewhere = |target: &Option<Address>| target.as_ref().is_some_and(|at| at != current);
                if named.wait_for(elsewhere).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

/// Whether a call is counted in the link's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counting {
    /// It is made for somebody's check.
    Traffic,
    /// It is the store's own.
    Aside,
}

/// A server, and its connection when there is one.
pub(super) struct Node {
    shared: Arc<Shared>,
    used: AtomicBool,
    _supervisor: OwnedTask,
    _prober: OwnedTask,
}

/// What all nodes of a link share.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) connector: SharedConnector,
    pub(super) figures: Arc<Figures>,
    pub(super) masters: Arc<Masters>,
    /// Told of every loss: whoever knows where else to look.
    pub(super) trouble: Arc<Notify>,
    /// Nothing came back for so long, although calls were sent.
    pub(super) silence_max: Duration,
    /// Whether the nodes are those of a cluster.
    pub(super) is_cluster: bool,
    /// What is known of how all of them do.
    pub(super) conditions: Arc<Conditions>,
    pub(super) probing: Probing,
}

/// What calls and the supervisor share.
struct Shared {
    around: Surroundings,
    live: ArcSwapOption<Live>,
    /// Why there is no connection, as a place in [`Fault::ALL`].
    why: AtomicU8,
    /// A call has left the connection.
    left: Notify,
    /// A connection was published, or could not be opened.
    tried: Notify,
    has_tried: AtomicBool,
    condition: Condition,
    /// A slot that it serves, for probes: the last one that a call was made for.
    slot: AtomicU16,
}

/// A connection in use.
struct Live {
    address: Address,
    master: Master,
    connection: MultiplexedConnection,
    _driver: OwnedTask,
    calls: AtomicUsize,
    opened: Instant,
    /// When the first call was sent that nothing was received after: microseconds since `opened`, and 0 for none.
    silent_since: AtomicU64,
}

impl Live {
    fn micros(&self, now: Instant) -> u64 {
        // At least 1, as 0 means none.
        u64::try_from(now.duration_since(self.opened).as_micros()).unwrap_or(u64::MAX).max(1)
    }

    fn sent(&self, now: Instant) {
        if self.silent_since.load(Relaxed) == 0 {
            self.silent_since.store(self.micros(now), Relaxed);
        }
    }

    fn heard(&self) {
        if self.silent_since.load(Relaxed) != 0 {
            self.silent_since.store(0, Relaxed);
        }
    }

    fn silence(&self, now: Instant) -> Duration {
        match self.silent_since.load(Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_micros(self.micros(now).saturating_sub(since)),
        }
    }
}

/// A place among the calls of a connection.
struct Place<'a>(&'a Live);

impl<'a> Place<'a> {
    fn take(live: &'a Live) -> Option<Self> {
        let taken = Self(live);
        (live.calls.fetch_add(1, Relaxed) < CALLS_MAX).then_some(taken)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Relaxed);
    }
}

impl Node {
    /// Starts to supervise.
    pub(super) fn start(around: Surroundings, target: Target) -> Self {
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| Shared {
            condition: Condition::new(around.conditions.clone(), target.name(), {
                let shared = shared.clone();
                move || {
                    if let Some(shared) = shared.upgrade() {
                        shared.comes_back();
                    }
                }
            }),
            around,
            slot: AtomicU16::new(0),
            live: ArcSwapOption::empty(),
            why: AtomicU8::new(0),
            left: Notify::new(),
            tried: Notify::new(),
            has_tried: AtomicBool::new(false),
        });
        shared.because(Fault::Disconnected);
        let supervisor = OwnedTask::spawn(supervise(shared.clone(), target));
        let prober = OwnedTask::spawn(probe(shared.clone()));
        Self { shared, used: AtomicBool::new(true), _supervisor: supervisor, _prober: prober }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.shared.live.load().is_some()
    }

    /// How it does.
    pub(super) fn standing(&self) -> Standing {
        self.shared.condition.standing()
    }

    /// A check was not decided that needed it; the era in which that is answered.
    pub(super) fn doubt(&self) -> Era {
        self.shared.condition.doubt()
    }

    /// Its name, and how it did.
    pub(super) fn condition_figures(&self) -> (String, ConditionFigures) {
        self.shared.condition.figures()
    }

    /// Calls for this slot go to it.
    pub(super) fn serves(&self, slot: u16) {
        if self.shared.slot.load(Relaxed) != slot {
            self.shared.slot.store(slot, Relaxed);
        }
    }

    /// Who answers, if there is a connection.
    pub(super) fn master(&self) -> Option<Master> {
        self.shared.live.load().as_ref().map(|live| live.master)
    }

    /// Checks were decided without it, and will be decided with it again.
    pub(super) fn comes_back(&self) {
        self.shared.comes_back();
    }

    /// Where the connection goes to, if there is one.
    #[cfg(test)]
    pub(super) fn connected_to(&self) -> Option<Address> {
        self.shared.live.load().as_ref().map(|live| live.address.clone())
    }

    /// Whether it was asked for since this was called last.
    pub(super) fn was_used(&self) -> bool {
        self.used.swap(false, Relaxed)
    }

    pub(super) fn mark_used(&self) {
        self.used.store(true, Relaxed);
    }

    /// Waits for the outcome of the first try to connect, and no longer than until `deadline`: for nodes that the
    /// cluster names for the first time.
    pub(super) async fn tried(&self, deadline: Instant) {
        let tried = self.shared.tried.notified();
        if !self.shared.has_tried.load(Relaxed) {
            // Whatever the outcome: the call finds out.
            let _ = timeout_at(deadline, tried).await;
        }
    }

    /// Sends a command and waits for its reply until `deadline`. `asking`: the slot is being moved here.
    pub(super) async fn call(
        &self,
        command: &Cmd,
        asking: bool,
        counting: Counting,
        deadline: Instant,
    ) -> Result<Value, Refusal> {
        if counting == Counting::Aside {
            return self.question(command, asking, deadline).await;
        }
        let (figures, begun) = (&self.shared.around.figures, Instant::now());
        if begun >= deadline {
            // The node has no part in that.
            return Err(Refusal::unavailable(Fault::Timeout));
        }
        let outcome = self.shared.exchange(command, asking, deadline, || figures.sent(command)).await;
        self.shared.condition.call_ended(&outcome, begun.elapsed());
        if let Ok(reply) = &outcome {
            figures.received(reply);
        }
        outcome
    }

    /// As [`call`](Self::call), for the link's own questions, which are not counted.
    pub(super) async fn question(
        &self,
        command: &Cmd,
        asking: bool,
        deadline: Instant,
    ) -> Result<Value, Refusal> {
        self.shared.exchange(command, asking, deadline, || {}).await
    }
}

impl Shared {
    async fn exchange(
        &self,
        command: &Cmd,
        asking: bool,
        deadline: Instant,
        sent: impl FnOnce(),
    ) -> Result<Value, Refusal> {
        let Some(live) = self.live.load_full() else {
            return Err(Refusal::unavailable(self.why()));
        };
        let now = Instant::now();
        if now >= deadline {
            return Err(Refusal::unavailable(Fault::Timeout));
        }
        let Some(_place) = Place::take(&live) else {
            return Err(Refusal::unavailable(Fault::QueueFull));
        };
        sent();
        live.sent(now);
        let mut connection = live.connection.clone();
        let exchange = async {
            if asking {
                ask(&mut connection, command).await
            } else {
                connection.send_packed_command(command).await
            }
        };
        let outcome = timeout_at(deadline, exchange).await;
        self.judge(&live, outcome.ok())
    }
}

/// `ASKING` and the command in one piece, so that no other command comes between.
async fn ask(connection: &mut MultiplexedConnection, command: &Cmd) -> Result<Value, RedisError> {
    let mut both = Pipeline::with_capacity(2);
    both.add_command(::redis::cmd("ASKING")).add_command(command.clone());
    let mut replies = connection.send_packed_commands(&both, 0, 2).await?;
    Ok(replies.pop().unwrap_or(Value::Nil))
}

impl Shared {
    fn comes_back(&self) {
        if let Some(live) = &*self.live.load() {
            self.around.masters.comes_back(live.master);
        }
    }

    fn why(&self) -> Fault {
        Fault::ALL[usize::from(self.why.load(Relaxed))]
    }

    fn because(&self, fault: Fault) {
        self.why.store(number(fault), Relaxed);
    }

    /// What came of a call; `None`: nothing by its deadline.
    fn judge(&self, live: &Arc<Live>, outcome: Option<Result<Value, RedisError>>) -> Result<Value, Refusal> {
        let refusal = match outcome {
            Some(Ok(Value::ServerError(error))) => {
                live.heard();
                refusal::of_server(&error)
            }
            Some(Ok(reply)) => {
                live.heard();
                return Ok(reply);
            }
            Some(Err(error)) => Refusal::lost(refusal::of_transport(&error), true),
            None => {
                let silent = live.silence(Instant::now()) >= self.around.silence_max;
                Refusal::lost(Fault::Timeout, silent)
            }
        };
        if let Refusal::Final { error, leave: true } = &refusal {
            self.leave(live, error.fault().unwrap_or(Fault::Disconnected));
        }
        Err(refusal)
    }

    /// Stops using a connection, unless that was done before.
    fn leave(&self, live: &Arc<Live>, fault: Fault) {
        let current = self.live.load();
        if !current.as_ref().is_some_and(|current| Arc::ptr_eq(current, live)) {
            return;
        }
        // The reason first: who finds no connection asks for it.
        self.because(fault);
        let before = self.live.compare_and_swap(&current, None);
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, live)) {
            warn!(node = %live.address, fault = fault.name(), "connection to Redis lost: {fault}");
            self.left.notify_one();
            self.around.trouble.notify_one();
        }
    }

    fn publish(
        &self,
        opened: Opened,
        master: Master,
        address: Address,
    ) -> (Arc<Live>, oneshot::Receiver<()>) {
        if opened.hello.is_cluster && !self.around.is_cluster {
            warn!(node = %address, "this is a node of a cluster: write redis-cluster:// in the store URL");
        }
        self.condition.connected(&address.to_string(), opened.hello.round_trip);
        let Transport { connection, driver, broken } = opened.transport;
        let live = Arc::new(Live {
            address,
            master,
            connection,
            _driver: driver,
            calls: AtomicUsize::new(0),
            opened: Instant::now(),
            silent_since: AtomicU64::new(0),
        });
        // Before anybody can send it anything.
        self.around.masters.opened(master, !self.around.is_cluster);
        self.live.store(Some(live.clone()));
        info!(node = %live.address, "connected to Redis");
        self.has_tried.store(true, Relaxed);
        self.tried.notify_waiters();
        (live, broken)
    }

    /// Notes why there is no connection. Logged when the reason changes, not at every try.
    fn not_opened(&self, address: &Address, error: &NotOpened, last: &mut Option<Fault>) {
        self.because(error.fault);
        if last.replace(error.fault) != Some(error.fault) {
            warn!(node = %address, fault = error.fault.name(), why = %error.why, "no connection to Redis: {}", error.fault);
        }
        self.has_tried.store(true, Relaxed);
        self.tried.notify_waiters();
        self.around.trouble.notify_one();
    }
}

/// Opens, watches, opens again; for as long as the node exists.
async fn supervise(shared: Arc<Shared>, mut target: Target) {
    let mut pause = Pause::new();
    let mut last = None;
    let mut before = false;
    loop {
        let address = target.address().await;
        match open_master(&shared, &target, &address).await {
            Err(error) => shared.not_opened(&address, &error, &mut last),
            Ok((opened, master, at)) => {
                last = None;
                if std::mem::replace(&mut before, true) {
                    shared.around.figures.reconnected();
                }
                let (live, broken) = shared.publish(opened, master, at);
                let fault = watch_over(&shared, &live, broken, &mut target, &address).await;
                shared.leave(&live, fault);
                // That one is known already.
                let _ = timeout(Duration::ZERO, shared.left.notified()).await;
                if live.opened.elapsed() >= GOOD_AFTER {
                    pause.reset();
                }
            }
        }
        tokio::select! {
            () = sleep(pause.next()) => {}
            () = target.moved_from(&address) => pause.reset(),
        }
    }
}

/// A connection to the master at this address, or to the one that it follows if Sentinels have named it.
async fn open_master(
    shared: &Shared,
    target: &Target,
    address: &Address,
) -> Result<(Opened, Master, Address), NotOpened> {
    let connector = &shared.around.connector;
    let (mut opened, mut at) = (connector.open(address).await?, address.clone());
    if !opened.hello.is_master && matches!(target, Target::Named(_)) {
        let asked = timeout(connector.patience(), follow::master_of(&mut opened.transport.connection)).await;
        if let Some(followed) = asked.ok().flatten() {
            (opened, at) = (connector.open(&followed).await?, followed);
        }
    }
    if !opened.hello.is_master {
        return Err(NotOpened { fault: Fault::ReadOnly, why: "it is a replica".to_owned() });
    }
    let master = open::master(&mut opened.transport.connection, connector.patience()).await?;
    Ok((opened, master, at))
}

/// Returns when the connection is not to be used any more, and why.
async fn watch_over(
    shared: &Shared,
    live: &Arc<Live>,
    broken: oneshot::Receiver<()>,
    target: &mut Target,
    named: &Address,
) -> Fault {
    tokio::select! {
        _ = broken => Fault::Disconnected,
        () = shared.left.notified() => shared.why(),
        () = target.moved_from(named) => {
            info!(node = %live.address, "Sentinel names another master");
            Fault::ReadOnly
        }
        fault = question(shared, live) => fault,
    }
}

/// Sends probes while the node is not as it should be.
async fn probe(shared: Arc<Shared>) {
    loop {
        shared.condition.troubled.notified().await;
        let slot = shared.around.is_cluster.then(|| shared.slot.load(Relaxed));
        let command = shared.around.probing.command(slot);
        while !shared.condition.is_normal() {
            sleep(jittered(PROBE_EVERY)).await;
            let begun = Instant::now();
            let outcome = shared.exchange(&command, false, shared.around.probing.deadline(), || {}).await;
            shared.condition.probe_ended(&outcome, begun.elapsed());
        }
    }
}

/// The watchdog: asks now and then, and returns when the answer is wrong or does not come.
async fn question(shared: &Shared, live: &Live) -> Fault {
    let mut connection = live.connection.clone();
    let evicts = startup::evicts(&mut connection, shared.around.connector.patience()).await;
    if let Some(policy) = evicts
        && shared.around.figures.evicts()
    {
        warn!(node = %live.address, policy, "Redis may evict counters, and then admits too much: set maxmemory-policy noeviction");
    }
    loop {
        sleep(WATCH_EVERY).await;
        match timeout(shared.around.connector.patience(), open::still_master(&mut connection)).await {
            Ok(Ok(())) => live.heard(),
            Ok(Err(fault)) => return fault,
            Err(_) => return Fault::Timeout,
        }
    }
}
