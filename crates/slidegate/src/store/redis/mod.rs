//! Counters in Redis or Valkey, shared by all instances.
//!
//! One script call decides a check, or as many as wait for the same server (the pipeline's flights): all
//! limits of several policies, all or nothing, at the server's time. What is not here: what to answer when the
//! server does not, which the policies say ([`OnStoreFailure`](crate::policy::OnStoreFailure)).
//!
//! | module | |
//! |---|---|
//! | `config`, `url` | where the server is, and how it is asked |
//! | `link` | connections: one server, sentinels, a cluster |
//! | `names`, `scripts`, `wire` | what counters are called; the Lua; the bytes of calls and replies |
//! | `heartbeat` | who else shares the counters, and which format of them everybody can read |
//! | `nodes`, `skew` | what it takes to decide without the server; how far the clocks are from each other |
//! | `ledgers`, `records` | what this instance remembers of its grants; what the server remembers of a reservation |
//! | `roll_calls` | what it does after a master change: puts back what was lost, and stays below what it held |
//! | `calls` | puts these together: checks become a call, its reply answers |

use std::sync::Arc;
use std::time::Duration;

use slidegate_core::decision::Cost;
use slidegate_core::instance::ladder::{Step, Transition};
use slidegate_core::time::Millis;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::{Answer, Check, Counter, ReservationId, Settled, Store};
use crate::error::{Fault, StoreError};
use crate::pipeline::{Stack, Stages, stack};

#[cfg(feature = "test-util")]
#[doc(hidden)]
pub mod bench;
mod calls;
mod config;
mod heartbeat;
mod ledgers;
mod link;
mod names;
mod nodes;
mod records;
mod roll_calls;
mod scripts;
mod skew;
#[cfg(test)]
mod twins;
mod url;
mod wire;

pub use config::{OnSlowStore, RedisConfig, RedisConfigError, Retry, Tls};

use calls::Calls;
use link::ConditionFigures;

/// How long a server may take to describe itself: it is asked by people and programs that watch, never by checks.
const INFO_TIME: Duration = Duration::from_secs(1);

/// Counters in Redis or Valkey. Cheap to clone: clones share connections and what they remember.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use slidegate::store::redis::{RedisConfig, RedisStore};
/// use slidegate::{Limiter, Policy};
///
/// let store = RedisStore::start(&RedisConfig::parse("redis://127.0.0.1:6379/0")?)?;
/// let limiter = Limiter::builder()
///     .policy(Policy::builder("orders").limits("5000/s").build()?)
///     .store(store)
///     .build()?;
/// let decision = limiter.check("orders", &[]).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RedisStore {
    stack: Arc<Stack<Calls>>,
}

/// What a store has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisFigures {
    /// Whether calls can be sent now.
    pub connected: bool,
    /// Whether the store failed a moment ago, so that policies say what is answered.
    pub failing: bool,
    /// Whether the server may evict counters (its `maxmemory-policy` is not `noeviction`).
    pub evicts: bool,
    /// Instances that share the counters, this one included, as of the last heartbeat; 0 before the first.
    pub instances: u32,
    /// The lowest format of counters that any of them has introduced: while it is older than this release's, that is
    /// what is written. 0 before the first heartbeat.
    pub formats: u8,
    /// Checks that reached the store's queue.
    pub checks: u64,
    /// Calls to the server.
    pub calls: u64,
    /// Bytes of them.
    pub bytes_sent: u64,
    /// Bytes of their replies.
    pub bytes_received: u64,
    /// Checks that an equal one in the same call stood for.
    pub coalesced: u64,
    /// Checks denied from the denial cache.
    pub cached_denials: u64,
    /// Calls that leased permits for the next moment.
    pub lease_calls: u64,
    /// Checks allowed from a lease.
    pub leased: u64,
    /// Checks denied without a call, since a lease had just found the limit reached.
    pub leased_denials: u64,
    /// Checks that were leased and given back unspent.
    pub leases_given_back: u64,
    /// Checks of several slots of a cluster.
    pub scattered: u64,
    /// Counters that were given something back: by a check whose caller had gone, or of which another slot
    /// refused its part.
    pub given_back: u64,
    /// Counters of which it is not known whether they were. It ends with its window then.
    pub unconfirmed: u64,
    /// Checks allowed without the store.
    pub allowed_without: u64,
    /// Checks denied without the store.
    pub denied_without: u64,
    /// Connections opened in place of lost ones.
    pub reconnects: u64,
    /// Roll calls that have begun: after another master answered, or after a time without the store.
    pub roll_calls: u64,
    /// Whether this instance is in one.
    pub in_roll_call: bool,
    /// This machine's clock less the server's, in milliseconds; 0 where the server's decides.
    pub clock_skew_ms: i64,
    /// Checks that failed, or that were not put to a node that fails so, in the order of [`Fault::ALL`].
    pub faults: [u64; Fault::ALL.len()],
}

