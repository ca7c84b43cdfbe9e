//! A deadline for everything below, and an answer for when the store does not give one.
//!
//! The time that a check may take is counted from its arrival here, whatever it is spent on: waiting for a
//! flight, a queue, a retry, the network. When it is over, when the store is away, or when a node that the check
//! needs is failing ([`Nodes::away`]: then nothing is waited for), the policies of the check say what to answer
//! ([`OnStoreFailure`]):
//!
//! | the enforced policies of a check | it is |
//! |---|---|
//! | one says `deny`; or `local`, and nobody knows how many instances there are | denied: [`Mode::DenyAll`] |
//! | some say `local` | decided by those from this instance's share ([`local`]): [`Mode::Local`] |
//! | all say `allow` | allowed: [`Mode::AllowAll`] |
//!
//! Shadow policies have no say, since they deny nobody; those that say `local` count.
//!
//! # What is said without the store
//! Under [`Mode::Local`] the numbers of the share, of the policies that say `local`. Else the limits themselves: nobody
//! counted, so nothing is claimed about permits or times. Limits of policies that deny are marked as violated.
//!
//! # What is an error instead
//! What asks for numbers, or changes them by name: peeks, settling and resets. They are bounded by the same
//! deadline. [`StoreError::ReservationsFull`] is an answer of the store and passes.
//!
//! # Reservations
//! One that is allowed without the store can't be settled later: [`Settled::Unknown`]. Should its call
//! have been executed after all, it can.
//!
//! # Eras
//! While a node is failing, it is one era: its [`Away`] says since when. A check that fails while its node is held to
//! be well puts that in doubt ([`Nodes::doubt`]): an era until the next call is answered. Of a counter with history the
//! instance grants no more in it than it held as it began.
//!
//! # Invariants
//! * A check is answered within the deadline, if the runtime has time to run it; at once, if a node is failing.
//! * What was asked is dropped at the deadline: the stages below take back what such a check was granted, or
//!   leave it charged. Too few pass then, never too many.
//! * The log has one line when the store begins to fail and one when it is back, not one for each check.
//!
//! It needs tokio's timer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slidegate_core::decision::{Cost, Mode, Outcome};
use slidegate_core::instance::Era;
use slidegate_core::time::Millis;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::batch::OwnedCheck;
use super::nodes::{Away, Nodes};
use crate::error::{Fault, StoreError};
use crate::policy::{OnStoreFailure, Policy};
use crate::store::{Answer, Certainty, Charge, Check, Counter, ReservationId, Settled, Store};

mod health;
mod local;

use health::{Change, Health};
use local::Local;

/// What a check that was dropped at its deadline came to: it may have been sent.
const TOO_LATE: StoreError = StoreError::Lost { fault: Fault::Timeout };

