//! One purse, those who wait for it, and what they are told. A value under somebody else's lock.

use std::collections::VecDeque;
use std::sync::Arc;

use slidegate_core::algorithm::Receipt;
use slidegate_core::decision::{Mode, Outcome};
use slidegate_core::instance::purse::{CHECKS_MAX, Purse, Step};
use slidegate_core::time::Millis;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::pipeline::batch::{Decided, OwnedCheck, Taken};
use crate::store::{Answer, Certainty};

/// The most who wait for one purse: as many as wait in a lane of the store.
pub(super) const WAITING_MAX: usize = 8192;

type Told = oneshot::Receiver<Result<Given, StoreError>>;

/// A purse and who waits for it.
#[derive(Debug, Default)]
pub(super) struct Account {
    purse: Purse,
    /// The length that the last check would be leased for.
    length: Millis,
    waiting: VecDeque<Waiter>,
    /// A keeper is on its way for it.
    calling: bool,
    /// Its counters lie in several lanes.
    scattered: bool,
    /// The check as the store knows it, once there was a call.
    check: Option<Arc<OwnedCheck>>,
    found: Found,
    /// The number of the lease that is being spent.
    lease: u64,
    /// What names its counters on this instance.
    counters: SmallVec<[u128; 2]>,
    /// Counts resets: a call from before one has leased what is gone.
    resets: u64,
}

#[derive(Debug)]
struct Waiter {
    times: u32,
    since_us: u64,
    told: oneshot::Sender<Result<Given, StoreError>>,
}

/// What somebody who waited is told, and what came with it.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) answer: Answer,
    lease: u64,
}

/// What the last call found.
#[derive(Debug, Default)]
struct Found {
    outcomes: SmallVec<[Outcome; 2]>,
    receipts: SmallVec<[Option<Receipt>; 2]>,
    at_us: u64,
}

/// What a check that arrives comes to.
#[derive(Debug)]
pub(super) enum Turn {
    /// Decided here.
    Answered(Answer),
    /// A call is under way.
    Waits(Told),
    /// Too many wait.
    Full,
    /// A call is needed: [`Account::call`].
    Calls,
    /// It is not leased.
    Straight,
}

/// A call that is to be made.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) check: Arc<OwnedCheck>,
    pub(super) length: Millis,
    pub(super) asked: u32,
    pub(super) sent_us: u64,
    /// Of the lease before.
    pub(super) rest: Rest,
    resets: u64,
}

/// What nobody spent.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// In checks.
    pub(super) checks: u32,
    pub(super) taken: SmallVec<[Taken; 2]>,
}

/// After a call: until when its lease lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Landed {
    pub(super) lease: u64,
    pub(super) end_us: u64,
    /// Some wait still.
    pub(super) again: bool,
}

impl Account {
    pub(super) fn new(counters: SmallVec<[u128; 2]>) -> Self {
        Self { counters, ..Self::default() }
    }

    /// `times` equal checks arrive.
    pub(super) fn arrive(&mut self, now_us: u64, length: Millis, times: u32) -> Turn {
        self.length = length;
        match self.purse.arrive(now_us, length, times) {
            _ if self.scattered => Turn::Straight,
            Step::Spent => Turn::Answered(self.spent(now_us, times)),
            Step::Dry { for_us } => Turn::Answered(self.denied(now_us, for_us, 0)),
            Step::Ask { .. } | Step::Plain if self.calling => match self.enqueue(now_us, times) {
                Some(told) => Turn::Waits(told),
                None => Turn::Full,
            },
            Step::Ask { .. } => Turn::Calls,
            Step::Plain => Turn::Straight,
        }
    }

