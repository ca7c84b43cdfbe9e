//! Permits that are put back into the middle of a log, since a failover has lost them.
//!
//! # Invariants
//! * Ticks keep their order, and permits of one tick an entry. What refunds have emptied goes.
//! * The epoch changes: a receipt from before may name a tick whose permits were lost, and must not take those that
//!   stand in their place. What is refunded of it is refused: too little, never too much.
//! * `used` may exceed N afterwards, as when a limit is lowered: nothing is granted until it no longer does.

use alloc::vec::Vec;

use super::{Entry, Ring, TickLog, low_32};
use crate::lease::LEASE_MAX;
use crate::limit::Limit;
use crate::time::{Millis, Now};

impl TickLog {
    /// Puts permits back by how long ago they were spent, the oldest first; some of them may be spent until `lease`
    /// from now. Those that have left the window are left out. Returns how many count. The log is settled.
    pub(super) fn put_back(
        &mut self,
        now: Now,
        limit: &Limit,
        entries: &[(Millis, u32)],
        lease: Millis,
    ) -> u32 {
        let mut span = self.lease_span();
        if lease > Millis::ZERO {
            span.extend(now.ceil_ms(), lease.min(LEASE_MAX));
        }
        // While the clock has yet to catch up with the log, its charges are dated at the log's last tick, and move with it
        // should it be shifted. So does what is put back.
        let ahead = self.used > 0 && self.last_tick > self.natural_tick(now);
        let now_ms = if ahead { self.end_ms(self.last_tick) } else { now.ceil_ms() };
        let mut units = 0;
        let mut kept = Vec::with_capacity(entries.len());
        for (age, count) in entries {
            let tick = now_ms.saturating_sub(age.0).div_ceil(u64::from(self.r_ms));
            let count = (*count).min(u32::MAX - self.used - units);
            if count > 0 && span.leaves_at_ms(self.end_ms(tick), limit.window()) > now.floor_ms() {
                kept.push((tick, count));
                units += count;
            }
        }
        if units == 0 {
            return 0;
        }
        if span.longest > Millis::ZERO {
            **self.lease.get_or_insert_default() = span;
        }
        self.epoch = self.epoch.wrapping_add(1);
        self.merge(&kept);
        self.used += units;
        while self.older.len() > Self::entries_max(limit) {
            self.raise_r(self.r_ms.saturating_mul(2));
        }
        units
    }

    /// Merges (tick, count) pairs, whose ticks don't fall, into the entries.
    fn merge(&mut self, kept: &[(u64, u32)]) {
        let mut own = Vec::with_capacity(self.older.len() + 1);
        if self.used > 0 {
            let absolute = |entry: &Entry| (self.last_tick.saturating_sub(self.age(*entry)), entry.count);
            own.extend(self.older.iter().filter(|entry| entry.count > 0).map(absolute));
            own.push((self.last_tick, self.newest));
        }
        let mut merged: Vec<(u64, u32)> = Vec::with_capacity(own.len() + kept.len());
        let (mut own, mut kept) = (own.into_iter().peekable(), kept.iter().copied().peekable());
        loop {
            let next = match (own.peek(), kept.peek()) {
                (Some(mine), Some(back)) if mine.0 <= back.0 => own.next(),
                (Some(_), None) => own.next(),
                _ => kept.next(),
            };
            let Some((tick, count)) = next else { break };
            match merged.last_mut() {
                Some(last) if last.0 == tick => last.1 += count,
                // The last tick, if refunds have emptied it and it is no longer the last.
                Some(last) if last.1 == 0 => *last = (tick, count),
                _ => merged.push((tick, count)),
            }
        }
        let Some((tick, count)) = merged.pop() else { return };
        (self.last_tick, self.newest) = (tick, count);
        self.older = Ring::with_capacity(merged.len());
        for (tick, count) in merged {
            self.older.push_back(Entry { tick: low_32(tick), count });
        }
    }
}
