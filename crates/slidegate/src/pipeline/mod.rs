//! What stands between the limiter and a shared store, stacked in this one place.
//!
//! ```text
//! Limiter::check
//!   1. denial cache   answers at once what is known to be denied: nothing below is asked
//!   2. resilience     one deadline; what to answer when the store does not, or when a node is failing
//!   3. shards         one of the parts that a counter is split into, and another if that is full
//!   4. leases         spends what this instance took ahead; takes ahead what it will need next
//!   5. scatter        a check whose counters lie in several slots of a cluster, as one
//!   6. flights        checks that wait for the same node share one call
//! Batch::call
//! ```
//!
//! The order is the design. The denial cache is outermost, since a denial must cost nothing, whatever else
//! is going on. The deadline comes next: it counts from the arrival of a check, whatever its time is spent on
//! below, waiting for a lease included; and while a node fails, nothing may be spent that others can't see, so
//! resilience decides before leases are asked. Shards come under both, which know nothing of them: what is decided
//! without the store is decided of whole limits. Behind shards is a denial cache of their own, since one shard is full
//! while another is not; checks that are not split go past it. Leases sit above scatter and flights, because a lease is
//! a check like any other to them: it shares calls, and keeps its place in the line of its counters. Scatter sits above
//! flights, because its parts are checks like any other: they share calls, and calls on one counter never overtake each
//! other.
//!
//! The upper stages are [`Store`](crate::store::Store)s around another one, so the stack is a type and costs no
//! dispatch; below flights, checks travel together ([`batch`]). The memory store answers in less time than any
//! stage would save: it has none.

pub(crate) mod batch;
pub(crate) mod denial_cache;
pub(crate) mod flights;
pub(crate) mod leases;
#[cfg(test)]
pub(crate) mod model;
pub(crate) mod nodes;
pub(crate) mod resilient;
pub(crate) mod scatter;
pub(crate) mod shards;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use batch::Batch;
use denial_cache::DenialCache;
use flights::Flights;
use leases::Leases;
use nodes::Nodes;
use resilient::Resilient;
use scatter::Scatter;
use shards::Shards;

/// The stages in front of a shared store.
pub(crate) type Stack<B> = DenialCache<Resilient<Shards<Leases<B>, B>, B>>;

/// What is chosen about the stages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stages {
    /// A check's whole time with the store.
    pub(crate) timeout: Duration,
    /// Whether checks share calls.
    pub(crate) flights: bool,
    /// Whether denials are remembered.
    pub(crate) denial_cache: bool,
}

/// Stacks the stages. `runtime` runs the calls.
pub(crate) fn stack<B: Batch + Nodes>(batch: B, stages: Stages, runtime: Handle) -> Stack<B> {
    let batch = Arc::new(batch);
    let flights = Flights::new(batch.clone(), runtime.clone(), stages.flights, stages.timeout);
    let scatter = Scatter::new(flights, runtime.clone());
    let leases = Leases::new(scatter, runtime);
    let shards = Shards::new(leases, batch.clone(), stages.denial_cache);
    DenialCache::new(Resilient::new(shards, batch, stages.timeout), stages.denial_cache)
}
