//! Flights: checks that wait for the same lane of a store share one call.
//!
//! The first check leaves at once; what comes while calls are under way waits, and leaves together. So the
//! busier an instance is, the more checks share the fixed price of a call; and checks of the same counters
//! at the same cost are *counted*: one hot key costs one call for each round trip, however many ask.
//! Nobody waits for others to come.
//!
//! | module | is |
//! |---|---|
//! | [`lane`] | the queue: who may leave with whom. Pure |
//! | [`share`] | what each of several equal checks is told. Pure |
//! | [`runner`] | the task that takes a flight to the store |
//!
//! # Invariants
//! * **No loss of precision.** Every check is told exactly what it would have been told had all of them been
//!   decided one by one, in the order in which they came to each counter.
//! * An instance never has two calls under way that touch the same counter, and no check overtakes another
//!   at a counter that both name.
//! * **Nobody spends what was granted to one who is gone**, but an equal check that was queued before the
//!   call was sent; else it is given back. A caller goes away by dropping the future: in the queue,
//!   that takes the check out of it.
//! * A call that fails is told to all who were aboard, and not repeated.
//! * Everything is bounded: the counters of a call, the calls under way, the queue. How long a check may
//!   wait is not decided here: whoever sets a deadline drops the future.
//!
//! Settling is not queued: a reservation has an owner, who settles it once.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use slidegate_core::decision::Cost;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batch::{Batch, Counted, Decided, OwnedCheck, Taken};
use crate::error::{Fault, StoreError};
use crate::store::{Answer, Check, Counter, ReservationId, Settled, Store};

mod figures;
mod lane;
mod runner;
mod share;

pub(crate) use figures::FlightFigures;

use lane::{Boarded, Lane, Return, Ticket};
use runner::Runner;
use smallvec::SmallVec;

/// Lanes are spread over so many locks: one is enough for a server with a single lane, and a cluster has
/// thousands of lanes.
const SHARDS: usize = 16;

/// Groups checks into calls.
#[derive(Debug)]
pub(crate) struct Flights<B> {
    shared: Arc<Shared<B>>,
    on: bool,
}

#[derive(Debug)]
struct Shared<B> {
    batch: Arc<B>,
    runtime: Handle,
    /// How long a check is waited for.
    patience: Duration,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    /// Lanes that were ever asked for: as many as a cluster has slots at the most.
    lanes: HashMap<u16, Lane<Told, Confirm>>,
    figures: FlightFigures,
    /// How long calls took lately.
    call_time: Duration,
}

/// Who waits for a check's answer, and since when.
#[derive(Debug)]
struct Told {
    answer: oneshot::Sender<Result<Share, StoreError>>,
    since: Instant,
}

/// Where it is confirmed that something was given back.
type Confirm = oneshot::Sender<Result<(), StoreError>>;

/// A check's part of what its party came to.
#[derive(Debug)]
struct Share {
    check: Arc<OwnedCheck>,
    decided: Decided,
}

impl Shard {
    fn lane(&mut self, lane: u16) -> &mut Lane<Told, Confirm> {
        self.lanes.entry(lane).or_default()
    }

    fn note_departure(&mut self, parties: &[Boarded<Told>]) {
        let checks: usize = parties.iter().map(|party| party.waiters.len()).sum();
        self.figures.flights += u64::from(checks > 0);
        self.figures.coalesced += (checks - parties.len()) as u64;
        self.figures.largest = self.figures.largest.max(checks as u64);
    }

    fn note_alone(&mut self) {
        self.figures.checks += 1;
        self.figures.flights += 1;
        self.figures.largest = self.figures.largest.max(1);
    }

    /// A moving average over some eight calls.
    fn note_call(&mut self, took: Duration) {
        let before = if self.call_time.is_zero() { took } else { self.call_time };
        self.call_time = (before * 7 + took) / 8;
    }

    fn note_return(&mut self, counters: usize, confirmed: bool) {
        let count = if confirmed { &mut self.figures.given_back } else { &mut self.figures.unconfirmed };
        *count += counters as u64;
    }
}