/// How a node of the store does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeFigures {
    /// Its address; `master` where sentinels say who that is.
    pub name: String,
    /// Where its ladder stands.
    pub step: Step,
    /// How often it took each step, in the order of [`Transition::ALL`].
    pub transitions: [u64; Transition::ALL.len()],
    /// How long it stood at each, in the order of [`Step::ALL`].
    pub spent: [Millis; Step::ALL.len()],
}

impl RedisStore {
    /// Starts a store in the tokio runtime at hand. Whether a server is there shows later: until then, policies
    /// say what is answered.
    ///
    /// # Errors
    /// [`RedisConfigError`] for what can never work: no runtime, certificates that can't be used.
    pub fn start(config: &RedisConfig) -> Result<Self, RedisConfigError> {
        let runtime = Handle::try_current().map_err(|_| RedisConfigError::NoRuntime)?;
        let time = config.check_retry().map_or(config.check_timeout(), |retry| retry.budget);
        let stages = Stages {
            timeout: Duration::from(time.max(config.check_timeout())),
            flights: config.has_flights(),
            denial_cache: config.has_denial_cache(),
        };
        Ok(Self { stack: Arc::new(stack(Calls::start(config, runtime.clone())?, stages, runtime)) })
    }

    /// Waits until calls can be sent, or until `most` has passed; says which of the two it was. Nothing has to
    /// wait for it.
    pub async fn connected(&self, most: Millis) -> bool {
        self.calls().connected(Instant::now() + most.into()).await
    }

    /// What the server says of its own work: the text of `INFO everything`. In a cluster that of one master.
    ///
    /// # Errors
    /// [`StoreError`] when it does not answer within a second.
    pub async fn info(&self) -> Result<String, StoreError> {
        self.calls().info(Instant::now() + INFO_TIME).await
    }

    /// How the nodes of the store do, and did: one server or the master, or every master of a cluster.
    pub fn nodes(&self) -> Vec<NodeFigures> {
        let figures = self.calls().condition_figures().into_iter();
        figures
            .map(|(name, ConditionFigures { step, transitions, spent })| NodeFigures {
                name,
                step,
                transitions,
                spent,
            })
            .collect()
    }

    /// What it has done so far.
    pub fn figures(&self) -> RedisFigures {
        let resilient = self.stack.inner();
        let (leases, without) = (resilient.inner().inner(), resilient.figures());
        let scatter = leases.scatter().figures();
        let flights = leases.scatter().flights().figures();
        let (leases, shards) = (leases.figures(), resilient.inner().figures());
        let (link, instances) = (self.calls().link_figures(), self.calls().instances());
        RedisFigures {
            connected: link.connected,
            failing: without.failing,
            evicts: link.evicts,
            instances: instances.count,
            formats: instances.format,
            checks: flights.checks,
            calls: link.calls,
            bytes_sent: link.bytes_out,
            bytes_received: link.bytes_in,
            coalesced: flights.coalesced,
            cached_denials: self.stack.figures().hits + shards.hits,
            lease_calls: leases.calls,
            leased: leases.spent,
            leased_denials: leases.denied,
            leases_given_back: leases.given_back,
            scattered: scatter.scattered,
            given_back: flights.given_back,
            unconfirmed: flights.unconfirmed,
            allowed_without: without.allowed,
            denied_without: without.denied,
            reconnects: link.reconnects,
            roll_calls: self.calls().link.masters().begun_so_far(),
            in_roll_call: !self.calls().link.masters().is_calm(),
            clock_skew_ms: self.calls().skew_ms(),
            faults: without.faults,
        }
    }

    /// Gives back what is leased and not spent, and takes leave of the other instances, within `most`: to be called
    /// when no more checks come. Says whether all of it was done. What could not be given back ends with its window,
    /// and the instance is taken for gone after five seconds.
    ///
    /// Checks that come all the same are decided as ever; they lease nothing.
    pub async fn close(&self, most: Millis) -> bool {
        let leave = async {
            self.stack.inner().inner().inner().close().await;
            self.calls().leave().await
        };
        tokio::time::timeout(most.into(), leave).await.unwrap_or(false)
    }

    fn calls(&self) -> &Calls {
        self.stack.inner().inner().inner().scatter().flights().batch()
    }
}

impl Store for RedisStore {
    async fn check(&self, check: &Check<'_>) -> Result<Answer, StoreError> {
        self.stack.check(check).await
    }

    async fn settle(&self, id: ReservationId, actual: Cost) -> Result<Settled, StoreError> {
        self.stack.settle(id, actual).await
    }

    async fn reset(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        self.stack.reset(counter).await
    }
}
