//! What takes flights to the store and hands out what comes back: a task for each flight under way.
//!
//! A runner that was sent for a flight first lets all tasks go that are ready to run, and what they ask leaves
//! with it: callers that were told their answers together ask again together, and would else leave in more
//! and smaller flights.

use std::sync::Arc;

use tokio::time::Instant;

use super::lane::{Boarded, Flight, Held, Return, Waiter};
use super::share::Shares;
use super::{Confirm, Share, Shared, Told};
use crate::error::{Fault, StoreError};
use crate::pipeline::batch::{Batch, Counted, Decided, Taken};

/// Looks after one flight at a time of a lane, until there is nothing left to take.
pub(super) struct Runner<B: Batch> {
    shared: Arc<Shared<B>>,
    lane: u16,
    state: State,
}

enum State {
    Boarding,
    Flying(Held),
    Ended,
}

impl<B: Batch> Runner<B> {
    /// Sends a runner for what waits in a lane. Not under a lock: a runtime that has ended drops it here.
    pub(super) fn send(shared: &Arc<Shared<B>>, lane: u16) {
        let runner = Self { shared: shared.clone(), lane, state: State::Boarding };
        shared.runtime.spawn(runner.run());
    }

    async fn run(mut self) {
        while !matches!(self.state, State::Ended) {
            tokio::task::yield_now().await;
            if let Some(flight) = self.depart() {
                self.return_all(flight.returns).await;
                let left = self.decide(flight.parties).await;
                self.land(left);
            }
        }
    }

    /// The next flight. What it holds is kept here, for whatever may happen.
    fn depart(&mut self) -> Option<Flight<Told, Confirm>> {
        let mut shard = self.shared.shard(self.lane);
        let lane = shard.lane(self.lane);
        let flight = lane.depart();
        let another = lane.wants_runner();
        let Some(mut flight) = flight else {
            self.state = State::Ended;
            return None;
        };
        shard.note_departure(&flight.parties);
        drop(shard);
        self.state = State::Flying(std::mem::take(&mut flight.held));
        if another {
            Self::send(&self.shared, self.lane);
        }
        Some(flight)
    }

    async fn return_all(&self, returns: Vec<Return<Confirm>>) {
        if returns.is_empty() {
            return;
        }
        let taken: Vec<Taken> = returns.iter().flat_map(|back| &back.taken).cloned().collect();
        let result = self.shared.batch.give_back(&taken).await;
        self.shared.shard(self.lane).note_return(taken.len(), result.is_ok());
        for confirm in returns.into_iter().filter_map(|back| back.told) {
            let _ = confirm.send(result.clone());
        }
    }

    /// Decides what is aboard and tells everybody; returns what is to be given back.
    async fn decide(&self, mut parties: Vec<Boarded<Told>>) -> Vec<Return<Confirm>> {
        self.leave_behind_the_late(&mut parties);
        let counted: Vec<Counted> =
            parties.iter().map(|party| Counted { check: party.check.clone(), times: party.times }).collect();
        if counted.is_empty() {
            return Vec::new();
        }
        let sent = Instant::now();
        let mut answers = self.shared.batch.call(counted).await.into_iter();
        self.shared.shard(self.lane).note_call(sent.elapsed());
        let mut left = Vec::new();
        for party in parties {
            match answers.next().unwrap_or(Err(StoreError::Lost { fault: Fault::Protocol })) {
                Ok(decided) => left.extend(self.hand_out(party, decided)),
                Err(error) => {
                    for waiter in party.waiters {
                        let _ = waiter.told.answer.send(Err(error.clone()));
                    }
                }
            }
        }
        left
    }

    /// Whose patience will be over before the answer comes is told so now. What they would be granted would
    /// only have to be given back: a store that is asked for more than it can do would be kept busy with that.
    fn leave_behind_the_late(&self, parties: &mut Vec<Boarded<Told>>) {
        let patience = self.shared.patience;
        // A store that is slower than everybody's patience is still asked by those who have just come.
        let call_time = self.shared.shard(self.lane).call_time.min(patience / 2);
        let now = Instant::now();
        let late = |waiter: &&Waiter<Told>| now.duration_since(waiter.told.since) + call_time > patience;
        parties.retain_mut(|party| {
            // They stand in the order in which they came.
            let gone = party.waiters.iter().take_while(late).count();
            for waiter in party.waiters.drain(..gone) {
                party.times -= waiter.times;
                let _ = waiter.told.answer.send(Err(StoreError::Unavailable { fault: Fault::QueueFull }));
            }
            !party.waiters.is_empty()
        });
    }

    /// Hands the grants of a party out, first come first served. What was meant for one who is gone goes to
    /// the next in line: all of them were queued before the call was sent.
    fn hand_out(&self, party: Boarded<Told>, decided: Decided) -> Option<Return<Confirm>> {
        let Boarded { check, mut waiters, .. } = party;
        if waiters.len() == 1
            && let Some(waiter) = waiters.pop()
        {
            let unwanted = waiter.told.answer.send(Ok(Share { check, decided })).err()?;
            return unwanted.ok().and_then(|share| self.shared.unwanted(share));
        }
        let mut shares = Shares::new(&check, decided);
        for waiter in waiters {
            let decided = shares.offer(waiter.times);
            let granted = decided.answer.granted;
            if waiter.told.answer.send(Ok(Share { check: check.clone(), decided })).is_ok() {
                shares.take(granted);
            }
        }
        let taken = shares.rest();
        (!taken.is_empty()).then_some(Return { taken, told: None })
    }

    fn land(&mut self, left: Vec<Return<Confirm>>) {
        let State::Flying(held) = std::mem::replace(&mut self.state, State::Ended) else { return };
        let mut shard = self.shared.shard(self.lane);
        let lane = shard.lane(self.lane);
        // Before the counters are free: so that it goes before everybody who waits for them.
        left.into_iter().for_each(|back| lane.give_back(back));
        if lane.land(held) {
            self.state = State::Boarding;
        }
    }
}

/// A runner that ends before its time (its runtime is shut down, or the store panicked) leaves no counter
/// in flight. If it was the last one, nobody would come for those who wait: they are told so.
impl<B: Batch> Drop for Runner<B> {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Ended);
        if matches!(state, State::Ended) {
            return;
        }
        let mut shard = self.shared.shard(self.lane);
        let lane = shard.lane(self.lane);
        let boarding = match state {
            State::Boarding => true,
            State::Flying(held) => lane.land(held),
            State::Ended => false,
        };
        let stranded = if boarding && lane.abort() { lane.evacuate() } else { Vec::new() };
        drop(shard);
        for told in stranded {
            let _ = told.answer.send(Err(StoreError::Unavailable { fault: Fault::Disconnected }));
        }
    }
}
