//! `sliding_window`: an exact sliding log that keeps *(tick, count)* pairs instead of requests.
//!
//! All permits of one tick of r milliseconds share an entry, so memory depends on the window, never on the
//! request rate. An entry counts until the *last* instant of its tick is W old: it never over-admits, and
//! gives quota back at most r late. At r = 1 ms it decides what the [sorted log](super::sorted_log) decides.
//!
//! # Shape
//! The newest tick lives in the header (`newest`, dated `last_ms`) and moves into the ring of older entries
//! when the tick changes. Ring ticks are kept modulo 2^32 and read by their age against the newest, so a key
//! that is busy for months never wraps wrongly: plain offsets from a base fail after 49.7 days.
//!
//! # Invariants
//! * `last_ms` is a multiple of `r_ms`; older entries are in order and older than it.
//! * `used` is `newest` plus the ring's counts. Refunds may leave entries of zero.
//! * r is only ever raised while the log holds permits: two instances with different configurations must not
//!   push it back and forth.
//! * A log without permits has an empty ring, so its r is free.
//!
//! It knows nothing of its bytes in Redis: [`layout`] does.

use alloc::collections::VecDeque;

use super::backstep::shift_ms;
use crate::decision::Cost;
use crate::lease::LeaseSpan;
use crate::limit::{Algorithm, Limit};
use crate::time::{Millis, Now};

pub mod layout;

/// A log that fits in this many entries has ticks of 1 ms. 4096 entries are 32 kB in the store, and r is
/// then at most W / 4096: quota comes back at most 0.025 % of the window late.
pub const ENTRIES_TARGET: u64 = 4096;

/// The most older entries of a log with automatic resolution. W / r stays below it by construction; refused
/// requests that count (`count_denied`) can fill it, and then r is raised.
const ENTRIES_MAX: usize = 8192;

/// Ages are kept in 32 bits; half of them leaves room for a clock that is clamped.
const AGE_TICKS_MAX: u64 = 1 << 31;

/// (tick, count) pairs of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TickLog {
    /// End of the newest tick, in milliseconds on the store's clock.
    last_ms: u64,
    r_ms: u64,
    used: u32,
    newest: u32,
    older: VecDeque<Entry>,
    epoch: u32,
    lease: LeaseSpan,
}

/// Permits of one older tick. `tick` is the low 32 bits of its end divided by r.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tick: u32,
    count: u32,
}

impl TickLog {
    pub(super) const fn new(epoch: u32) -> Self {
        Self {
            last_ms: 0,
            r_ms: 1,
            used: 0,
            newest: 0,
            older: VecDeque::new(),
            epoch,
            lease: LeaseSpan { longest: Millis::ZERO, end_ms: 0 },
        }
    }

    pub(super) const fn used(&self) -> u32 {
        self.used
    }

    pub(super) const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The tick length in force.
    pub const fn resolution(&self) -> Millis {
        Millis(self.r_ms)
    }

    /// Entries held, the newest included.
    pub fn entries(&self) -> usize {
        self.older.len() + usize::from(self.used > 0)
    }

    // --- settle: bring the log up to now -------------------------------------------------------------

    pub(super) fn settle(&mut self, now: Now, limit: &Limit) {
        if self.used > 0 {
            self.expire(now, limit);
        }
        let wanted = wanted_r_ms(limit, self.lease.longest);
        if self.used == 0 {
            self.clear();
            self.r_ms = wanted;
            return;
        }
        // A clock that went back leaves expiry with nothing to do, so the order is free.
        let shift = shift_ms(self.last_ms, self.natural_ms(now), limit.window());
        if shift > 0 {
            self.shift(shift);
        }
        if wanted > self.r_ms {
            self.raise_r(wanted);
        }
    }

    fn expire(&mut self, now: Now, limit: &Limit) {
        let now_ms = now.floor_ms();
        let window = self.lease.window_at(now_ms, limit.window()).0;
        if self.last_ms.saturating_add(window) <= now_ms {
            self.used = 0;
            return;
        }
        while let Some(entry) = self.older.front().copied()
            && self.end_ms(entry.tick).saturating_add(window) <= now_ms
        {
            self.used -= entry.count;
            self.older.pop_front();
        }
    }

    fn clear(&mut self) {
        self.newest = 0;
        self.older.clear();
        self.lease = LeaseSpan::default();
    }

    /// Moves the whole history back by `shift`, a multiple of r, so that ages stay what they are.
    fn shift(&mut self, shift: u64) {
        self.epoch = self.epoch.wrapping_add(1);
        let ticks = low_32(shift / self.r_ms);
        self.older.iter_mut().for_each(|entry| entry.tick = entry.tick.wrapping_sub(ticks));
        self.last_ms -= shift;
        self.lease.end_ms = self.lease.end_ms.saturating_sub(shift);
    }

    /// Re-dates every entry at the end of the longer tick that it lies in: later, so never over-admitting.
    fn raise_r(&mut self, r_ms: u64) {
        let mut merged: VecDeque<Entry> = VecDeque::with_capacity(self.older.len());
        let last_ms = self.last_ms.next_multiple_of(r_ms);
        for entry in &self.older {
            if entry.count == 0 {
                continue;
            }
            let end_ms = self.end_ms(entry.tick).next_multiple_of(r_ms);
            let tick = low_32(end_ms / r_ms);
            match merged.back_mut() {
                _ if end_ms == last_ms => self.newest += entry.count,
                Some(back) if back.tick == tick => back.count += entry.count,
                _ => merged.push_back(Entry { tick, count: entry.count }),
            }
        }
        self.older = merged;
        self.last_ms = last_ms;
        self.r_ms = r_ms;
    }

