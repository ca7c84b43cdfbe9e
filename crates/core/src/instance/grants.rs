//! What this instance was granted of one key in the last window, so that it can be put back where a failover has
//! lost it.
//!
//! With asynchronous replication a promoted replica does not know the last grants. Their instances do: each puts its
//! own back ([`missing_after`](Grants::missing_after)), and then the key counts again what was spent. What an instance
//! was granted by itself while the store was away is remembered and put back in the same way.
//!
//! What it is not: it knows no store, sends nothing, and decides nothing ([`standing`](super::standing) does).
//!
//! # Why this is safe
//! A permit is spent when its grant is accepted, or later in its lease. It is dated then, not when the store took it:
//! so what is put back leaves the window no sooner than a window after it was spent, on a clock that runs as fast.
//! Entries that are merged are dated at the latest of them and numbered with the highest seq: then too much is put
//! back, or for too long, never too little. What is given back leaves the oldest entries, so that what stays is dated
//! later.
//!
//! # Invariants
//! * Instants of entries never fall from front to back.
//! * At most [`ENTRIES_MAX`] entries and [`LOST_MAX`] lost calls, so at most some 9 kB for the busiest key. A quiet one
//!   has a handful of entries of 32 bytes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Era;
use crate::time::Millis;

/// The most entries of a key, and of one put-back: a window in steps of a 200th, so that nothing is dated more than
/// 0.5 % of it too late, and the recent ones.
pub const ENTRIES_MAX: usize = 256;

/// So many of the latest grants are not merged. A failover loses the last calls, and what of an entry is not lost would
/// be put back with it: once more.
const RECENT: usize = 32;

/// The most calls without an accepted reply that are remembered. An earlier one is taken for accepted: then its grant
/// stays counted until it has left.
pub const LOST_MAX: usize = 16;

/// What one instance was granted of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    entries: VecDeque<Entry>,
    held: u32,
    lost: VecDeque<u64>,
    memo: Option<(u32, Option<u32>)>,
}

/// Permits that were accepted together, or one soon after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    seq: u64,
    /// When the last of them were accepted.
    accepted_us: u64,
    /// When they were spent at the latest.
    at_us: u64,
    count: u32,
}

/// What to put back into a key that knows nothing of an instance's calls after one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutBack {
    /// The last call that the key knew of when this was made; 0 if none. If it knows of another by then, this is
    /// not for it.
    pub stored: u64,
    /// Whether that call's reply was accepted; if not, what it was granted is taken out.
    pub accepted: bool,
    /// Permits that the key does not know of, by how long ago they were spent: the oldest first.
    pub entries: Vec<(Millis, u32)>,
    /// For how long some of them may still be spent.
    pub lease: Millis,
}

impl Grants {
    /// Remembers nothing yet.
    pub const fn new() -> Self {
        Self { entries: VecDeque::new(), held: 0, lost: VecDeque::new(), memo: None }
    }

    /// Takes note of a grant that was accepted at `now_us` and may be spent until `lease` later.
    pub fn accept(&mut self, now_us: u64, window: Millis, seq: u64, count: u32, lease: Millis) {
        self.expire(now_us, window);
        let spent_us = now_us.saturating_add(micros(lease));
        let at_us = self.entries.back().map_or(spent_us, |last| last.at_us.max(spent_us));
        if count == 0 {
            return;
        }
        let count = count.min(u32::MAX - self.held);
        self.held += count;
        self.entries.push_back(Entry { seq, accepted_us: now_us, at_us, count });
        self.merge_before_recent(window);
        if self.entries.len() > ENTRIES_MAX
            && let Some(oldest) = self.entries.pop_front()
            && let Some(next) = self.entries.front_mut()
        {
            next.count += oldest.count;
            next.seq = next.seq.max(oldest.seq);
        }
    }

    /// The entry that is no longer among the recent ones joins the one before it, if both are of one step.
    fn merge_before_recent(&mut self, window: Millis) {
        let Some(at) = self.entries.len().checked_sub(RECENT + 1).filter(|at| *at > 0) else { return };
        let (before, entry) = (self.entries[at - 1], self.entries[at]);
        let step_us = step_us(window);
        if before.at_us / step_us == entry.at_us / step_us {
            let (seq, count) = (before.seq.max(entry.seq), before.count + entry.count);
            self.entries[at] = Entry { seq, count, ..entry };
            self.entries.remove(at - 1);
        }
    }

