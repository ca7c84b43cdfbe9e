//! What this instance remembers of each counter: the number of its last call whose grant it accepted, and what it was
//! granted in the last window.
//!
//! A call carries its own number and that one. The counter keeps, for each instance, the last call that it
//! granted something to, so it can tell a lost reply (its grant is taken back), a late duplicate (nothing
//! happens) and a store that has forgotten what it granted, and is told it again: see [`slidegate_core::ledger`].
//!
//! # Invariants
//! * Calls on one counter are made one after another: flights see to that, so without them nothing is kept. Those
//!   that only put back are made beside them, and take nothing for lost.
//! * A counter is forgotten only when what it was granted has left its window on any clock that does not step:
//!   forgotten sooner, a grant that was accepted would be taken for a lost one.
//!
//! # Memory
//! Some 300 bytes for a quiet counter, its name included; 32 more for each 200th of a window in which it was granted
//! anything, so 9 kB at the most.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use slidegate_core::instance::Era;
use slidegate_core::instance::grants::{Grants, PutBack};
use slidegate_core::instance::standing;
use slidegate_core::limit::Limit;
use slidegate_core::time::Millis;

use super::link::OwnTime;
use super::wire::Line;
use crate::pipeline::nodes::History;

/// The most counters remembered: some 300 MB if all are quiet. What comes beyond is decided without a ledger, as with
/// `failover: fast`.
const LEDGERS_MAX: usize = 1_000_000;

const SHARDS: usize = 64;

/// Ledgers of all counters.
#[derive(Debug)]
pub(super) struct Ledgers {
    identity: [u8; 8],
    next_seq: AtomicU64,
    time: OwnTime,
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Debug, Default)]
struct Shard {
    by_key: HashMap<Arc<[u8]>, Ledger>,
    /// The size at which a look for what can be forgotten pays again.
    sweep_at: usize,
}

#[derive(Clone, Debug)]
struct Ledger {
    ack: u64,
    reset_epoch: u64,
    long: bool,
    granted_us: u64,
    /// The one that it was held to last.
    limit: Limit,
    /// The longest that it was held to.
    window: Millis,
    grants: Grants,
}

/// What a reply says of a counter, beside the grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    /// Its last reset, where the reply says it.
    pub(super) reset_epoch: Option<u64>,
    /// Whether its value is a long one.
    pub(super) long: bool,
}

/// A grant that was accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accepted {
    /// The call's number.
    pub(super) seq: u64,
    /// How many permits.
    pub(super) units: u32,
    /// For how long they may be spent; zero: at once.
    pub(super) lease: Millis,
}

/// What may be taken of a counter in an era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// So many permits.
    pub(super) permits: u32,
    /// When that will be more, at the latest.
    pub(super) more_after: Millis,
}

impl Ledger {
    fn new(limit: &Limit) -> Self {
        let (limit, window) = (*limit, limit.window());
        Self { ack: 0, reset_epoch: 0, long: false, granted_us: 0, limit, window, grants: Grants::new() }
    }

    /// Twice the window and more: until then the counter may still hold this instance's row.
    fn can_be_forgotten(&self, now_us: u64) -> bool {
        let keep_us = (2 * self.window.get() + 60_000).saturating_mul(1000);
        now_us > self.granted_us.saturating_add(keep_us)
    }

    fn take(&mut self, now_us: u64, limit: &Limit, accepted: Accepted) {
        self.limit = *limit;
        self.window = self.window.max(limit.window());
        self.ack = self.ack.max(accepted.seq);
        self.granted_us = now_us + accepted.lease.get() * 1000;
        self.grants.accept(now_us, self.window, accepted.seq, accepted.units, accepted.lease);
    }
}

