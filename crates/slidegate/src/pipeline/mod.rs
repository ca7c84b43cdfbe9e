//! What stands between the limiter and its store, stacked in this one place.
//!
//! ```text
//! Limiter::check
//!   1. denial cache   answers at once what is known to be denied: nothing below is asked
//!   2. leases         spend permits that this instance holds: no call while they last
//!   3. flights        checks that wait for the same node share one call
//!   4. resilience     one deadline, breaker, ladder: what to answer when the store does not
//! Store::check
//! ```
//!
//! The order is the design. The denial cache is outermost, since a denial must cost nothing, whatever else
//! is going on. Leases come before flights: a permit in hand needs no call to share. Resilience is
//! innermost, next to the store: it sees calls, not checks, so that one slow call counts once, however
//! many checks wait for it.
//!
//! Each stage is itself a [`Store`](crate::store::Store) around another one, so the stack is a type and
//! costs no dispatch. The memory store answers in less time than any stage would save: its stack is empty,
//! and [`Stack`] is the store itself. Stages arrive with the shared stores; they are stacked here and
//! nowhere else.

#[cfg(feature = "redis")]
#[expect(dead_code, reason = "the stages are being built")]
pub(crate) mod batch;

/// The stages in front of a store: none, for a store in this process.
pub(crate) type Stack<S> = S;

/// Stacks the stages that a store needs.
pub(crate) const fn stack<S>(store: S) -> Stack<S> {
    store
}
