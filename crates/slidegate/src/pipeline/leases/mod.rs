//! Leases: an instance takes permits for the next moment in one call, and spends them itself.
//!
//! For policies that ask for it, and for all `sliding_window` policies while the store is slow (`on_slow_store: lease`). How much is leased,
//! until when it may be spent and how long a limit that is reached is left alone is decided by the
//! [purse](slidegate_core::instance::purse) of each check, in the core; here is who waits for what.
//!
//! | module | is |
//! |---|---|
//! | [`account`] | one purse, those who wait for it, and what they are told. Pure, under a lock |
//! | [`accounts`] | all of them, bounded |
//! | [`keeper`] | the task that calls for a purse, and gives back what is left when the lease ends |
//! | [`length`] | how long a lease is |
//!
//! # What is leased
//! A check whose counters lie in one lane, are all `sliding_window` and of policies that lease; that reserves
//! nothing and costs something at each. Shadow policies don't lease: what they would have denied is not told by one
//! call for many. All else goes straight on, and so does a check that is asked too seldom for a lease to save calls.
//!
//! # Invariants
//! * Nothing is spent after the lease's end, by a clock that goes on while the machine is suspended. Those who were
//!   waiting when the call was sent are decided by it, however late its answer comes: as without leases.
//! * A purse has one call under way at the most. Whoever comes meanwhile waits for it.
//! * What nobody spent is given back when the lease ends, once: whether the store got it is not known for certain, and
//!   if not it ends with its window. So does the permit of somebody who went away after the lease had ended.
//! * A call that fails is told to all who wait. It put nothing into the purse.
//! * Everything is bounded: purses ([`ACCOUNTS_MAX`](accounts::ACCOUNTS_MAX)), those who wait for one
//!   ([`WAITING_MAX`](account::WAITING_MAX)), what a call asks for.
//!
//! # What is told
//! [`Mode::Leased`](slidegate_core::decision::Mode::Leased), and the numbers as the lease's call found them, with what
//! this instance has spent since. What others took since is not in them. A limit that is reached is asked again after
//! a pause, and until then denied with the time that is left of it, or of the store's wait if that is longer.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use slidegate_core::decision::Cost;
use slidegate_core::time::Millis;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::batch::Batch;
use super::denial_cache::names::Naming;
use super::nodes::Nodes;
use super::scatter::Scatter;
use crate::error::{Fault, StoreError};
use crate::store::{Answer, Check, Counter, ReservationId, Settled, Store};

mod account;
mod accounts;
mod keeper;
mod length;
#[cfg(test)]
mod tests;

use account::{Given, Turn};
use accounts::Accounts;
use keeper::Keeper;
use length::RoundTrip;

/// Leases in front of the stages that call.
#[derive(Debug)]
pub(crate) struct Leases<B> {
    shared: Arc<Shared<B>>,
}

#[derive(Debug)]
struct Shared<B> {
    scatter: Scatter<B>,
    runtime: Handle,
    naming: Naming,
    accounts: Accounts,
    clock: Clock,
    round_trip: RoundTrip,
    figures: Figures,
    /// Set once, at the end: nothing is leased any more.
    closing: watch::Sender<bool>,
    /// Tasks that look after a purse.
    keepers: watch::Sender<usize>,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseFigures {
    /// Calls that leased.
    pub(crate) calls: u64,
    /// Checks that were allowed from a lease.
    pub(crate) spent: u64,
    /// Checks denied without a call, since a lease had just found the limit reached.
    pub(crate) denied: u64,
    /// Checks that were leased and given back.
    pub(crate) given_back: u64,
}

#[derive(Debug, Default)]
struct Figures {
    calls: AtomicU64,
    spent: AtomicU64,
    denied: AtomicU64,
    given_back: AtomicU64,
}

/// The clock that leases go by.
#[derive(Debug)]
enum Clock {
    System,
    /// The runtime's, which tests move.
    #[cfg_attr(not(test), expect(dead_code, reason = "for tests"))]
    Runtime(Instant),
}

impl Clock {
    fn now_us(&self) -> u64 {
        match self {
            Self::System => crate::clock::since_boot_us(),
            Self::Runtime(start) => u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
        }
    }
}

impl<B: Batch + Nodes> Leases<B> {
    /// In front of `scatter`, with tasks of `runtime`.
    pub(crate) fn new(scatter: Scatter<B>, runtime: Handle) -> Self {
        Self::by(Clock::System, scatter, runtime)
    }

