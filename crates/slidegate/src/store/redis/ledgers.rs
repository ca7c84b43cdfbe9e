//! What this instance remembers of each counter: the number of its last call whose grant it accepted.
//!
//! A call carries its own number and that one. The counter keeps, for each instance, the last call that it
//! granted something to, so it can tell a lost reply (its grant is taken back), a late duplicate (nothing
//! happens) and a store that has forgotten what it granted: see [`slidegate_core::ledger`].
//!
//! # Invariants
//! * Calls on one counter are made one after another: flights see to that, so without them nothing is kept.
//! * A counter is forgotten only when what it was granted has left its window on any clock that does not step:
//!   forgotten sooner, a grant that was accepted would be taken for a lost one.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use slidegate_core::time::Millis;
use tokio::time::Instant;

use super::wire::Line;

/// The most counters remembered: some 150 MB. What comes beyond is decided without a ledger, as with
/// `failover: fast`.
const LEDGERS_MAX: usize = 1_000_000;

const SHARDS: usize = 64;

/// Ledgers of all counters.
#[derive(Debug)]
pub(super) struct Ledgers {
    identity: [u8; 8],
    next_seq: AtomicU64,
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Debug, Default)]
struct Shard {
    by_key: HashMap<Arc<[u8]>, Ledger>,
    /// The size at which a look for what can be forgotten pays again.
    sweep_at: usize,
}

#[derive(Clone, Copy, Debug)]
struct Ledger {
    ack: u64,
    reset_epoch: u64,
    long: bool,
    granted_at: Instant,
    window: Millis,
}

/// What a reply says of a counter, beside the grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    /// Its last reset, where the reply says it.
    pub(super) reset_epoch: Option<u64>,
    /// Whether its value is a long one.
    pub(super) long: bool,
}

impl Ledger {
    fn age(&self) -> Duration {
        self.granted_at.elapsed()
    }

    /// Twice the window and more: until then the counter may still hold this instance's row.
    fn can_be_forgotten(&self) -> bool {
        self.age() > 2 * Duration::from(self.window) + Duration::from_secs(60)
    }
}

impl Ledgers {
    pub(super) fn new() -> Self {
        let random = crate::random::u128().to_le_bytes();
        let mut identity = [0; 8];
        identity.copy_from_slice(&random[..8]);
        Self {
            identity,
            next_seq: AtomicU64::new(1),
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
        let mut shard = self.shard(key).lock();
        let Some(ledger) = shard.by_key.get(key) else {
            return shard.has_room().then(Line::default);
        };
        let lapsed = ledger.age() > Duration::from(ledger.window);
        Some(Line { ack: ledger.ack, reset_epoch: ledger.reset_epoch, lapsed, long: ledger.long })
    }

    /// Takes note of an accepted grant, and of what the reply says of the counter.
    pub(super) fn accept(&self, key: &Arc<[u8]>, seq: u64, said: Said, window: Millis) {
        let mut shard = self.shard(key).lock();
        let granted_at = Instant::now();
        let long = said.long;
        match shard.by_key.get_mut(key) {
            Some(ledger) => {
                let reset_epoch = said.reset_epoch.unwrap_or(ledger.reset_epoch);
                let window = window.max(ledger.window);
                let ack = seq.max(ledger.ack);
                *ledger = Ledger { ack, reset_epoch, long, granted_at, window };
            }
            None => {
                let reset_epoch = said.reset_epoch.unwrap_or_default();
                shard.by_key.insert(key.clone(), Ledger { ack: seq, reset_epoch, long, granted_at, window });
            }
        }
    }

    fn shard(&self, key: &Arc<[u8]>) -> &Mutex<Shard> {
        #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
        let hash = self.hasher.hash_one(key) as usize;
        &self.shards[hash % SHARDS]
    }
}

impl Shard {
    fn has_room(&mut self) -> bool {
        if self.by_key.len() >= self.sweep_at.max(64) {
            self.by_key.retain(|_, ledger| !ledger.can_be_forgotten());
            self.sweep_at = self.by_key.len() * 2;
        }
        self.by_key.len() < LEDGERS_MAX / SHARDS
    }
}