    /// Takes note of a call whose reply was not accepted and never will be.
    pub fn lost(&mut self, seq: u64) {
        if self.lost.len() >= LOST_MAX {
            self.lost.pop_front();
        }
        self.lost.push_back(seq);
    }

    /// Takes note of permits that will not be spent.
    pub fn give_back(&mut self, mut count: u32) {
        while count > 0
            && let Some(oldest) = self.entries.front_mut()
        {
            let taken = oldest.count.min(count);
            oldest.count -= taken;
            self.held -= taken;
            count -= taken;
            if oldest.count == 0 {
                self.entries.pop_front();
            }
        }
    }

    /// Forgets what was granted: the key was reset.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.held = 0;
        self.memo = None;
    }

    /// The number of the newest grant that is held, or was; 0 if none was ever.
    pub fn newest(&self) -> u64 {
        self.entries.back().map_or(0, |last| last.seq)
    }

    /// All permits that were spent within the window, or will be: when, at the latest, in microseconds, and how many;
    /// the oldest first.
    pub fn entries(&mut self, now_us: u64, window: Millis) -> impl Iterator<Item = (u64, u32)> {
        self.expire(now_us, window);
        self.entries.iter().map(|entry| (entry.at_us, entry.count))
    }

    /// Permits that were spent within the window, or will be.
    pub fn held(&mut self, now_us: u64, window: Millis) -> u32 {
        self.expire(now_us, window);
        self.held
    }

    /// What was held when an era began; `None`: nothing. Remembered from the first time that it is asked for in an
    /// era: later, what has left since then is missing.
    pub fn held_when(&mut self, era: Era, window: Millis) -> Option<u32> {
        if let Some((number, held)) = self.memo
            && number == era.number
        {
            return held;
        }
        let begin_us = era.began_us;
        // What has been granted since was not held then: of a key that was new, or if the era of another master was asked
        // about meanwhile. Instants of grants are rounded up by a microsecond.
        let held_then = (self.entries.iter()).filter(|entry| {
            entry.accepted_us <= begin_us.saturating_add(1) && !has_left(entry, begin_us, window)
        });
        let held: u32 = held_then.map(|entry| entry.count).sum();
        let held = (held > 0).then_some(held);
        self.memo = Some((era.number, held));
        held
    }

    /// Until the oldest permit has left the window; zero if there is none.
    pub fn oldest_leaves_after(&self, now_us: u64, window: Millis) -> Millis {
        let leaves_us = self.entries.front().map_or(0, |oldest| oldest.at_us.saturating_add(micros(window)));
        Millis(leaves_us.saturating_sub(now_us).div_ceil(1000))
    }

    /// What a key is missing that knows of no call after `stored`.
    pub fn missing_after(&mut self, now_us: u64, window: Millis, stored: u64) -> PutBack {
        self.expire(now_us, window);
        let missing = || self.entries.iter().filter(|entry| entry.seq > stored);
        let age = |entry: &Entry| (Millis(now_us.saturating_sub(entry.at_us) / 1000), entry.count);
        let ends_us = missing().next_back().map_or(0, |last| last.at_us);
        PutBack {
            stored,
            accepted: !self.lost.contains(&stored),
            lease: Millis(ends_us.saturating_sub(now_us).div_ceil(1000)),
            entries: missing().map(age).collect(),
        }
    }

    fn expire(&mut self, now_us: u64, window: Millis) {
        while let Some(oldest) = self.entries.front()
            && has_left(oldest, now_us, window)
        {
            self.held -= oldest.count;
            self.entries.pop_front();
        }
    }
}

/// Whether permits that were spent at the entry's instant are a window old.
fn has_left(entry: &Entry, now_us: u64, window: Millis) -> bool {
    entry.at_us.saturating_add(micros(window)) <= now_us
}

/// Grants within this time share an entry, but for the recent ones.
fn step_us(window: Millis) -> u64 {
    (micros(window) / 200).max(1000)
}

const fn micros(millis: Millis) -> u64 {
    millis.0.saturating_mul(1000)
}

#[cfg(test)]
mod tests;
