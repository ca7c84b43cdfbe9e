//! Denies again what the store denied, for as long as that is certain: an attack on one key costs the store
//! next to nothing.
//!
//! A denial comes with the exact time until its cost fits. Until then the same counters, under the same
//! limits, at the same cost or more, are denied here (`mode: cached`), whatever anybody else does: others
//! can take permits, which only makes the wait longer.
//!
//! # Time
//! Two readings of this instance's clock bound the store's instant, which is not known here. The denial is
//! repeated until its time has passed since the question was *asked*: sooner than at the store. The wait
//! that is told is counted from when it was *answered*: later than at the store. So nothing is denied here
//! that the store would have allowed, and who waits as told passes, if nobody else took it since.
//!
//! # What is told
//! `retry_after` and `reset_after` count down, rounded up and at least 1 ms. All other numbers are those of
//! the denial.
//!
//! # Wrong refusals
//! Only after permits were given back that this instance has not heard of: a refund or a reset through
//! another one, a check that was cancelled on its way, a server's clock that stepped forward. Then for at
//! most [`BOUND`], or [`BOUND_RETURNING`] if a policy of the check leases, or was seen to reserve on this instance: that
//! is how it is known that its permits come back. What is settled or reset through this instance is
//! forgotten at once; a changed limit is another limit. Time in which the machine is suspended does not count,
//! so the bound may last that much longer on the wall clock.
//!
//! # What is not repeated
//! Peeks; checks with a policy that counts denied requests; refusals of shadow policies alone; whatever was
//! not decided by the counters (any mode but `normal`; what a lease denies is remembered by the lease); refusals that are not [exact](Certainty::Exact). A reservation is denied like any check.
//!
//! # Costs
//! A cost above one that was denied is denied as well, but its wait is longer and not known here. So it is
//! asked for, and remembered beside the other, up to [`COSTS_MAX`](denials::COSTS_MAX) costs; past that it is
//! told the wait of the next larger cost, which is enough and may be more than it needs. Who raises the cost
//! with each request still reaches the store: there is no larger one.

use std::sync::atomic::{AtomicU64, Ordering};

use slidegate_core::decision::{Cost, Mode};
use slidegate_core::time::Millis;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::policy::Lease;
use crate::store::{Answer, Certainty, Check, Counter, ReservationId, Settled, Store};

mod denials;
pub(crate) mod names;
mod returns;

use denials::{Denials, Found, Question};
use names::Naming;
use returns::Returns;

/// The longest that a denial is repeated: so long may a refund elsewhere go unnoticed. Against an attack on
/// one key it leaves one call a second.
pub(crate) const BOUND: Millis = Millis(1000);

/// The same for policies whose permits are given back as a rule.
pub(crate) const BOUND_RETURNING: Millis = Millis(50);

/// A store in front of which denials are remembered.
#[derive(Debug)]
pub(crate) struct DenialCache<S> {
    inner: S,
    /// `None`: switched off.
    memory: Option<Memory>,
}

/// What the stage has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DenialFigures {
    /// Checks denied here: calls that the store was spared.
    pub(crate) hits: u64,
    /// Denials of the store that were remembered.
    pub(crate) remembered: u64,
    /// Denials that are held now.
    pub(crate) entries: u64,
}

/// Everything remembered, and the clock that it goes by.
#[derive(Debug)]
struct Memory {
    started: Instant,
    naming: Naming,
    denials: Denials,
    returns: Returns,
    hits: AtomicU64,
    remembered: AtomicU64,
}

impl<S> DenialCache<S> {
    /// Remembers denials of `inner`; switched off it only passes on.
    pub(crate) fn new(inner: S, on: bool) -> Self {
        Self { inner, memory: on.then(Memory::new) }
    }

    /// The store below, for its own figures.
    pub(crate) const fn inner(&self) -> &S {
        &self.inner
    }

    /// The figures since the start.
    pub(crate) fn figures(&self) -> DenialFigures {
        self.memory.as_ref().map(Memory::figures).unwrap_or_default()
    }
}

