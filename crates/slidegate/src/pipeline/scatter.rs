//! Checks whose counters lie in several lanes, as in a cluster: all or nothing, without a transaction.
//!
//! A check of one lane goes straight on; that is every check of a single server. Any other one is taken
//! apart, a part for each lane:
//!
//! 1. All parts are *probed* at once. One refuses => the check is refused, and nothing was charged.
//! 2. They are charged one after another, in one order for everybody: keys before what all keys share, then by
//!    lane. So those who compete meet at the counters of few, and not after they have taken from those of all.
//! 3. One refuses => what was taken is given back, and the check is refused.
//!
//! # What differs from a check of one lane
//! * **Never more is admitted**: a check that is granted holds all its permits. But one that will be
//!   refused may hold some for two round trips, and others be refused for it: so no refusal may be cached
//!   ([`Certainty::Passing`]).
//! * If what was taken can't be given back for certain, the answer says so ([`Certainty::Unconfirmed`]), and
//!   it ends with its window. It is not tried again: given back twice, too many would pass.
//! * The parts are decided one after another, so the numbers of the counters are not those of one instant.
//!   Of a refused check, those that did not refuse are told as they were when they were probed.
//! * Penalties (`count_denied`) are charged after the refusal, by themselves.
//! * A shadow policy counts what it would have let pass, and gives it back if an enforced one refuses.
//!
//! Counters of one policy and key lie together: no group is in two lanes. `times` is 1: callers that stand for
//! several checks ask for counters of one lane; here no more than one is granted.
//!
//! All of it happens in a task of its own, so that a caller who goes away never leaves half of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use slidegate_core::algorithm::Receipt;
use slidegate_core::decision::{Cost, Mode, Outcome};
use slidegate_core::time::Millis;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::batch::{Batch, Decided, OwnedCharge, OwnedCheck, Taken};
use super::flights::Flights;
use crate::error::{Fault, StoreError};
use crate::store::{Answer, Certainty, Check, Counter, ReservationId, Settled, Store};

/// Takes checks of several lanes apart.
#[derive(Debug)]
pub(crate) struct Scatter<B> {
    shared: Arc<Shared<B>>,
    runtime: Handle,
}

#[derive(Debug)]
struct Shared<B> {
    flights: Flights<B>,
    scattered: AtomicU64,
    returned: AtomicU64,
    unconfirmed: AtomicU64,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScatterFigures {
    /// Checks of several lanes.
    pub(crate) scattered: u64,
    /// Those of them that gave back what they had taken, since a later lane refused or failed.
    pub(crate) returned: u64,
    /// Those of them that may not have given back all of it: it ends with its window.
    pub(crate) unconfirmed: u64,
}

/// The part of a check that lies in one lane.
#[derive(Clone, Debug)]
struct Part {
    check: OwnedCheck,
    /// Where its charges stand in the whole check.
    indexes: SmallVec<[usize; 2]>,
    /// Whether all keys share one of its counters.
    shared: bool,
}

/// What came of a check of several lanes, and what it holds.
#[derive(Debug)]
struct Gathered {
    answer: Answer,
    taken: Vec<SmallVec<[Taken; 2]>>,
    reserved: Option<ReservationId>,
}

impl Gathered {
    /// Nothing is held, and nobody waits in a queue: a part that fits says how long it would have to.
    fn refused(mut outcomes: SmallVec<[Outcome; 2]>, mode: Mode, certainty: Certainty) -> Self {
        outcomes.iter_mut().for_each(|outcome| outcome.delay = Millis::ZERO);
        let answer = Answer { granted: 0, outcomes, mode, certainty };
        Self { answer, taken: Vec::new(), reserved: None }
    }
}

impl<B: Batch> Scatter<B> {
    /// In front of `flights`, with tasks of `runtime`.
    pub(crate) fn new(flights: Flights<B>, runtime: Handle) -> Self {
        let count = || AtomicU64::new(0);
        let shared = Shared { flights, scattered: count(), returned: count(), unconfirmed: count() };
        Self { shared: Arc::new(shared), runtime }
    }

