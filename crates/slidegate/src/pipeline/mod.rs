//! What stands between the limiter and its store, stacked in this one place.
//!
//! ```text
//! Limiter::check
//!   1. denial cache   denies again what is known to be denied: nothing below is asked
//!   2. resilience     one deadline for all below, and what the policies answer when it passes
//!   3. flights        checks that wait for the same node share one call
//! Store::check
//! ```
//!
//! The order is the design. The denial cache is outermost, since a denial must cost nothing, no timer and no
//! place in a queue, whatever else is going on; what is known to be denied stays so while the store is away.
//! It never remembers what the stage below answers for the store: that has a mode of its own. Resilience
//! comes before flights, so that the deadline counts the wait for a flight as well, and a check that is given
//! up leaves the queue. Flights are next to the store: whatever still has to be asked is asked together.
//!
//! Each stage is itself a [`Store`](crate::store::Store) around another one, so the stack is a type and
//! costs no dispatch, and one that is switched off only passes on. The memory store answers in less time
//! than any stage would save: its stack is empty, and [`Stack`] is the store itself. Stages are stacked here
//! and nowhere else.

#[cfg(feature = "redis")]
#[cfg_attr(not(test), expect(dead_code, reason = "the stages are being built"))]
pub(crate) mod batch;
#[cfg(feature = "redis")]
#[cfg_attr(not(test), expect(dead_code, reason = "the stages are being built"))]
pub(crate) mod denial_cache;
#[cfg(feature = "redis")]
#[cfg_attr(not(test), expect(dead_code, reason = "the stages are being built"))]
pub(crate) mod flights;
#[cfg(feature = "redis")]
#[cfg(test)]
pub(crate) mod model;
#[cfg(feature = "redis")]
#[cfg_attr(not(test), expect(dead_code, reason = "the stages are being built"))]
pub(crate) mod resilient;
#[cfg(feature = "redis")]
#[cfg_attr(not(test), expect(dead_code, reason = "the stages are being built"))]
pub(crate) mod scatter;

/// The stages in front of a store: none, for a store in this process.
pub(crate) type Stack<S> = S;

/// Stacks the stages that a store needs.
pub(crate) const fn stack<S>(store: S) -> Stack<S> {
    store
}
