//! A deadline for everything below, and an answer for when the store does not give one.
//!
//! The time that a check may take is counted from its arrival here, whatever it is spent on: waiting for a
//! flight, a queue, a retry, the network. When it is over, or when the store is away, the policies of the
//! check say what to answer ([`OnStoreFailure`](crate::policy::OnStoreFailure)): denied if any enforced one
//! says so, else allowed. Shadow policies have no say, since they deny nobody.
//!
//! # What is said without the store
//! [`Mode::DenyAll`] or [`Mode::AllowAll`], and the limits themselves. Nobody counted, so nothing is claimed
//! about permits or times, and no limit is said to be violated.
//!
//! # What is an error instead
//! What asks for numbers, or changes them by name: peeks, settling and resets. They are bounded by the same
//! deadline. [`StoreError::ReservationsFull`] is an answer of the store and passes.
//!
//! # Reservations
//! One that is allowed without the store can't be settled later: [`Settled::Unknown`]. Should its call
//! have been executed after all, it can.
//!
//! # What it is not
//! No breaker: each check asks the store, and waits for its deadline while the store is silent.
//!
//! # Invariants
//! * A check is answered within the deadline, if the runtime has time to run it.
//! * What was asked is dropped at the deadline: the stages below take back what such a check was granted, or
//!   leave it charged. Too few pass then, never too many.
//! * The log has one line when the store begins to fail and one when it is back, not one for each check.
//!
//! It needs tokio's timer.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slidegate_core::decision::{Cost, Mode, Outcome};
use tokio::time::Instant;

use crate::error::{Fault, StoreError};
use crate::store::{Answer, Certainty, Charge, Check, Counter, ReservationId, Settled, Store};

mod health;

use health::{Change, Health};

/// What a check that was dropped at its deadline came to: it may have been sent.
const TOO_LATE: StoreError = StoreError::Lost { fault: Fault::Timeout };

/// A store that always answers a check in time.
#[derive(Debug)]
pub(crate) struct Resilient<S> {
    inner: S,
    timeout: Duration,
    started: Instant,
    health: Health,
    faults: [AtomicU64; Fault::ALL.len()],
    allowed: AtomicU64,
    denied: AtomicU64,
}

/// What the stage has seen of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResilientFigures {
    /// Whether the store failed a moment ago.
    pub(crate) failing: bool,
    /// Calls that failed, in the order of [`Fault::ALL`].
    pub(crate) faults: [u64; Fault::ALL.len()],
    /// Checks allowed without the store.
    pub(crate) allowed: u64,
    /// Checks denied without the store.
    pub(crate) denied: u64,
}

impl<S: Store> Resilient<S> {
    /// Bounds what is asked of `inner`.
    pub(crate) fn new(inner: S, timeout: Duration) -> Self {
        Self {
            inner,
            timeout,
            started: Instant::now(),
            health: Health::default(),
            faults: [const { AtomicU64::new(0) }; Fault::ALL.len()],
            allowed: AtomicU64::new(0),
            denied: AtomicU64::new(0),
        }
    }

    /// The store below, for its own figures.
    pub(crate) const fn inner(&self) -> &S {
        &self.inner
    }

    /// The figures since the start.
    pub(crate) fn figures(&self) -> ResilientFigures {
        ResilientFigures {
            failing: self.health.is_failing(),
            faults: self.faults.each_ref().map(|count| count.load(Ordering::Relaxed)),
            allowed: self.allowed.load(Ordering::Relaxed),
            denied: self.denied.load(Ordering::Relaxed),
        }
    }

    /// What was asked, or that it came too late.
    async fn in_time<T>(
        &self,
        asked: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let result = tokio::time::timeout(self.timeout, asked).await.unwrap_or(Err(TOO_LATE));
        match result.as_ref().err().and_then(StoreError::fault) {
            Some(fault) => self.failed(fault),
            None => self.answered(),
        }
        result
    }

    fn failed(&self, fault: Fault) {
        self.faults[fault as usize].fetch_add(1, Ordering::Relaxed);
        if self.health.failed(self.now_us()) == Some(Change::Failing) {
            tracing::warn!(fault = fault.name(), "the store fails: {fault}; policies say what is answered");
        }
    }

    fn answered(&self) {
        if !self.health.is_failing() {
            return;
        }
        if let Some(Change::Recovered { after }) = self.health.answered(self.now_us()) {
            let figures = self.figures();
            tracing::info!(
                failed_for_ms = after.get(),
                allowed_without = figures.allowed,
                denied_without = figures.denied,
                "the store answers again"
            );
        }
    }

    /// Microseconds since the start, on a clock that never steps.
    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The answer that the policies of a check give for the store.
    fn without_store(&self, check: &Check<'_>) -> Answer {
        let denies = check.charges.iter().any(|charge| charge.counter.policy.denies_without_store());
        let (granted, mode, count) = if denies {
            (0, Mode::DenyAll, &self.denied)
        } else {
            (check.times, Mode::AllowAll, &self.allowed)
        };
        count.fetch_add(check.times.into(), Ordering::Relaxed);
        let outcomes = check.charges.iter().map(unknown).collect();
        Answer { granted, outcomes, mode, certainty: Certainty::Exact }
    }
}

/// What is known about a limit that nobody counted.
fn unknown(charge: &Charge<'_>) -> Outcome {
    Outcome { limit: charge.counter.limit.limit().capacity(), ..Outcome::default() }
}

/// Whether a check asks for numbers only.
fn is_peek(check: &Check<'_>) -> bool {
    check.charges.iter().all(|charge| charge.cost == 0)
}

impl<S: Store> Store for Resilient<S> {
    async fn check(&self, check: &Check<'_>) -> Result<Answer, StoreError> {
        let result = self.in_time(self.inner.check(check)).await;
        let away = result.as_ref().is_err_and(|error| error.fault().is_some());
        if away && !is_peek(check) { Ok(self.without_store(check)) } else { result }
    }

    async fn settle(&self, id: ReservationId, actual: Cost) -> Result<Settled, StoreError> {
        self.in_time(self.inner.settle(id, actual)).await
    }

    async fn reset(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        self.in_time(self.inner.reset(counter)).await
    }
}

#[cfg(test)]
mod tests;