    /// The stage behind.
    pub(crate) fn flights(&self) -> &Flights<B> {
        &self.shared.flights
    }

    /// What was counted so far.
    pub(crate) fn figures(&self) -> ScatterFigures {
        ScatterFigures {
            scattered: self.shared.scattered.load(Ordering::Relaxed),
            returned: self.shared.returned.load(Ordering::Relaxed),
            unconfirmed: self.shared.unconfirmed.load(Ordering::Relaxed),
        }
    }

    /// Has a task do it all, and waits.
    async fn gather(&self, check: OwnedCheck, is_shared: Vec<bool>) -> Result<Answer, StoreError> {
        self.shared.scattered.fetch_add(1, Ordering::Relaxed);
        let (told, answer) = oneshot::channel();
        let shared = self.shared.clone();
        self.runtime.spawn(async move {
            let gathered = shared.decide(check, &is_shared, &told).await;
            if let Err(Ok(unwanted)) = told.send(gathered) {
                shared.unwanted(unwanted).await;
            }
        });
        let mut waiting = Waiting { scatter: self, answer, answered: false };
        let told = (&mut waiting.answer).await;
        waiting.answered = true;
        let ended = StoreError::Lost { fault: Fault::Disconnected };
        told.unwrap_or(Err(ended)).map(|gathered| gathered.answer)
    }
}

/// A caller that waits. One that goes away with the answer at the door gives back what it holds.
struct Waiting<'a, B: Batch> {
    scatter: &'a Scatter<B>,
    answer: oneshot::Receiver<Result<Gathered, StoreError>>,
    answered: bool,
}

impl<B: Batch> Drop for Waiting<'_, B> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.answer.close();
        if let Ok(Ok(unwanted)) = self.answer.try_recv() {
            let shared = self.scatter.shared.clone();
            self.scatter.runtime.spawn(async move { shared.unwanted(unwanted).await });
        }
    }
}

impl<B: Batch> Shared<B> {
    async fn decide(
        &self,
        check: OwnedCheck,
        is_shared: &[bool],
        told: &oneshot::Sender<Result<Gathered, StoreError>>,
    ) -> Result<Gathered, StoreError> {
        let reserve = check.reserve;
        let mut outcomes: SmallVec<[Outcome; 2]> =
            SmallVec::from_elem(Outcome::default(), check.charges.len());
        let parts = parts(check, is_shared);
        let (mut fits, mut mode) = (true, Mode::Normal);
        for (part, probed) in parts.iter().zip(self.probe(&parts).await?) {
            fits &= probed.granted > 0;
            mode = worse(mode, probed.mode);
            part.fill_in(&mut outcomes, &probed);
        }
        if !fits {
            self.punish(&parts, &mut outcomes).await;
            return Ok(Gathered::refused(outcomes, mode, Certainty::Passing));
        }
        if told.is_closed() {
            // Nobody waits any more, and nothing is taken yet.
            return Err(StoreError::Unavailable { fault: Fault::Timeout });
        }
        self.charge(&parts, outcomes, reserve).await
    }

    /// All parts at once, nothing charged.
    async fn probe(&self, parts: &[Part]) -> Result<Vec<Answer>, StoreError> {
        let ask = |part: &Part| self.flights.ask(OwnedCheck { probe: true, ..part.check.clone() }, 1);
        let asked = parts.iter().map(ask).collect::<Result<Vec<_>, _>>()?;
        let mut answers = Vec::with_capacity(asked.len());
        for one in asked {
            answers.push(one.decided().await.map_err(charged_nothing)?.answer);
        }
        Ok(answers)
    }