/// A store that always answers a check in time.
#[derive(Debug)]
pub(crate) struct Resilient<S, N> {
    inner: S,
    nodes: Arc<N>,
    local: Local,
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

impl<S: Store, N: Nodes> Resilient<S, N> {
    /// Bounds what is asked of `inner`, which asks these nodes.
    pub(crate) fn new(inner: S, nodes: Arc<N>, timeout: Duration) -> Self {
        let local = Local::new(nodes.now_us());
        Self {
            inner,
            nodes,
            local,
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
    async fn in_time<T>(&self, asked: Asked<'_, T>) -> Result<T, StoreError> {
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
            self.local.tidy(self.nodes.now_us());
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

    /// The answer to a check of which a node is not to be asked; `None` if all are well.
    fn beside_the_store(&self, check: &Check<'_>) -> Option<Answer> {
        let owned = self.nodes.own(check);
        let away: SmallVec<[Option<Away>; 2]> =
            owned.charges.iter().map(|charge| self.nodes.away(charge.key.lane())).collect();
        let fault = away.iter().find_map(|lane| lane.as_ref()?.fault);
        if let Some(fault) = fault {
            self.failed(fault);
        }
        if away.iter().all(Option::is_none) {
            return None;
        }
        let eras = away.iter().map(|lane| lane.map(|away| away.era));
        Some(self.without_store(check, &owned, &eras.collect()))
    }

    /// The answer to a check that the store did not decide.
    fn after_the_store(&self, check: &Check<'_>) -> Answer {
        let owned = self.nodes.own(check);
        let eras = owned.charges.iter().map(|charge| {
            let lane = charge.key.lane();
            self.nodes.away(lane).map(|away| away.era).or_else(|| self.nodes.doubt(lane))
        });
        self.without_store(check, &owned, &eras.collect())
    }

    /// The answer that the policies of a check give for the store; `eras` are those of its charges' nodes.
    fn without_store(&self, check: &Check<'_>, owned: &OwnedCheck, eras: &Eras) -> Answer {
        let place = self.nodes.place();
        let denies = |policy: &Policy| match policy.on_store_failure() {
            OnStoreFailure::Deny => true,
            OnStoreFailure::Local => place.is_none(),
            OnStoreFailure::Allow => false,
        };
        let denied = |charge: &Charge<'_>| !charge.terms.shadow && denies(charge.counter.policy);
        let answer = if check.charges.iter().any(denied) {
            let outcomes = check.charges.iter();
            let outcomes = outcomes.map(|charge| Outcome { violated: denied(charge), ..unknown(charge) });
            Some(alone(0, outcomes.collect(), Mode::DenyAll))
        } else {
            place.and_then(|place| {
                let mine =
                    |charge: &Charge<'_>| charge.counter.policy.on_store_failure() == OnStoreFailure::Local;
                let (part, eras) = Self::part(check, owned, eras, mine);
                if part.charges.is_empty() {
                    return None;
                }
                let decided = self.local.decide(&*self.nodes, (&part, check.times), &eras, place);
                Some(decided.map_or_else(
                    || no_room(check),
                    |decided| {
                        let mut counted = decided.outcomes.into_iter();
                        let outcomes = check.charges.iter().map(|charge| {
                            let counts = mine(charge).then(|| counted.next()).flatten();
                            counts.unwrap_or_else(|| unknown(charge))
                        });
                        alone(decided.granted, outcomes.collect(), Mode::Local)
                    },
                ))
            })
        };
        let answer = answer.unwrap_or_else(|| {
            alone(check.times, check.charges.iter().map(unknown).collect(), Mode::AllowAll)
        });
        self.allowed.fetch_add(answer.granted.into(), Ordering::Relaxed);
        self.denied.fetch_add((check.times - answer.granted.min(check.times)).into(), Ordering::Relaxed);
        answer
    }

    /// The charges of a check that are decided here, and the eras that their nodes are away for.
    fn part(
        check: &Check<'_>,
        owned: &OwnedCheck,
        eras: &Eras,
        mine: impl Fn(&Charge<'_>) -> bool,
    ) -> (OwnedCheck, Eras) {
        let (charges, eras) = (check.charges.iter().zip(&owned.charges).zip(eras))
            .filter(|((charge, _), _)| mine(charge))
            .map(|((_, owned), era)| (owned.clone(), *era))
            .unzip();
        (OwnedCheck { charges, reserve: None, probe: false, lease: Millis::ZERO }, eras)
    }
}

/// The eras that the nodes of charges are away for; `None` of one that is well.
type Eras = SmallVec<[Option<Era>; 2]>;

/// What was asked. Boxed, so that it ends here how deep the stages below are nested: callers hold this future in
/// their own, and compilers give up on types that are too deep. An allocation is nothing beside a round trip.
type Asked<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// An answer that the store has no part in.
fn alone(granted: u32, outcomes: SmallVec<[Outcome; 2]>, mode: Mode) -> Answer {
    Answer { granted, outcomes, mode, certainty: Certainty::Exact }
}

/// As many keys are asked about as can be held: those beyond are denied, as if nobody knew how to share.
fn no_room(check: &Check<'_>) -> Answer {
    let refuses = |charge: &Charge<'_>| {
        !charge.terms.shadow && charge.counter.policy.on_store_failure() == OnStoreFailure::Local
    };
    let granted = if check.charges.iter().any(refuses) { 0 } else { check.times };
    let outcomes = check.charges.iter();
    let outcomes = outcomes.map(|charge| Outcome { violated: refuses(charge), ..unknown(charge) });
    let mode = if granted == 0 { Mode::DenyAll } else { Mode::AllowAll };
    alone(granted, outcomes.collect(), mode)
}

/// What is known about a limit that nobody counted.
fn unknown(charge: &Charge<'_>) -> Outcome {
    Outcome { limit: charge.counter.limit.limit().capacity(), ..Outcome::default() }
}

/// Whether its counters lie on several nodes, of which others may be asked if one is away.
fn is_split(check: &Check<'_>) -> bool {
    check.charges.iter().any(|charge| charge.counter.policy.split() > 1)
}

/// Whether a check asks for numbers only.
fn is_peek(check: &Check<'_>) -> bool {
    check.charges.iter().all(|charge| charge.cost == 0)
}

impl<S: Store, N: Nodes> Store for Resilient<S, N> {
    async fn check(&self, check: &Check<'_>) -> Result<Answer, StoreError> {
        if self.nodes.are_troubled()
            && !is_peek(check)
            && !is_split(check)
            && let Some(answer) = self.beside_the_store(check)
        {
            return Ok(answer);
        }
        let result = self.in_time(Box::pin(self.inner.check(check))).await;
        let away = result.as_ref().is_err_and(|error| error.fault().is_some());
        if away && !is_peek(check) { Ok(self.after_the_store(check)) } else { result }
    }

    async fn settle(&self, id: ReservationId, actual: Cost) -> Result<Settled, StoreError> {
        self.in_time(Box::pin(self.inner.settle(id, actual))).await
    }

    async fn reset(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        self.in_time(Box::pin(self.inner.reset(counter))).await
    }
}

#[cfg(test)]
mod tests;
