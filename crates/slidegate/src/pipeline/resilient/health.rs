//! Whether the store fails, as told in the log: two states, and a pause between them.
//!
//! ```text
//! healthy   a call fails                                   => failing
//! failing   a call is answered, none failed for QUIET      => healthy
//! ```
//!
//! It decides nothing: what is answered follows from each call alone. Pure: times are microseconds since
//! any start and come as arguments.

use std::sync::atomic::{AtomicU64, Ordering};

use slidegate_core::time::Millis;

/// How long no call may have failed before the store is said to be back. A store that fails one call in a
/// hundred is failing; two lines for each of those would fill the log.
const QUIET: Millis = Millis(1000);

/// What the log is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The store was healthy until now.
    Failing,
    /// The store failed until now.
    Recovered {
        /// Since the first failure.
        after: Millis,
    },
}

/// The state; shared by all calls, without a lock.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// When a call last failed, and one more: 0 is healthy.
    last: AtomicU64,
    /// When the first of these failed.
    first: AtomicU64,
}

impl Health {
    /// One load: this is asked for each call.
    pub(super) fn is_failing(&self) -> bool {
        self.last.load(Ordering::Relaxed) != 0
    }

    /// A call failed.
    pub(super) fn failed(&self, now_us: u64) -> Option<Change> {
        let before = self.last.fetch_max(now_us.saturating_add(1), Ordering::Relaxed);
        if before != 0 {
            return None;
        }
        self.first.store(now_us, Ordering::Relaxed);
        Some(Change::Failing)
    }

    /// A call was answered. Of several at once, one makes the change.
    pub(super) fn answered(&self, now_us: u64) -> Option<Change> {
        let last = self.last.load(Ordering::Relaxed);
        let quiet = now_us.saturating_sub(last.checked_sub(1)?);
        if quiet < QUIET.get() * 1000 {
            return None;
        }
        self.last.compare_exchange(last, 0, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        let after = now_us.saturating_sub(self.first.load(Ordering::Relaxed));
        Some(Change::Recovered { after: Millis(after / 1000) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn one_change_when_it_begins_to_fail_and_one_when_it_is_back() {
        let health = Health::default();
        assert_eq!(health.answered(0), None);
        assert_eq!(health.failed(0), Some(Change::Failing));
        assert_eq!(health.failed(SECOND), None);
        assert_eq!(health.failed(2 * SECOND), None);
        assert!(health.is_failing());
        assert_eq!(health.answered(3 * SECOND), Some(Change::Recovered { after: Millis(3000) }));
        assert!(!health.is_failing());
        assert_eq!(health.answered(4 * SECOND), None);
        assert_eq!(health.failed(5 * SECOND), Some(Change::Failing));
    }

    #[test]
    fn a_store_that_fails_now_and_then_is_failing_all_the_while() {
        let health = Health::default();
        let mut changes = 0;
        for call in 0..10_000 {
            let now_us = call * 1000;
            let change = if call % 100 == 0 { health.failed(now_us) } else { health.answered(now_us) };
            changes += u32::from(change.is_some());
        }
        assert_eq!(changes, 1);
    }
}