    // --- charge and refund ---------------------------------------------------------------------------

    /// Takes `units` and returns the end of the tick that they went to. Saturates: counts never wrap.
    pub(super) fn charge(&mut self, now: Now, limit: &Limit, units: u32) -> u64 {
        let natural_ms = self.natural_ms(now);
        if self.used == 0 {
            self.older.clear();
            self.newest = 0;
            self.last_ms = natural_ms;
        } else if natural_ms > self.last_ms && units > 0 {
            if self.newest > 0 {
                self.make_space(limit);
                self.older.push_back(Entry { tick: low_32(self.last_ms / self.r_ms), count: self.newest });
            }
            self.newest = 0;
            self.last_ms = self.natural_ms(now);
        }
        let units = units.min(u32::MAX - self.used);
        self.newest += units;
        self.used += units;
        self.last_ms
    }

    /// Takes a lease of `units` that may be spent until `length` from now: see [`crate::lease`].
    pub fn lease(&mut self, now: Now, limit: &Limit, units: u32, length: Millis) -> u64 {
        let at_ms = self.charge(now, limit, units);
        self.lease.extend(at_ms, length);
        at_ms
    }

    /// A full ring first loses the entries that refunds have emptied, then its resolution.
    fn make_space(&mut self, limit: &Limit) {
        let entries_max = match limit.algorithm() {
            Algorithm::SlidingWindow { resolution: Some(_) } => crate::limit::RESOLUTION_ENTRIES_MAX as usize,
            _ => ENTRIES_MAX,
        };
        if self.older.len() < entries_max {
            return;
        }
        self.older.retain(|entry| entry.count > 0);
        while self.older.len() >= entries_max {
            self.raise_r(self.r_ms * 2);
        }
    }

    pub(super) fn refund(&mut self, at_ms: u64, units: u32) -> u32 {
        // The tick may have been merged into a longer one since.
        let at_ms = at_ms.checked_next_multiple_of(self.r_ms).unwrap_or(u64::MAX);
        let count = if at_ms == self.last_ms { Some(&mut self.newest) } else { self.older_count(at_ms) };
        let Some(count) = count else { return 0 };
        let units = units.min(*count);
        *count -= units;
        self.used -= units;
        units
    }

    fn older_count(&mut self, at_ms: u64) -> Option<&mut u32> {
        let age = u32::try_from(self.last_ms.checked_sub(at_ms)? / self.r_ms).ok()?;
        let last = low_32(self.last_ms / self.r_ms);
        // Oldest first: ages fall.
        let index = self.older.binary_search_by(|entry| age.cmp(&last.wrapping_sub(entry.tick))).ok()?;
        self.older.get_mut(index).map(|entry| &mut entry.count)
    }

    // --- what callers are told -----------------------------------------------------------------------

    pub(super) fn retry_after(&self, now: Now, limit: &Limit, cost: Cost) -> Millis {
        let over = (u64::from(self.used) + u64::from(cost)).saturating_sub(u64::from(limit.permits()));
        u32::try_from(over).map_or(Millis::ZERO, |over| self.freed_after(now, limit, over))
    }

    /// Time until at least `units` of those in use have slid out.
    pub(super) fn freed_after(&self, now: Now, limit: &Limit, units: u32) -> Millis {
        if units == 0 {
            return Millis::ZERO;
        }
        let mut freed = 0;
        let mut at_ms = self.last_ms;
        for entry in &self.older {
            freed += entry.count;
            if freed >= units {
                at_ms = self.end_ms(entry.tick);
                break;
            }
        }
        Millis(self.lease.leaves_at_ms(at_ms, limit.window()).saturating_sub(now.floor_ms()))
    }

    pub(super) fn expires_at_ms(&self, limit: &Limit) -> u64 {
        self.lease.leaves_at_ms(self.last_ms, limit.window())
    }

    // --- ticks ---------------------------------------------------------------------------------------

    /// The end of the tick that a charge at `now` falls into.
    const fn natural_ms(&self, now: Now) -> u64 {
        now.ceil_ms().next_multiple_of(self.r_ms)
    }

    /// The end of an older tick, from its age.
    const fn end_ms(&self, tick: u32) -> u64 {
        let age = low_32(self.last_ms / self.r_ms).wrapping_sub(tick);
        self.last_ms - age as u64 * self.r_ms
    }
}

/// The tick length that a limit asks for, in milliseconds.
fn wanted_r_ms(limit: &Limit, lease: Millis) -> u64 {
    let span = limit.window().0 + lease.0;
    let by_age = (span / AGE_TICKS_MAX + 1).next_power_of_two();
    match limit.algorithm() {
        Algorithm::SlidingWindow { resolution: Some(resolution) } => resolution.0.max(by_age),
        _ if span.min(u64::from(limit.permits())) <= ENTRIES_TARGET => by_age,
        _ => {
            let most = span / ENTRIES_TARGET;
            if most == 0 { 1 } else { 1 << most.ilog2() }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "ticks are kept modulo 2^32 on purpose")]
const fn low_32(tick: u64) -> u32 {
    tick as u32
}

#[cfg(test)]
mod tests;
