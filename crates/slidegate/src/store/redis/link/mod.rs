//! Connections to Redis: to one server, to the master that sentinels name, or to all masters of a cluster.
//!
//! The `redis` crate brings the protocol and its pipelining; connecting, supervising and routing are our own,
//! as its own ways were measured to hang callers past their deadline, to keep stalled sockets, and to write to
//! a demoted master for seconds. What this module is not: it knows no policy, repeats no charge, and decides
//! nothing about what to do without a store.
//!
//! # What every fault comes to
//! `Unavailable` was certainly not executed; `Lost` may have been, or may yet be. "Left" means that the
//! connection is dropped and another is opened at once, to whoever is the master then.
//!
//! | what happens | outcome | connection |
//! |---|---|---|
//! | there is none (refused, black hole, half-open, wrong password, ...) | `Unavailable`, why it could not be opened | opened again and again, 10 to 200 ms apart |
//! | more than 4096 calls wait on it | `Unavailable(QueueFull)` | kept |
//! | no reply by the deadline | `Lost(Timeout)` | left after a silence of 100 ms (of 4 timeouts, if longer), or when the watchdog is not answered |
//! | it breaks: reset, end in the middle of a reply | `Lost(Disconnected)` | left |
//! | a reply that is no RESP | `Lost(Protocol)` | left |
//! | READONLY | `Unavailable(ReadOnly)` | left |
//! | LOADING | `Unavailable(Loading)` | left |
//! | MASTERDOWN | `Unavailable(MasterDown)` | left |
//! | NOAUTH, WRONGPASS | `Unavailable(NotAuthenticated)` | left |
//! | CLUSTERDOWN, a slot without owner, TRYAGAIN up to the deadline, redirections without end | `Unavailable(ClusterDown)` | kept; the table of slots is read anew |
//! | OOM | `Unavailable(OutOfMemory)` | kept |
//! | MISCONF, NOREPLICAS | `Unavailable(WritesRefused)` | kept |
//! | BUSY | `Unavailable(Busy)` | kept |
//! | NOPERM | `Unavailable(NoPermission)`; `Lost` from within a script | kept |
//! | WRONGTYPE | `Unavailable(ForeignKey)`; `Lost` from within a script | kept |
//! | NOSCRIPT | the text is sent, once | kept |
//! | MOVED, ASK | followed within the deadline | kept |
//! | a release before 6.2 | `Unavailable(TooOld)` | tried again: it may be upgraded |
//! | any other error | `Lost(Protocol)` | kept |
//!
//! How a node does is the step of its ladder ([`condition`]), which its calls move, and probes ([`probe`]) while it is
//! not as it should be. Calls are made whatever the step: whoever makes them asks for it first.
//!
//! Nothing but NOSCRIPT, MOVED, ASK and TRYAGAIN is tried again here; each of them means that nothing was done.

mod cluster;
mod condition;
mod figures;
mod follow;
mod masters;
mod node;
mod open;
mod pause;
mod probe;
mod refusal;
mod sentinel;
mod slots;
mod startup;
mod task;
pub(crate) mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Value};
use slidegate_core::instance::Era;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use self::cluster::Cluster;
use self::figures::Figures;
use self::node::{Counting, Node, Surroundings, Target};
use self::open::Connector;
use self::probe::Probing;
use self::refusal::Refusal;
use self::sentinel::Sentinels;
use super::config::{OnSlowStore, RedisConfig, RedisConfigError};
use super::url::Topology;
use crate::error::{Fault, StoreError};

pub(crate) use self::condition::{ConditionFigures, Conditions, Standing};
pub(crate) use self::figures::LinkFigures;
pub(crate) use self::masters::{Master, Masters, OwnTime, Told};
pub(crate) use self::pause::jittered;
pub(crate) use self::task::OwnedTask;

/// A script with the name that servers know it by.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// SHA-1 of the text, 40 hex digits.
    pub(crate) sha: String,
    /// What EVAL is given.
    pub(crate) text: String,
}

/// Connections to everything that a store's URL names. Dropping it ends its tasks and connections.
pub(crate) struct Link {
    figures: Arc<Figures>,
    conditions: Arc<Conditions>,
    masters: Arc<Masters>,
    route: Route,
}

enum Route {
    One { node: Node, _sentinels: Option<Sentinels> },
    Cluster(Cluster),
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("figures", &self.figures()).finish_non_exhaustive()
    }
}

