//! Decisions of an instance that can't ask the store: each counter is held to this instance's share of its limit.
//!
//! The decisions are the core's own, all or nothing over the counters of a check, on counters that are kept here. A
//! counter of which the instance remembers what it was granted begins with that, and for the first window of an era is
//! held to what the instance held when the era began, if that is less than the share
//! ([`standing`](slidegate_core::instance::standing)); so traffic that moves between instances doesn't add up. What is
//! granted here is told to the store once it is back.
//!
//! # What all instances together admit
//! * All of them cut off at once: N in any window, and after the first one from the shares alone. Of a key that an
//!   instance has no history of, its share besides, in the first window.
//! * `p` of `k` cut off while the others reach the store: N (1 + p/k).
//!
//! # What it is not
//! No store: nothing is reserved or settled here, and what is forgotten can't be told from what never was.
//!
//! # Invariants
//! * One lock for all: a decision takes a microsecond or two, and no call is made under it.
//! * At most [`COUNTERS_MAX`] counters; those in which nothing is used make room. Without room nothing is decided.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use slidegate_core::algorithm::State;
use slidegate_core::check::{self, decide};
use slidegate_core::decision::Outcome;
use slidegate_core::instance::Era;
use slidegate_core::instance::share::{Place, at_most, share_of};
use slidegate_core::instance::standing::local_cap;
use slidegate_core::limit::Limit;
use slidegate_core::time::Now;
use smallvec::SmallVec;

use crate::clock::{Clock, SystemClock};
use crate::pipeline::batch::{OwnedCharge, OwnedCheck};
use crate::pipeline::nodes::Nodes;

/// The most counters: some 80 MB, and more keys than an instance is asked about in a short outage. What an attacker
/// makes up during an outage is denied beyond.
const COUNTERS_MAX: usize = 250_000;
/// Below, looking is not worth it.
const SWEEP_MIN: usize = 1_024;
/// Between two looks while it is full: one takes some 10 ms.
const SWEEP_SPACING_US: u64 = 1_000_000;

/// Counters of this instance alone.
#[derive(Debug)]
pub(super) struct Local {
    /// The time at 0 of the instance's clock: limits that are aligned to the clock stay so.
    base_us: u64,
    counters: Mutex<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    by_key: HashMap<Arc<[u8]>, Counter>,
    /// The size at which a look for what can be forgotten pays again.
    sweep_at: usize,
    swept_us: u64,
}

#[derive(Debug)]
struct Counter {
    state: State,
    /// What it was held to last.
    limit: Limit,
    /// Whether the ledger remembers what it holds.
    exact: bool,
    /// The newest of the ledger's grants that it holds.
    newest: u64,
}

/// What a check came to here.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    pub(super) granted: u32,
    /// One for each charge.
    pub(super) outcomes: SmallVec<[Outcome; 2]>,
}

impl Local {
    /// `now_us` is the instance's clock.
    pub(super) fn new(now_us: u64) -> Self {
        let base_us = SystemClock.now().as_micros().saturating_sub(now_us);
        Self { base_us, counters: Mutex::default() }
    }