    fn enqueue(&mut self, now_us: u64, times: u32) -> Option<Told> {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.retain(|waiter| !waiter.told.is_closed());
        }
        if self.waiting.len() >= WAITING_MAX {
            return None;
        }
        let (told, receiver) = oneshot::channel();
        self.waiting.push_back(Waiter { times, since_us: now_us, told });
        Some(receiver)
    }

    /// Its counters lie in several lanes: no call can lease it.
    pub(super) const fn never_leases(&mut self) {
        self.scattered = true;
    }

    /// The check that asked waits for a call, for which a keeper must be sent.
    pub(super) fn call(&mut self, check: OwnedCheck, now_us: u64, times: u32) -> Told {
        self.check = Some(Arc::new(check));
        self.calling = true;
        let (told, receiver) = oneshot::channel();
        self.waiting.push_back(Waiter { times, since_us: now_us, told });
        receiver
    }

    /// What the keeper is to ask for; `None`: nobody waits any more, and it is free.
    pub(super) fn order(&mut self, now_us: u64) -> Option<Order> {
        self.waiting.retain(|waiter| !waiter.told.is_closed());
        let check = self.check.clone().filter(|_| !self.waiting.is_empty());
        let Some(check) = check else {
            self.calling = false;
            return None;
        };
        let waiting = self.waiting.iter().fold(0u32, |sum, waiter| sum.saturating_add(waiter.times));
        let asked = waiting.saturating_add(self.purse.forecast()).clamp(1, CHECKS_MAX);
        // The store has no more to give, and sums of permits stay in 32 bits.
        let most = check.charges.iter().map(|charge| charge.limit.permits() / charge.cost.max(1)).min();
        let asked = asked.min(most.unwrap_or_default().max(1));
        let (length, resets) = (self.length, self.resets);
        Some(Order { check, length, asked, sent_us: now_us, rest: self.take_rest(), resets })
    }

    /// The call was answered.
    pub(super) fn land(&mut self, order: &Order, decided: Decided, now_us: u64) -> Landed {
        let granted = if self.resets == order.resets { decided.answer.granted } else { 0 };
        self.lease += 1;
        self.purse.fill(order.sent_us, order.length, granted);
        let short = decided.answer.granted < order.asked;
        if short {
            self.purse.run_dry(order.sent_us, order.length, wait_of(&decided.answer.outcomes));
        }
        self.found = Found { outcomes: decided.answer.outcomes, receipts: decided.receipts, at_us: now_us };
        while let Some(waiter) = self.waiting.front() {
            let (times, since_us) = (waiter.times, waiter.since_us);
            // Who waited before it was sent is decided by the call itself, at its instant.
            let by_the_call = since_us <= order.sent_us;
            let spends_us = if by_the_call { order.sent_us } else { now_us };
            let units = times.min(self.purse.left());
            let answer = if (units == times || short && units > 0) && self.purse.spend(spends_us, units) {
                if units == times {
                    self.spent(now_us, units)
                } else {
                    self.denied(now_us, self.purse.dry_until_us().saturating_sub(now_us), units)
                }
            } else if short && (by_the_call || now_us < self.purse.dry_until_us()) {
                self.denied(now_us, self.purse.dry_until_us().saturating_sub(now_us), 0)
            } else {
                break;
            };
            let Some(waiter) = self.waiting.pop_front() else { break };
            let granted = answer.granted;
            if waiter.told.send(Ok(Given { answer, lease: self.lease })).is_err() {
                self.purse.put_back(granted);
            }
        }
        let again = !self.waiting.is_empty();
        self.calling = again;
        Landed { lease: self.lease, end_us: self.purse.end_us(), again }
    }

    /// The call failed, or its keeper was ended: so it is told.
    pub(super) fn fail(&mut self, error: &StoreError) {
        self.calling = false;
        for waiter in self.waiting.drain(..) {
            let _ = waiter.told.send(Err(error.clone()));
        }
    }

    /// Somebody does not want any more what they were given.
    pub(super) const fn put_back(&mut self, given: &Given) {
        if given.lease == self.lease && self.purse.end_us() > 0 {
            self.purse.put_back(given.answer.granted);
        }
    }

    /// What is left of a lease that has ended, if it is the one that is being spent.
    pub(super) fn end(&mut self, lease: u64) -> Rest {
        if self.lease == lease { self.take_rest() } else { Rest::default() }
    }

    fn take_rest(&mut self) -> Rest {
        let checks = self.purse.take_out();
        let Some(check) = self.check.as_ref().filter(|_| checks > 0) else { return Rest::default() };
        let receipts: SmallVec<[Option<Receipt>; 2]> = (check.charges.iter().zip(&self.found.receipts))
            .map(|(charge, receipt)| {
                let receipt = (*receipt)?;
                let units = checks.saturating_mul(charge.cost).min(receipt.units);
                Some(Receipt { units, ..receipt })
            })
            .collect();
        Rest { checks, taken: check.taken(&receipts) }
    }

    /// Forgets what is leased if this counter is among its own.
    pub(super) fn reset(&mut self, counter: u128) {
        if self.counters.contains(&counter) {
            self.purse.reset();
            self.resets += 1;
        }
    }

    pub(super) fn is_idle(&self, now_us: u64, idle: Millis) -> bool {
        !self.calling && self.waiting.is_empty() && self.purse.is_idle(now_us, idle)
    }

    // --- what is told --------------------------------------------------------------------------------

    /// What one is told who has just taken from the purse.
    fn spent(&self, now_us: u64, times: u32) -> Answer {
        let outcomes =
            self.outcomes(now_us, |outcome| Outcome { violated: false, retry_after: None, ..outcome });
        Answer { granted: times, outcomes, mode: Mode::Leased, certainty: Certainty::Exact }
    }

    /// What one is told who is refused, or granted less than all: to come again when somebody asks again.
    fn denied(&self, now_us: u64, for_us: u64, granted: u32) -> Answer {
        let pause = Millis(for_us.div_ceil(1000).max(1));
        let passed_us = now_us.saturating_sub(self.found.at_us);
        let outcomes = self.outcomes(now_us, |outcome| {
            let retry_after = outcome.retry_after.map(|wait| left(wait, passed_us).max(pause));
            Outcome { retry_after, ..outcome }
        });
        Answer { granted, outcomes, mode: Mode::Leased, certainty: Certainty::Exact }
    }

    /// As the call found it, with what was spent since.
    fn outcomes(&self, now_us: u64, told: impl Fn(Outcome) -> Outcome) -> SmallVec<[Outcome; 2]> {
        let Some(check) = &self.check else { return SmallVec::new() };
        let passed_us = now_us.saturating_sub(self.found.at_us);
        let of_now = |(found, charge): (&Outcome, &crate::pipeline::batch::OwnedCharge)| {
            let unspent = self.purse.left().saturating_mul(charge.cost);
            let reset_after = found.reset_after;
            told(Outcome {
                used: found.used.saturating_sub(unspent),
                remaining: found.remaining.saturating_add(unspent).min(found.limit),
                reset_after: if reset_after == Millis::ZERO {
                    reset_after
                } else {
                    left(reset_after, passed_us)
                },
                ..*found
            })
        };
        self.found.outcomes.iter().zip(&check.charges).map(of_now).collect()
    }
}

/// What is left of a time that was told so long ago: rounded up, and at least 1 ms.
fn left(told: Millis, passed_us: u64) -> Millis {
    Millis(told.get().saturating_mul(1000).saturating_sub(passed_us).div_ceil(1000).max(1))
}

/// How long the limits that refused want to be waited for; `None`: one never fits.
fn wait_of(outcomes: &[Outcome]) -> Option<Millis> {
    let mut longest = None;
    for outcome in outcomes.iter().filter(|outcome| outcome.violated) {
        longest = longest.max(Some(outcome.retry_after?));
    }
    longest
}
