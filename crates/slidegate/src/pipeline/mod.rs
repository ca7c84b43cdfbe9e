//! What stands between the limiter and a shared store, stacked in this one place.
//!
//! ```text
//! Limiter::check
//!   1. denial cache   answers at once what is known to be denied: nothing below is asked
//!   2. resilience     one deadline; what to answer when the store does not, or when a node is failing
//!   3. scatter        a check whose counters lie in several slots of a cluster, as one
//!   4. flights        checks that wait for the same node share one call
//! Batch::call
//! ```
//!
//! The order is the design. The denial cache is outermost, since a denial must cost nothing, whatever else
//! is going on. The deadline comes next: it counts from the arrival of a check, whatever its time is spent on
//! below. Scatter sits above flights, because its parts are checks like any other: they share calls, and calls
//! on one counter never overtake each other.
//!
//! The upper stages are [`Store`](crate::store::Store)s around another one, so the stack is a type and costs no
//! dispatch; below flights, checks travel together ([`batch`]). The memory store answers in less time than any
//! stage would save: it has none.

pub(crate) mod batch;
pub(crate) mod denial_cache;
pub(crate) mod flights;
#[cfg(test)]
pub(crate) mod model;
pub(crate) mod nodes;
pub(crate) mod resilient;
pub(crate) mod scatter;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use batch::Batch;
use denial_cache::DenialCache;
use flights::Flights;
use nodes::Nodes;
use resilient::Resilient;
use scatter::Scatter;

/// The stages in front of a shared store.
pub(crate) type Stack<B> = DenialCache<Resilient<Scatter<B>, B>>;

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
    let scatter = Scatter::new(flights, runtime);
    DenialCache::new(Resilient::new(scatter, batch, stages.timeout), stages.denial_cache)
}