impl Memory {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            naming: Naming::random(),
            denials: Denials::default(),
            returns: Returns::default(),
            hits: AtomicU64::new(0),
            remembered: AtomicU64::new(0),
        }
    }

    fn figures(&self) -> DenialFigures {
        DenialFigures {
            hits: self.hits.load(Ordering::Relaxed),
            remembered: self.remembered.load(Ordering::Relaxed),
            entries: self.denials.count(self.now_us()),
        }
    }

    /// Microseconds since the start, rounded down; from 1, since nothing was ever given back at 0.
    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX - 1) + 1
    }

    /// The denial that is certain, and whether others of the same counters are known.
    fn find(&self, question: &Question<'_>) -> Found {
        let found = self.denials.find(question, &self.returns);
        if matches!(found, Found::Denied(_)) {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Learns from what the store has decided by now. `others`: denials of the same counters are known.
    fn learn(&self, question: &Question<'_>, others: bool, answer: &Answer, now_us: u64) {
        if !matches!(answer.mode, Mode::Normal | Mode::Leased) || answer.certainty != Certainty::Exact {
            return;
        }
        if answer.granted > 0 {
            // What a smaller cost took makes the wait of a larger one longer than it was told to be.
            if others {
                self.denials.keep_only(question);
            }
            return;
        }
        // Where permits are leased, whoever holds the lease knows better when to ask again.
        if answer.mode == Mode::Leased {
            return;
        }
        let returning = self.returns.returning(question.charges) || leases(question.charges);
        let bound = if returning { BOUND_RETURNING } else { BOUND };
        // Rounded up, as what is counted from it is told.
        let answered_us = now_us.saturating_add(1);
        if self.denials.remember(question, &answer.outcomes, answered_us, bound, returning) {
            self.remembered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Whether any policy of these leases, here or on other instances: then permits are given back as a rule.
fn leases(charges: &[crate::store::Charge<'_>]) -> bool {
    charges.iter().any(|charge| charge.counter.policy.lease() != Lease::None)
}

/// Whether a denial of this check may be repeated, so that asking again changes nothing.
fn is_repeatable(check: &Check<'_>) -> bool {
    let counts_denied = check.charges.iter().any(|charge| charge.terms.count_denied);
    let peeks = check.charges.iter().all(|charge| charge.cost == 0);
    check.times == 1 && !counts_denied && !peeks
}

impl<S: Store> Store for DenialCache<S> {
    async fn check(&self, check: &Check<'_>) -> Result<Answer, StoreError> {
        let Some(memory) = &self.memory else {
            return self.inner.check(check).await;
        };
        if let Some(id) = check.reserve {
            // Before it is asked: if this future is dropped, it may be charged all the same.
            memory.returns.reserved(id, check.charges, &memory.naming, memory.now_us());
        }
        if !is_repeatable(check) {
            return self.inner.check(check).await;
        }
        let question = Question {
            name: memory.naming.of_check(check.charges),
            charges: check.charges,
            asked_us: memory.now_us(),
        };
        let others = match memory.find(&question) {
            Found::Denied(outcomes) => {
                return Ok(Answer { granted: 0, outcomes, mode: Mode::Cached, certainty: Certainty::Exact });
            }
            Found::Others => true,
            Found::Nothing => false,
        };
        let answer = self.inner.check(check).await?;
        if answer.certainty == Certainty::Exact {
            memory.learn(&question, others, &answer, memory.now_us());
        }
        Ok(answer)
    }

    async fn settle(&self, id: ReservationId, actual: Cost) -> Result<Settled, StoreError> {
        let _forgets = Forgets(self.memory.as_ref().map(|memory| (memory, Returned::Reservation(id))));
        self.inner.settle(id, actual).await
    }

    async fn reset(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        let _forgets = Forgets(self.memory.as_ref().map(|memory| {
            let name = memory.naming.of_counter(counter);
            (memory, Returned::Counter(name.place))
        }));
        self.inner.reset(counter).await
    }
}

/// Where permits are given back.
enum Returned {
    Reservation(ReservationId),
    Counter(names::Place),
}

/// Forgets what was given back, once it may have been: at the end of the call, however it ends.
struct Forgets<'a>(Option<(&'a Memory, Returned)>);

impl Drop for Forgets<'_> {
    fn drop(&mut self) {
        let Some((memory, returned)) = &self.0 else { return };
        match returned {
            Returned::Reservation(id) => memory.returns.settled(*id, memory.now_us()),
            Returned::Counter(place) => memory.returns.reset(*place, memory.now_us()),
        }
    }
}

#[cfg(test)]
mod tests;