impl Link {
    /// Starts to connect. Whether a server is there shows later.
    pub(crate) fn start(config: &RedisConfig) -> Result<Self, RedisConfigError> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(RedisConfigError::NoRuntime);
        }
        let figures = Arc::new(Figures::new());
        let masters = Masters::new(OwnTime::begin());
        let slow_is_away = config.slow_answer() == OnSlowStore::Local;
        let conditions =
            Arc::new(Conditions::new(*config.ladder_thresholds(), slow_is_away, masters.clone()));
        let patience = patience(config);
        let tls = config.authenticated()?;
        let connector = Arc::new(Connector::new(tls.clone(), config.login()?, config.database(), patience));
        let around = Surroundings {
            connector: connector.clone(),
            figures: figures.clone(),
            masters: masters.clone(),
            trouble: Arc::new(Notify::new()),
            silence_max: silence_max(config),
            is_cluster: matches!(config.topology(), Topology::Cluster(_)),
            conditions: conditions.clone(),
            probing: Probing {
                prefix: config.key_prefix().to_owned(),
                timeout: config.check_timeout().into(),
            },
        };
        let route = match config.topology() {
            Topology::Single(address) => {
                Route::One { node: Node::start(around, Target::Fixed(address.clone())), _sentinels: None }
            }
            Topology::Sentinel { sentinels, master } => {
                let to_sentinels = Arc::new(Connector::new(tls, config.login_of_sentinels(), 0, patience));
                let (sentinels, named) =
                    Sentinels::start(&to_sentinels, &connector, sentinels, master, &around.trouble);
                Route::One { node: Node::start(around, Target::Named(named)), _sentinels: Some(sentinels) }
            }
            Topology::Cluster(seeds) => Route::Cluster(Cluster::start(around, seeds)),
        };
        Ok(Self { figures, conditions, masters, route })
    }

    /// Whether keys of different slots need calls of their own.
    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self.route, Route::Cluster(_))
    }

    /// Which masters answer, and their roll calls.
    pub(crate) const fn masters(&self) -> &Arc<Masters> {
        &self.masters
    }

    /// Who serves a slot; `None` without a connection.
    pub(crate) fn master(&self, slot: u16) -> Option<Master> {
        match &self.route {
            Route::One { node, .. } => node.master(),
            Route::Cluster(cluster) => cluster.master(slot),
        }
    }

    /// The slot of a key.
    pub(crate) fn slot(name: &[u8]) -> u16 {
        slots::of(name)
    }

    /// Runs a script on keys of one slot. Nothing of this outlasts `deadline`, unless the server still executes
    /// what was sent.
    pub(crate) async fn script(
        &self,
        slot: u16,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        self.finish(self.run(slot, script, keys, args, Counting::Traffic, deadline).await)
    }

    /// As [`script`](Self::script), for what is not part of the traffic and not counted with it.
    pub(crate) async fn script_aside(
        &self,
        slot: u16,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        self.run(slot, script, keys, args, Counting::Aside, deadline).await.map_err(error_of)
    }

    /// By name, and once by its text if the server does not know it.
    async fn run(
        &self,
        slot: u16,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
        counting: Counting,
        deadline: Instant,
    ) -> Result<Value, Refusal> {
        let by_name = packed("EVALSHA", &script.sha, keys, args);
        match self.exchange(slot, &by_name, counting, deadline).await {
            Err(Refusal::NoScript) => {
                let by_text = packed("EVAL", &script.text, keys, args);
                self.exchange(slot, &by_text, counting, deadline).await
            }
            outcome => outcome,
        }
    }

    /// As [`command`](Self::command), for what is not part of the traffic and not counted with it.
    pub(crate) async fn aside(&self, slot: u16, cmd: &Cmd, deadline: Instant) -> Result<Value, StoreError> {
        self.exchange(slot, cmd, Counting::Aside, deadline).await.map_err(error_of)
    }

    /// Runs a command on a key of this slot.
    pub(crate) async fn command(&self, slot: u16, cmd: &Cmd, deadline: Instant) -> Result<Value, StoreError> {
        self.finish(self.exchange(slot, cmd, Counting::Traffic, deadline).await)
    }

    /// What went over it so far, and whether calls can be sent now.
    pub(crate) fn figures(&self) -> LinkFigures {
        let connected = match &self.route {
            Route::One { node, .. } => node.is_connected(),
            Route::Cluster(cluster) => cluster.is_connected(),
        };
        self.figures.read(connected)
    }

    /// How all nodes do together.
    pub(crate) const fn conditions(&self) -> &Arc<Conditions> {
        &self.conditions
    }

    /// How the node does that calls for this slot go to; `None` if nobody serves it.
    pub(crate) fn standing(&self, slot: u16) -> Option<Standing> {
        match &self.route {
            Route::One { node, .. } => Some(node.standing()),
            Route::Cluster(cluster) => cluster.node(slot).map(|node| node.standing()),
        }
    }

    /// A check was not decided that needed the node of this slot; the era in which it is answered.
    pub(crate) fn doubt(&self, slot: u16) -> Option<Era> {
        match &self.route {
            Route::One { node, .. } => Some(node.doubt()),
            Route::Cluster(cluster) => cluster.node(slot).map(|node| node.doubt()),
        }
    }

    /// Every node by its name, and how it did.
    pub(crate) fn condition_figures(&self) -> Vec<(String, ConditionFigures)> {
        match &self.route {
            Route::One { node, .. } => vec![node.condition_figures()],
            Route::Cluster(cluster) => cluster.nodes().iter().map(|node| node.condition_figures()).collect(),
        }
    }

    /// Checks were decided without the store, for another reason than how its nodes do, and will be decided with it
    /// again.
    pub(crate) fn comes_back(&self) {
        match &self.route {
            Route::One { node, .. } => node.comes_back(),
            Route::Cluster(cluster) => cluster.nodes().iter().for_each(|node| node.comes_back()),
        }
    }

    /// Asks every node that there is a connection to, one after another.
    pub(crate) async fn ask_all(&self, command: &Cmd, patience: Duration) -> Vec<Value> {
        let ask = async |node: &Node| node.question(command, false, Instant::now() + patience).await.ok();
        match &self.route {
            Route::One { node, .. } => ask(node).await.into_iter().collect(),
            Route::Cluster(cluster) => {
                let mut answers = Vec::new();
                for node in cluster.nodes() {
                    answers.extend(ask(&node).await);
                }
                answers
            }
        }
    }

    /// Where calls go now; `None` without a connection, and of a cluster.
    #[cfg(test)]
    fn connected_to(&self) -> Option<String> {
        match &self.route {
            Route::One { node, .. } => node.connected_to().map(|address| address.to_string()),
            Route::Cluster(_) => None,
        }
    }

    /// Waits until calls can be sent everywhere, or until `deadline`, and says which of the two it was.
    pub(crate) async fn connected(&self, deadline: Instant) -> bool {
        /// Only starts and tests wait here.
        const LOOK_EVERY: Duration = Duration::from_millis(5);
        loop {
            if self.figures().connected {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn exchange(
        &self,
        slot: u16,
        command: &Cmd,
        counting: Counting,
        deadline: Instant,
    ) -> Result<Value, Refusal> {
        match &self.route {
            Route::One { node, .. } => node.call(command, false, counting, deadline).await,
            Route::Cluster(cluster) => cluster.call(slot, command, counting, deadline).await,
        }
    }

    fn finish(&self, outcome: Result<Value, Refusal>) -> Result<Value, StoreError> {
        outcome.map_err(|refusal| {
            let error = error_of(refusal);
            self.figures.failed(&error);
            error
        })
    }
}

/// What a refusal comes to that was not got over.
fn error_of(refusal: Refusal) -> StoreError {
    match refusal {
        Refusal::Final { error, .. } => error,
        // A cluster behind the URL of a single server.
        Refusal::Moved(..) | Refusal::Ask(_) | Refusal::TryAgain => {
            StoreError::Unavailable { fault: Fault::ClusterDown }
        }
        // A server that forgets a script between two commands, or one that was given the wrong name.
        Refusal::NoScript => StoreError::Unavailable { fault: Fault::Protocol },
    }
}

fn packed(command: &str, script: &str, keys: &[&[u8]], args: &[&[u8]]) -> Cmd {
    /// `EVALSHA`, the script and the number of keys.
    const WORDS: usize = 3;
    let bytes: usize = keys.iter().chain(args).map(|word| word.len()).sum();
    let mut packed = Cmd::with_capacity(WORDS + keys.len() + args.len(), bytes + script.len() + 16);
    packed.arg(command).arg(script).arg(keys.len());
    for word in keys.iter().chain(args) {
        packed.arg(word);
    }
    packed
}

/// How long a connection may take to open, and again to answer; longer for stores that are far away.
fn patience(config: &RedisConfig) -> Duration {
    let timeout = Duration::from(config.check_timeout());
    (timeout * 10).clamp(Duration::from_millis(300), Duration::from_secs(3))
}

/// How long nothing may come back before a connection counts as stalled: several timeouts in a row, and more
/// than a server may pause to fork.
fn silence_max(config: &RedisConfig) -> Duration {
    let timeout = Duration::from(config.check_timeout());
    (timeout * 4).clamp(Duration::from_millis(100), Duration::from_secs(2))
}

#[cfg(test)]
mod tests;