impl<B: Batch> Flights<B> {
    /// In front of `batch`, whose calls are made by tasks of `runtime`. Switched off, each check is a call of
    /// its own, made at once; one that is dropped then may stay charged. `patience` is how long a caller waits.
    pub(crate) fn new(batch: impl Into<Arc<B>>, runtime: Handle, on: bool, patience: Duration) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { shared: Arc::new(Shared { batch: batch.into(), runtime, patience, shards }), on }
    }

    /// The store behind.
    pub(crate) fn batch(&self) -> &B {
        &self.shared.batch
    }

    /// What was counted so far.
    pub(crate) fn figures(&self) -> FlightFigures {
        let mut figures = FlightFigures::default();
        for shard in &self.shared.shards {
            figures.add(&shard.lock().figures);
        }
        figures
    }

    /// Decides `times` equal checks.
    pub(crate) async fn decide(&self, check: OwnedCheck, times: u32) -> Result<Decided, StoreError> {
        if self.on {
            return self.ask(check, times)?.decided().await;
        }
        self.shared.shard(check.lane()).note_alone();
        let counted = Counted { check: Arc::new(check), times };
        let answer = self.shared.batch.call(vec![counted]).await.pop();
        answer.unwrap_or(Err(StoreError::Lost { fault: Fault::Protocol }))
    }

    /// Asks whether `times` equal checks may go on: at once, whenever the answer is looked at.
    pub(crate) fn ask(&self, check: OwnedCheck, times: u32) -> Result<Asked<'_, B>, StoreError> {
        let lane = check.lane();
        let (sender, answer) = oneshot::channel();
        let told = Told { answer: sender, since: Instant::now() };
        let mut shard = self.shared.shard(lane);
        shard.figures.checks += 1;
        let queue = shard.lane(lane);
        let ticket = queue.enqueue(check, times, told);
        let send = queue.wants_runner();
        let Some(ticket) = ticket else {
            shard.figures.queue_full += 1;
            return Err(StoreError::Unavailable { fault: Fault::QueueFull });
        };
        drop(shard);
        if send {
            Runner::send(&self.shared, lane);
        }
        Ok(Asked { shared: &self.shared, lane, ticket, answer, answered: false })
    }

    /// Gives back, at once, what a check of one lane took; to be called once for it. The answer tells whether
    /// it is certain that it was.
    pub(crate) fn give_back(&self, taken: SmallVec<[Taken; 2]>) -> Confirmed {
        let (told, confirmed) = oneshot::channel();
        match taken.first().map(|first| first.key.lane()) {
            Some(lane) => self.shared.give_back(lane, Return { taken, told: Some(told) }),
            None => _ = told.send(Ok(())),
        }
        Confirmed(confirmed)
    }
}

/// Tells whether something was given back; it is, whether anybody looks or not.
#[derive(Debug)]
pub(crate) struct Confirmed(oneshot::Receiver<Result<(), StoreError>>);

impl Confirmed {
    pub(crate) async fn confirmed(self) -> Result<(), StoreError> {
        self.0.await.unwrap_or(Err(ENDED))
    }
}

/// A task that was ended in the middle of its call took the answer with it.
const ENDED: StoreError = StoreError::Lost { fault: Fault::Disconnected };

impl<B: Batch> Shared<B> {
    fn shard(&self, lane: u16) -> MutexGuard<'_, Shard> {
        self.shards[usize::from(lane) % SHARDS].lock()
    }

    fn give_back(self: &Arc<Self>, lane: u16, back: Return<Confirm>) {
        let mut shard = self.shard(lane);
        let queue = shard.lane(lane);
        queue.give_back(back);
        let send = queue.wants_runner();
        drop(shard);
        if send {
            Runner::send(self, lane);
        }
    }

    /// What to do with a share that nobody wants: a reservation is settled, whatever else was taken is to
    /// be given back.
    fn unwanted(self: &Arc<Self>, share: Share) -> Option<Return<Confirm>> {
        if let Some(id) = share.check.reserve {
            let shared = self.clone();
            self.runtime.spawn(async move { shared.batch.settle(id, 0).await });
            return None;
        }
        let taken = share.check.taken(&share.decided.receipts);
        (!taken.is_empty()).then_some(Return { taken, told: None })
    }
}

/// A check in the queue, or in flight.
pub(crate) struct Asked<'a, B: Batch> {
    shared: &'a Arc<Shared<B>>,
    lane: u16,
    ticket: Ticket,
    answer: oneshot::Receiver<Result<Share, StoreError>>,
    answered: bool,
}

impl<B: Batch> Asked<'_, B> {
    /// Waits for the answer.
    pub(crate) async fn decided(mut self) -> Result<Decided, StoreError> {
        let told = (&mut self.answer).await;
        self.answered = true;
        told.unwrap_or(Err(ENDED)).map(|share| share.decided)
    }
}

/// A caller that goes away.
/// * In the queue => it leaves the queue.
/// * In flight => what it is granted is found to be unwanted when it is handed out.
/// * Answered, but not told yet => what was granted is given back.
impl<B: Batch> Drop for Asked<'_, B> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut shard = self.shared.shard(self.lane);
        shard.figures.cancelled += 1;
        let queue = shard.lane(self.lane);
        let queued = queue.cancel(self.ticket);
        // Those that it held up may go now.
        let send = queue.wants_runner();
        drop(shard);
        if send {
            Runner::send(self.shared, self.lane);
        }
        if queued {
            return;
        }
        self.answer.close();
        if let Ok(Ok(share)) = self.answer.try_recv()
            && let Some(back) = self.shared.unwanted(share)
        {
            self.shared.give_back(self.lane, back);
        }
    }
}

impl<B: Batch> Store for Flights<B> {
    async fn check(&self, check: &Check<'_>) -> Result<Answer, StoreError> {
        let owned = self.shared.batch.own(check);
        self.decide(owned, check.times).await.map(|decided| decided.answer)
    }

    /// Once begun it goes on to its end, even if its caller goes away: a reservation can't be settled later.
    async fn settle(&self, id: ReservationId, actual: Cost) -> Result<Settled, StoreError> {
        let shared = self.shared.clone();
        let settling = self.shared.runtime.spawn(async move { shared.batch.settle(id, actual).await });
        settling.await.unwrap_or(Err(ENDED))
    }

    async fn reset(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        self.shared.batch.reset(counter).await
    }
}

#[cfg(test)]
mod tests;