    /// Charges the policies that refused the check and count that. Whatever comes of it, it is refused.
    async fn punish(&self, parts: &[Part], outcomes: &mut [Outcome]) {
        for part in parts {
            let Some(penalty) = part.penalty(outcomes) else { continue };
            if let Ok(decided) = self.flights.decide(penalty.check.clone(), 1).await {
                penalty.fill_in_refused(outcomes, &decided.answer);
            }
        }
    }

    /// One part after another, until one refuses.
    async fn charge(
        &self,
        parts: &[Part],
        mut outcomes: SmallVec<[Outcome; 2]>,
        reserve: Option<ReservationId>,
    ) -> Result<Gathered, StoreError> {
        let probed = outcomes.clone();
        let (mut taken, mut held, mut mode) = (Vec::new(), Vec::new(), Mode::Normal);
        for part in parts {
            let decided = match self.flights.decide(part.check.clone(), 1).await {
                Ok(decided) => decided,
                Err(error) => {
                    self.give_back(taken).await;
                    return Err(error);
                }
            };
            mode = worse(mode, decided.answer.mode);
            if decided.answer.granted == 0 {
                outcomes = probed;
                part.fill_in(&mut outcomes, &decided.answer);
                let certainty =
                    if self.give_back(taken).await { Certainty::Passing } else { Certainty::Unconfirmed };
                return Ok(Gathered::refused(outcomes, mode, certainty));
            }
            part.fill_in(&mut outcomes, &decided.answer);
            taken.push(part.check.taken(&decided.receipts));
            held.extend(part.to_remember(&decided));
        }
        if let Some(id) = reserve {
            taken = self.remember(id, &held, taken).await?;
        }
        let answer = Answer { granted: 1, outcomes, mode, certainty: Certainty::Exact };
        Ok(Gathered { answer, taken, reserved: reserve })
    }

    /// Remembers what a reservation holds. Without that it could not be settled: then it is given back, unless
    /// it may have been remembered all the same, and would be given back twice when it is settled.
    async fn remember(
        &self,
        id: ReservationId,
        held: &[Taken],
        taken: Vec<SmallVec<[Taken; 2]>>,
    ) -> Result<Vec<SmallVec<[Taken; 2]>>, StoreError> {
        match self.flights.batch().remember(id, held).await {
            Ok(()) => Ok(taken),
            Err(lost @ StoreError::Lost { .. }) => Err(lost),
            Err(error) => {
                self.give_back(taken).await;
                Err(error)
            }
        }
    }

    /// Gives back what was taken, in all lanes at once. `true` if it is certain that it was.
    async fn give_back(&self, taken: Vec<SmallVec<[Taken; 2]>>) -> bool {
        if taken.iter().all(SmallVec::is_empty) {
            return true;
        }
        self.returned.fetch_add(1, Ordering::Relaxed);
        let returning: Vec<_> = taken.into_iter().map(|taken| self.flights.give_back(taken)).collect();
        let mut certain = true;
        for one in returning {
            certain &= one.confirmed().await.is_ok();
        }
        self.unconfirmed.fetch_add(u64::from(!certain), Ordering::Relaxed);
        certain
    }

    /// What to do with an answer whose caller is gone.
    async fn unwanted(&self, gathered: Gathered) {
        if let Some(id) = gathered.reserved {
            let _ = self.flights.batch().settle(id, 0).await;
            return;
        }
        for taken in gathered.taken {
            self.flights.give_back(taken);
        }
    }
}

impl Part {
    /// Puts the outcomes of this part in their places in the whole.
    fn fill_in(&self, outcomes: &mut [Outcome], answer: &Answer) {
        for (index, outcome) in self.indexes.iter().zip(&answer.outcomes) {
            outcomes[*index] = *outcome;
        }
    }

    /// The same, but only of policies that refuse. One that fits by now was charged its cost like any other,
    /// which is as much as the penalty; and its refusal was what it was.
    fn fill_in_refused(&self, outcomes: &mut [Outcome], answer: &Answer) {
        for ((index, charge), outcome) in self.indexes.iter().zip(&self.check.charges).zip(&answer.outcomes) {
            if self.refuses(charge.group, |at| answer.outcomes[at].violated) {
                outcomes[*index] = *outcome;
            }
        }
    }