    fn by(clock: Clock, scatter: Scatter<B>, runtime: Handle) -> Self {
        let shared = Shared {
            scatter,
            runtime,
            naming: Naming::random(),
            accounts: Accounts::default(),
            clock,
            round_trip: RoundTrip::default(),
            figures: Figures::default(),
            closing: watch::Sender::new(false),
            keepers: watch::Sender::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The stage behind.
    pub(crate) fn scatter(&self) -> &Scatter<B> {
        &self.shared.scatter
    }

    /// What was counted so far.
    pub(crate) fn figures(&self) -> LeaseFigures {
        let figures = &self.shared.figures;
        LeaseFigures {
            calls: figures.calls.load(Ordering::Relaxed),
            spent: figures.spent.load(Ordering::Relaxed),
            denied: figures.denied.load(Ordering::Relaxed),
            given_back: figures.given_back.load(Ordering::Relaxed),
        }
    }

    /// Leases nothing more, and gives back what is not spent; ready when the store has it, or has failed to take it.
    /// Checks go on, each with a call of its own.
    pub(crate) async fn close(&self) {
        self.shared.closing.send_replace(true);
        // Its sender lives as long as this.
        let _ = self.shared.keepers.subscribe().wait_for(|keepers| *keepers == 0).await;
    }

    /// How long a round trip to the store takes if it is slow, in microseconds.
    fn slow_us(&self, check: &Check<'_>) -> Option<u64> {
        let nodes = self.shared.scatter.flights().batch();
        if !nodes.are_troubled() {
            return None;
        }
        let slow = nodes.slow_round_trip(Nodes::own(nodes, check).lane())?;
        Some(u64::try_from(slow.as_micros()).unwrap_or(u64::MAX))
    }

    /// Asks for itself.
    async fn straight(&self, check: &Check<'_>) -> Result<Answer, StoreError> {
        let asked_us = self.shared.clock.now_us();
        let result = self.shared.scatter.check(check).await;
        if result.is_ok() {
            self.shared.round_trip.note(self.shared.clock.now_us().saturating_sub(asked_us));
        }
        result
    }

    /// What a check comes to without waiting, or whom it waits for; `None`: it is not leased.
    fn turn(&self, check: &Check<'_>, length: Millis) -> Option<Result<Answer, Waiting<'_, B>>> {
        let shared = &self.shared;
        let name = shared.naming.of_purse(check.charges);
        let now_us = shared.clock.now_us();
        let mut accounts = shared.accounts.of(name);
        let account = accounts.account(name, now_us, || {
            let counters = check.charges.iter().map(|charge| shared.naming.of_counter(&charge.counter).id);
            counters.collect::<SmallVec<[u128; 2]>>()
        })?;
        match account.arrive(now_us, length, check.times) {
            Turn::Straight => None,
            Turn::Answered(answer) => {
                let count = if answer.granted > 0 { &shared.figures.spent } else { &shared.figures.denied };
                count.fetch_add(check.times.into(), Ordering::Relaxed);
                Some(Ok(answer))
            }
            Turn::Full => Some(Err(Waiting::full(shared, name))),
            Turn::Waits(told) => Some(Err(Waiting::new(shared, name, check.times, told))),
            Turn::Calls => {
                let owned = Batch::own(shared.scatter.flights().batch(), check);
                let lane = owned.lane();
                if owned.charges.iter().any(|charge| charge.key.lane() != lane) {
                    account.never_leases();
                    return None;
                }
                let told = account.call(owned, now_us, check.times);
                drop(accounts);
                Keeper::send(shared, name);
                Some(Err(Waiting::new(shared, name, check.times, told)))
            }
        }
    }
}

/// Somebody who waits for a purse to be filled. Who goes away with the answer at the door puts back what it holds.
struct Waiting<'a, B: Batch> {
    shared: &'a Arc<Shared<B>>,
    name: u128,
    times: u32,
    told: Option<oneshot::Receiver<Result<Given, StoreError>>>,
}

impl<'a, B: Batch> Waiting<'a, B> {
    const fn new(
        shared: &'a Arc<Shared<B>>,
        name: u128,
        times: u32,
        told: oneshot::Receiver<Result<Given, StoreError>>,
    ) -> Self {
        Self { shared, name, times, told: Some(told) }
    }

    /// Too many wait already.
    const fn full(shared: &'a Arc<Shared<B>>, name: u128) -> Self {
        Self { shared, name, times: 0, told: None }
    }

    async fn answer(mut self) -> Result<Answer, StoreError> {
        let Some(told) = &mut self.told else {
            return Err(StoreError::Unavailable { fault: Fault::QueueFull });
        };
        let given = pin!(told).await;
        self.told = None;
        // A keeper that was ended in the middle of its call took the answer with it.
        let given = given.unwrap_or(Err(StoreError::Lost { fault: Fault::Disconnected }))?;
        let count =
            if given.answer.granted > 0 { &self.shared.figures.spent } else { &self.shared.figures.denied };
        count.fetch_add(self.times.into(), Ordering::Relaxed);
        Ok(given.answer)
    }
}

impl<B: Batch> Drop for Waiting<'_, B> {
    fn drop(&mut self) {
        let Some(mut told) = self.told.take() else { return };
        told.close();
        if let Ok(Ok(given)) = told.try_recv()
            && let Some(account) = self.shared.accounts.of(self.name).find(self.name)
        {
            account.put_back(&given);
        }
    }
}

impl<B: Batch + Nodes> Store for Leases<B> {
    async fn check(&self, check: &Check<'_>) -> Result<Answer, StoreError> {
        let shared = &self.shared;
        let length = length::of(check, self.slow_us(check), shared.round_trip.get());
        let length = length.filter(|_| !*shared.closing.borrow());
        let Some(turn) = length.and_then(|length| self.turn(check, length)) else {
            // What waits for a network is kept apart from what is answered here, which needs no allocation.
            return Box::pin(self.straight(check)).await;
        };
        match turn {
            Ok(answer) => Ok(answer),
            Err(waiting) => Box::pin(waiting.answer()).await,
        }
    }

    fn settle(
        &self,
        id: ReservationId,
        actual: Cost,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send {
        self.shared.scatter.settle(id, actual)
    }

    /// What is leased of a counter that is emptied must not come on top of it.
    async fn reset(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        let id = self.shared.naming.of_counter(counter).id;
        self.shared.accounts.reset(id);
        let result = self.shared.scatter.reset(counter).await;
        // What was leased while the call was under way may be from before.
        self.shared.accounts.reset(id);
        result
    }
}
