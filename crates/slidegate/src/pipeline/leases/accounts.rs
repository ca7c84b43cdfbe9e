//! All purses, by the name of their check: so many at the most, since clients choose keys.

use parking_lot::{Mutex, MutexGuard};

use hashbrown::HashMap;
use slidegate_core::time::Millis;
use smallvec::SmallVec;

use super::account::Account;

/// The most purses, some 20 MB. The check that has none is not leased.
pub(super) const ACCOUNTS_MAX: usize = 65_536;

/// Purses are spread over so many locks.
const SHARDS: usize = 64;

/// A purse that nobody has asked for so long is forgotten when room is needed.
const IDLE: Millis = Millis(1000);

/// Looks for idle purses are so far apart, in microseconds: an attack with many keys must not make each check look
/// through a thousand of them.
const SWEEP_US: u64 = 100_000;

#[derive(Debug)]
pub(super) struct Accounts {
    shards: Box<[Mutex<Shard>]>,
}

/// A part of them.
#[derive(Debug, Default)]
pub(super) struct Shard {
    by_name: HashMap<u128, Account>,
    swept_us: u64,
}

impl Default for Accounts {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl Accounts {
    /// The part in which a purse lies.
    pub(super) fn of(&self, name: u128) -> MutexGuard<'_, Shard> {
        self.shards[(name % SHARDS as u128) as usize].lock()
    }

    /// Forgets what is leased of a counter.
    pub(super) fn reset(&self, counter: u128) {
        for shard in &self.shards {
            shard.lock().by_name.values_mut().for_each(|account| account.reset(counter));
        }
    }
}

impl Shard {
    pub(super) fn find(&mut self, name: u128) -> Option<&mut Account> {
        self.by_name.get_mut(&name)
    }

    /// The purse of this name, a new one if there is none; `None`: there is no room.
    pub(super) fn account(
        &mut self,
        name: u128,
        now_us: u64,
        counters: impl FnOnce() -> SmallVec<[u128; 2]>,
    ) -> Option<&mut Account> {
        if self.by_name.len() >= ACCOUNTS_MAX / SHARDS && !self.by_name.contains_key(&name) {
            if now_us < self.swept_us + SWEEP_US {
                return None;
            }
            self.swept_us = now_us;
            self.by_name.retain(|_, account| !account.is_idle(now_us, IDLE));
            if self.by_name.len() >= ACCOUNTS_MAX / SHARDS {
                return None;
            }
        }
        Some(self.by_name.entry(name).or_insert_with(|| Account::new(counters())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purses_are_bounded_and_idle_ones_make_way() {
        let accounts = Accounts::default();
        let open = |name: u128, now_us: u64| accounts.of(0).account(name, now_us, SmallVec::new).is_some();
        let most = (ACCOUNTS_MAX / SHARDS) as u128;
        assert!((0..most).all(|name| open(name, 1)));
        assert!(!open(most, 2_000));
        assert!(open(0, 2_000), "one that is known has its place");
        assert!(open(most, 3_000_000));
    }
}