    /// Whether a policy refuses: if any of its limits is violated, by their places in this part.
    fn refuses(&self, group: u16, violated: impl Fn(usize) -> bool) -> bool {
        let of_group = |(_, charge): &(usize, &OwnedCharge)| charge.group == group;
        self.check.charges.iter().enumerate().filter(of_group).any(|(at, _)| violated(at))
    }

    /// The charges of policies that refused it and count that; `None` if there are none.
    fn penalty(&self, outcomes: &[Outcome]) -> Option<Self> {
        let violated = |at: usize| outcomes[self.indexes[at]].violated;
        let (charges, indexes): (SmallVec<[OwnedCharge; 2]>, SmallVec<[usize; 2]>) = self
            .check
            .charges
            .iter()
            .zip(self.indexes.iter().copied())
            .filter(|(charge, _)| charge.terms.count_denied && self.refuses(charge.group, violated))
            .map(|(charge, index)| (charge.clone(), index))
            .unzip();
        let check = OwnedCheck { charges, ..self.check.clone() };
        (!indexes.is_empty()).then_some(Self { check, indexes, shared: self.shared })
    }

    /// What settling this part's share of a reservation takes: with a charge of cost 0, which took nothing yet.
    fn to_remember(&self, decided: &Decided) -> Vec<Taken> {
        let remembered = |(charge, receipt): (&OwnedCharge, &Option<Receipt>)| {
            let nothing = Receipt { epoch: 0, at_ms: 0, units: 0 };
            let receipt = receipt.or((charge.cost == 0).then_some(nothing))?;
            Some(Taken { key: charge.key.clone(), limit: charge.limit, receipt })
        };
        self.check.charges.iter().zip(&decided.receipts).filter_map(remembered).collect()
    }
}

/// The parts of a check, in the order in which they are charged.
fn parts(check: OwnedCheck, is_shared: &[bool]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (index, charge) in check.charges.into_iter().enumerate() {
        let lane = charge.key.lane();
        let at = parts.iter().position(|part| part.check.lane() == lane).unwrap_or_else(|| {
            let check =
                OwnedCheck { charges: SmallVec::new(), reserve: None, probe: false, lease: Millis::ZERO };
            parts.push(Part { check, indexes: SmallVec::new(), shared: false });
            parts.len() - 1
        });
        let part = &mut parts[at];
        part.check.charges.push(charge);
        part.indexes.push(index);
        part.shared |= is_shared.get(index).copied().unwrap_or(false);
    }
    parts.sort_by_key(|part| (part.shared, part.check.lane()));
    parts
}

/// A probe that was lost charged nothing, whatever became of it.
fn charged_nothing(error: StoreError) -> StoreError {
    match error {
        StoreError::Lost { fault } => StoreError::Unavailable { fault },
        other => other,
    }
}

/// A check is no better than the worst of its parts.
const fn worse(one: Mode, other: Mode) -> Mode {
    if one.is_degraded() { one } else { other }
}

impl<B: Batch> Store for Scatter<B> {
    async fn check(&self, check: &Check<'_>) -> Result<Answer, StoreError> {
        let owned = self.flights().batch().own(check);
        let lane = owned.lane();
        if owned.charges.iter().all(|charge| charge.key.lane() == lane) {
            return self.flights().decide(owned, check.times).await.map(|decided| decided.answer);
        }
        let is_shared = |charge: &crate::store::Charge<'_>| charge.counter.key.as_bytes().is_empty();
        self.gather(owned, check.charges.iter().map(is_shared).collect()).await
    }

    async fn settle(&self, id: ReservationId, actual: Cost) -> Result<Settled, StoreError> {
        self.flights().settle(id, actual).await
    }

    async fn reset(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        self.flights().reset(counter).await
    }
}

#[cfg(test)]
mod tests;
