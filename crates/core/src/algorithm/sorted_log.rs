//! `sliding_log`: every admitted unit with its own millisecond.
//!
//! Plain on purpose: this is what "exact" means, and the [tick log](super::tick_log) is held against it
//! decision for decision. In Redis it is a sorted set with one member for each unit; here equal
//! milliseconds share an entry, which decides the same.
//!
//! Invariants: entries are in order of time, none later than `last_ms`, and hold at least one unit each;
//! `used` is their sum.

use alloc::collections::VecDeque;

use super::backstep::must_shift;
use crate::decision::Cost;
use crate::limit::Limit;
use crate::time::{Millis, Now};

/// Admitted units by the millisecond at which they were charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortedLog {
    entries: VecDeque<(u64, u32)>,
    /// The millisecond of the last charge, kept when its units are given back.
    last_ms: u64,
    used: u32,
    epoch: u32,
}

impl SortedLog {
    pub(super) const fn new(epoch: u32) -> Self {
        Self { entries: VecDeque::new(), last_ms: 0, used: 0, epoch }
    }

    pub(super) const fn used(&self) -> u32 {
        self.used
    }

    pub(super) const fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn settle(&mut self, now: Now, limit: &Limit) {
        if self.used > 0 && must_shift(self.last_ms, now.ceil_ms(), limit.window()) {
            self.shift(now);
        }
        while let Some((at, units)) = self.entries.front().copied()
            && at + limit.window().0 <= now.floor_ms()
        {
            self.used -= units;
            self.entries.pop_front();
        }
    }

    /// Moves the whole history back: see [`backstep`](super::backstep).
    fn shift(&mut self, now: Now) {
        let one_tick = self.entries.front().is_some_and(|(at, _)| *at == self.last_ms);
        let shift = self.last_ms - (now.ceil_ms() + u64::from(!one_tick));
        self.epoch = self.epoch.wrapping_add(1);
        self.last_ms -= shift;
        self.entries.iter_mut().for_each(|(at, _)| *at = at.saturating_sub(shift));
    }

    pub(super) fn charge(&mut self, now: Now, units: u32) -> u64 {
        let natural_ms = now.ceil_ms();
        if self.used > 0 {
            self.last_ms = self.last_ms.max(natural_ms);
        } else {
            // The clock stands where it stood before the log ran empty: receipts from then must not match.
            if natural_ms <= self.last_ms {
                self.epoch = self.epoch.wrapping_add(1);
            }
            self.last_ms = natural_ms;
        }
        self.used += units;
        match self.entries.back_mut() {
            Some((newest, count)) if *newest == self.last_ms => *count += units,
            _ => self.entries.push_back((self.last_ms, units)),
        }
        self.last_ms
    }

    pub(super) fn refund(&mut self, at_ms: u64, units: u32) -> u32 {
        let Ok(index) = self.entries.binary_search_by_key(&at_ms, |(at, _)| *at) else {
            return 0;
        };
        let units = units.min(self.entries[index].1);
        self.entries[index].1 -= units;
        self.used -= units;
        if self.entries[index].1 == 0 {
            self.entries.remove(index);
        }
        units
    }

    pub(super) fn retry_after(&self, now: Now, limit: &Limit, cost: Cost) -> Millis {
        let over = (u64::from(self.used) + u64::from(cost)).saturating_sub(u64::from(limit.permits()));
        self.freed_after(now, limit, over)
    }

    /// Time until at least `units` of those in use have slid out.
    pub(super) fn freed_after(&self, now: Now, limit: &Limit, units: u64) -> Millis {
        let mut freed = 0;
        for (at, count) in &self.entries {
            if freed >= units {
                break;
            }
            freed += u64::from(*count);
            if freed >= units {
                return Millis((at + limit.window().0).saturating_sub(now.floor_ms()));
            }
        }
        Millis::ZERO
    }

    pub(super) fn expires_at_ms(&self, limit: &Limit) -> u64 {
        self.entries.back().map_or(0, |(at, _)| at + limit.window().0)
    }
}