impl Ledgers {
    pub(super) fn new(time: OwnTime) -> Self {
        let random = crate::random::u128().to_le_bytes();
        let mut identity = [0; 8];
        identity.copy_from_slice(&random[..8]);
        Self {
            identity,
            next_seq: AtomicU64::new(1),
            time,
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Who this instance is to the counters: fresh with each start.
    pub(super) const fn identity(&self) -> [u8; 8] {
        self.identity
    }

    /// The number of the next call. They rise, over all counters.
    pub(super) fn next_seq(&self) -> u64 {
        self.next_seq.fetch_add(1, Ordering::Relaxed)
    }

    /// What a call says about a counter; `None`: there is no room to remember it.
    pub(super) fn line(&self, key: &Arc<[u8]>) -> Option<Line> {
        let mut shard = self.shard(key);
        let Some(ledger) = shard.by_key.get_mut(key) else {
            return shard.has_room(self.time).then(Line::default);
        };
        let lapsed = ledger.grants.held(self.time.now_us(), ledger.window) == 0;
        Some(Line { ack: ledger.ack, reset_epoch: ledger.reset_epoch, lapsed, long: ledger.long })
    }

    /// Takes note of an accepted grant, and of what the reply says of the counter.
    pub(super) fn accept(&self, key: &Arc<[u8]>, limit: &Limit, accepted: Accepted, said: Said) {
        let now_us = self.time.now_us() + 1;
        let mut shard = self.shard(key);
        let ledger = match shard.by_key.get_mut(key) {
            Some(ledger) => ledger,
            None => shard.by_key.entry(key.clone()).or_insert_with(|| Ledger::new(limit)),
        };
        if let Some(reset_epoch) = said.reset_epoch
            && reset_epoch != ledger.reset_epoch
        {
            // What was granted before a reset is not put back.
            if reset_epoch > ledger.reset_epoch {
                ledger.grants.clear();
            }
            ledger.reset_epoch = reset_epoch;
        }
        ledger.long = said.long;
        ledger.take(now_us, limit, accepted);
    }

    /// Takes note of permits that this instance granted by itself, while there was no store to ask. They are put back
    /// like any others.
    /// Returns the number of the grant; 0 if there is no room to remember it.
    pub(super) fn grant_locally(&self, key: &Arc<[u8]>, limit: &Limit, era: Option<Era>, units: u32) -> u64 {
        let (seq, now_us) = (self.next_seq(), self.time.now_us() + 1);
        let mut shard = self.shard(key);
        if !shard.by_key.contains_key(key) && !shard.has_room(self.time) {
            return 0;
        }
        let ledger = shard.by_key.entry(key.clone()).or_insert_with(|| Ledger::new(limit));
        // Before: what is granted in an era was not held when it began.
        if let Some(era) = era {
            ledger.grants.held_when(era, ledger.window);
        }
        ledger.take(now_us, limit, Accepted { seq, units, lease: Millis::ZERO });
        seq
    }

    /// What was granted of a counter, for decisions without the store. `known`: the newest grant that is known there.
    /// Without an era, what was held when it began is what is held now.
    pub(super) fn history(&self, key: &Arc<[u8]>, limit: &Limit, era: Option<Era>, known: u64) -> History {
        let now_us = self.time.now_us();
        let mut shard = self.shard(key);
        let Some(ledger) = shard.by_key.get_mut(key) else { return History::default() };
        let window = ledger.window.max(limit.window());
        let held_when = match era {
            Some(era) => ledger.grants.held_when(era, window),
            None => Some(ledger.grants.held(now_us, window)).filter(|held| *held > 0),
        };
        let newest = ledger.grants.newest();
        let grants = (newest != known).then(|| ledger.grants.entries(now_us, window).collect());
        History { newest, held_when, grants }
    }

    /// Takes note of a call whose reply did not arrive and is not waited for any more.
    pub(super) fn lost(&self, key: &Arc<[u8]>, seq: u64) {
        if let Some(ledger) = self.shard(key).by_key.get_mut(key) {
            ledger.grants.lost(seq);
        }
    }

    /// Takes note of permits that nobody will spend.
    pub(super) fn give_back(&self, key: &Arc<[u8]>, units: u32) {
        if let Some(ledger) = self.shard(key).by_key.get_mut(key) {
            ledger.grants.give_back(units);
        }
    }

    /// Takes note of a reset.
    pub(super) fn reset(&self, key: &Arc<[u8]>) {
        if let Some(ledger) = self.shard(key).by_key.get_mut(key) {
            ledger.grants.clear();
        }
    }

    /// What a counter is to be told that knows of no call after `stored`; `None`: nothing.
    pub(super) fn missing_after(&self, key: &Arc<[u8]>, stored: u64) -> Option<PutBack> {
        let now_us = self.time.now_us();
        let mut shard = self.shard(key);
        let ledger = shard.by_key.get_mut(key)?;
        Some(ledger.grants.missing_after(now_us, ledger.window, stored))
    }

    /// What may be taken of a counter in a roll call; `None`: as much as the store grants. `share`: of its limit.
    pub(super) fn room(&self, key: &Arc<[u8]>, limit: &Limit, era: Era, share: u32) -> Option<Room> {
        let now_us = self.time.now_us();
        let mut shard = self.shard(key);
        let mut fresh = Grants::new();
        let (grants, window) = match shard.by_key.get_mut(key) {
            Some(ledger) => (&mut ledger.grants, ledger.window.max(limit.window())),
            None => (&mut fresh, limit.window()),
        };
        let held_then = grants.held_when(era, window);
        let cap = standing::roll_call_cap(era, now_us, limit.window(), share, held_then)?;
        let permits = standing::room(cap, grants.held(now_us, window));
        let ends_us = era.began_us.saturating_add(limit.window().get() * 1000);
        let ends = Millis(ends_us.saturating_sub(now_us).div_ceil(1000));
        Some(Room {
            permits,
            more_after: grants.oldest_leaves_after(now_us, window).min(ends).max(Millis(1)),
        })
    }

    /// Remembers of every counter what it held when an era began. At its beginning: what is granted later must not
    /// count, and what leaves meanwhile must.
    ///
    /// Of every counter, whichever master has it: a cluster may tell only later. 0.1 us for each.
    pub(super) fn enter(&self, era: Era) {
        for shard in &self.shards {
            for ledger in shard.lock().by_key.values_mut() {
                ledger.grants.held_when(era, ledger.window);
            }
        }
    }

    /// The counters that this instance holds something of.
    pub(super) fn active(&self, concerns: impl Fn(&[u8]) -> bool) -> Vec<(Arc<[u8]>, Limit)> {
        let now_us = self.time.now_us();
        let mut found = Vec::new();
        for shard in &self.shards {
            for (key, ledger) in &mut shard.lock().by_key {
                if ledger.grants.held(now_us, ledger.window) > 0 && concerns(key) {
                    found.push((key.clone(), ledger.limit));
                }
            }
        }
        found
    }

    fn shard(&self, key: &Arc<[u8]>) -> MutexGuard<'_, Shard> {
        #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
        let hash = self.hasher.hash_one(key) as usize;
        self.shards[hash % SHARDS].lock()
    }
}

impl Shard {
    fn has_room(&mut self, time: OwnTime) -> bool {
        if self.by_key.len() >= self.sweep_at.max(64) {
            let now_us = time.now_us();
            self.by_key.retain(|_, ledger| !ledger.can_be_forgotten(now_us));
            self.sweep_at = self.by_key.len() * 2;
        }
        self.by_key.len() < LEDGERS_MAX / SHARDS
    }
}
