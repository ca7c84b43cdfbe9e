//! The nodes of a store as a test wants them, and this instance among as many others as it says.

use std::collections::HashMap;

use parking_lot::Mutex;
use slidegate_core::instance::grants::Grants;
use slidegate_core::instance::share::Place;
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_core::time::Millis;

use super::*;
use crate::pipeline::batch::{CounterKey, OwnedCharge};
use crate::pipeline::nodes::History;

/// What a test may say.
#[derive(Debug)]
pub(super) struct Peers {
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    away: Option<Away>,
    place: Option<Place>,
    eras: u32,
    seq: u64,
    grants: HashMap<CounterKey, Grants>,
}

impl Peers {
    /// All nodes are well, and nobody knows who else is there.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { started: Instant::now(), state: Mutex::default() })
    }

    /// This instance is one of so many.
    pub(super) fn is(&self, place: u32, of: u32) {
        self.state.lock().place = Some(Place::new(place, of));
    }

    /// The nodes fail from now on: an era begins.
    pub(super) fn fail(&self, fault: Option<Fault>) {
        let began_us = self.now_us();
        let mut state = self.state.lock();
        state.eras += 1;
        state.away = Some(Away { era: Era { number: state.eras, began_us }, fault });
    }

    pub(super) fn recover(&self) {
        self.state.lock().away = None;
    }

    /// The store granted so much of a counter of all keys.
    pub(super) fn store_granted(&self, limit: &Limit, policy: &str, units: u32) {
        self.granted(&name(policy, 0), limit, None, units);
    }

    /// What the ledger holds of it.
    pub(super) fn held(&self, policy: &str, window: Millis) -> u32 {
        let now_us = self.now_us();
        let mut state = self.state.lock();
        state.grants.get_mut(&name(policy, 0)).map_or(0, |grants| grants.held(now_us, window))
    }
}

fn name(policy: &str, index: usize) -> CounterKey {
    CounterKey::new(format!("{policy}:{index}").as_bytes(), 0)
}

impl Nodes for Peers {
    fn are_troubled(&self) -> bool {
        self.state.lock().away.is_some()
    }

    fn away(&self, _: u16) -> Option<Away> {
        self.state.lock().away
    }

    fn slow_round_trip(&self, _: u16) -> Option<Duration> {
        None
    }

    fn doubt(&self, _: u16) -> Option<Era> {
        let began_us = self.now_us();
        let mut state = self.state.lock();
        state.eras += 1;
        Some(Era { number: state.eras, began_us })
    }

    fn own(&self, check: &Check<'_>) -> OwnedCheck {
        let mut index = 0;
        let charges = check.charges.iter().map(|charge| {
            let policy = charge.counter.policy;
            index =
                if std::ptr::eq(charge.counter.limit, &raw const policy.limits()[0]) { 0 } else { index + 1 };
            let limit = *charge.counter.limit.limit();
            OwnedCharge {
                key: name(policy.name(), index),
                limit,
                cost: charge.cost,
                group: charge.group,
                terms: charge.terms,
                exact: matches!(limit.algorithm(), Algorithm::SlidingWindow { .. }),
            }
        });
        OwnedCheck { charges: charges.collect(), reserve: check.reserve, probe: false, lease: Millis::ZERO }
    }

    fn place(&self) -> Option<Place> {
        self.state.lock().place
    }

    fn history(&self, key: &CounterKey, limit: &Limit, era: Option<Era>, known: u64) -> History {
        let (now_us, window) = (self.now_us(), limit.window());
        let mut state = self.state.lock();
        let Some(grants) = state.grants.get_mut(key) else { return History::default() };
        let held_when = match era {
            Some(era) => grants.held_when(era, window),
            None => Some(grants.held(now_us, window)).filter(|held| *held > 0),
        };
        let newest = grants.newest();
        let grants = (newest != known).then(|| grants.entries(now_us, window).collect());
        History { newest, held_when, grants }
    }

    fn granted(&self, key: &CounterKey, limit: &Limit, era: Option<Era>, units: u32) -> u64 {
        let now_us = self.now_us();
        let mut state = self.state.lock();
        state.seq += 1;
        let seq = state.seq;
        let grants = state.grants.entry(key.clone()).or_default();
        if let Some(era) = era {
            grants.held_when(era, limit.window());
        }
        grants.accept(now_us + 1, limit.window(), seq, units, Millis::ZERO);
        seq
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap()
    }
}