    /// Decides a check; `eras` are those that its charges' nodes are away for, in order: none of one that is held to
    /// be well. `None`: there is no room for it.
    pub(super) fn decide<N: Nodes>(
        &self,
        nodes: &N,
        (check, times): (&OwnedCheck, u32),
        eras: &[Option<Era>],
        place: Place,
    ) -> Option<Decided> {
        let now_us = nodes.now_us();
        let now = self.at(now_us);
        let mut counters = self.counters.lock();
        if !counters.has_room(check, now) {
            return None;
        }
        let mut held: SmallVec<[Counter; 2]> = check
            .charges
            .iter()
            .zip(eras)
            .map(|(charge, era)| {
                let before = counters.by_key.remove(charge.key.name());
                self.bring_up(nodes, charge, *era, place, now_us, before)
            })
            .collect();
        let mut charges: SmallVec<[check::Charge<'_>; 2]> = held
            .iter_mut()
            .zip(&check.charges)
            .map(|(counter, charge)| {
                let Counter { state, limit, .. } = counter;
                check::Charge::new(state, limit, charge.cost, charge.group, charge.terms)
            })
            .collect();
        let granted = decide(now, times, &mut charges);
        let outcomes = charges.iter().map(|charge| charge.outcome).collect();
        let taken: SmallVec<[u32; 2]> =
            charges.iter().map(|charge| charge.receipt.map_or(0, |receipt| receipt.units)).collect();
        drop(charges);
        for (((mut counter, charge), units), era) in held.into_iter().zip(&check.charges).zip(taken).zip(eras)
        {
            if charge.exact && units > 0 {
                counter.newest = nodes.granted(&charge.key, &charge.limit, *era, units);
            }
            counters.by_key.insert(charge.key.shared_name().clone(), counter);
        }
        Some(Decided { granted, outcomes })
    }

    /// A counter with what it holds, and the limit that it is held to now.
    fn bring_up<N: Nodes>(
        &self,
        nodes: &N,
        charge: &OwnedCharge,
        era: Option<Era>,
        place: Place,
        now_us: u64,
        before: Option<Counter>,
    ) -> Counter {
        let share = share_of(&charge.limit, place);
        let fresh = |limit| Counter { state: State::new(&limit, 0), limit, exact: charge.exact, newest: 0 };
        if !charge.exact {
            let mut counter = before.unwrap_or_else(|| fresh(share));
            counter.limit = share;
            return counter;
        }
        let known = before.as_ref().map_or(0, |counter| counter.newest);
        let history = nodes.history(&charge.key, &charge.limit, era, known);
        // The only instance knows of all that was granted: nothing can add up.
        let limit = if place.of() == 1 {
            share
        } else {
            let era = era.unwrap_or(Era { number: 0, began_us: now_us });
            let cap = local_cap(era, now_us, share.window(), share.permits(), history.held_when);
            at_most(&share, cap)
        };
        let mut counter = match (before, history.grants) {
            (Some(counter), None) => counter,
            (None, None) => fresh(limit),
            (_, Some(grants)) => {
                let mut counter = fresh(limit);
                for (at_us, count) in grants {
                    let at = self.at(at_us);
                    counter.state.settle(at, &limit);
                    counter.state.charge(at, &limit, count);
                }
                counter.newest = history.newest;
                counter
            }
        };
        counter.limit = limit;
        counter
    }

    /// Forgets what need not be kept while the store is there: what the ledger remembers anyway, and counters in which
    /// nothing is used.
    pub(super) fn tidy(&self, now_us: u64) {
        let now = self.at(now_us);
        let mut counters = self.counters.lock();
        counters.by_key.retain(|_, counter| !counter.exact && counter.is_used(now));
        counters.by_key.shrink_to_fit();
        counters.sweep_at = 0;
    }

    /// How many counters are held.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.counters.lock().by_key.len()
    }

    fn at(&self, us: u64) -> Now {
        Now::from_micros(self.base_us.saturating_add(us))
    }
}

impl Counters {
    /// Whether the counters of a check may be added.
    fn has_room(&mut self, check: &OwnedCheck, now: Now) -> bool {
        let most = COUNTERS_MAX - check.charges.len();
        let full = self.by_key.len() > most && now.as_micros() >= self.swept_us + SWEEP_SPACING_US;
        if full || self.by_key.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.by_key.retain(|_, counter| counter.is_used(now));
            (self.sweep_at, self.swept_us) = (self.by_key.len() * 2, now.as_micros());
        }
        self.by_key.len() <= most
            || check.charges.iter().all(|charge| self.by_key.contains_key(charge.key.name()))
    }
}

impl Counter {
    fn is_used(&mut self, now: Now) -> bool {
        self.state.settle(now, &self.limit);
        self.state.used() > 0
    }
}
