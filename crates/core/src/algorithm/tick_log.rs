//! `sliding_window`: an exact sliding log that keeps *(tick, count)* pairs instead of requests.
//!
//! All permits of one tick of r milliseconds share an entry, so memory depends on the window, never on the
//! request rate. An entry counts until the *last* instant of its tick is W old: it never over-admits, and
//! gives quota back less than r late. At r = 1 ms it decides what the [sorted log](super::sorted_log)
//! decides.
//!
//! # Shape
//! A tick is named by its end, counted in r since the Unix epoch. The newest one lives in the header
//! (`last_tick`, holding `newest` permits) and moves into the ring of older entries when the tick changes.
//! Ring ticks are kept modulo 2^32 and read by their age against the newest, so a key that is busy for
//! months never wraps wrongly: plain offsets from a base fail after 49.7 days.
//!
//! # Invariants
//! * Ages of the older entries fall from front to back and are at least 1.
//! * `used` is `newest` plus the ring's counts. Refunds may leave entries of zero, but the oldest entry holds
//!   permits: when the next of them leaves is told by one look at it.
//! * r is only ever raised while the log holds permits: two instances with different configurations must not
//!   push it back and forth. It is raised to a multiple of itself, so that each tick lies within one of the
//!   longer ones and nothing is rounded up twice.
//! * A log without permits is as good as an empty one: its r is free, its ring and lease mean nothing.
//!
//! It knows nothing of its bytes in Redis: [`layout`] does. Nor of the ledger rows that lie beside it there and
//! name its ticks: [`image`] moves them along.

use alloc::boxed::Box;

use super::Receipt;
use super::backstep::must_shift;
use crate::decision::Cost;
use crate::lease::{LEASE_MAX, LeaseSpan};
use crate::limit::{Algorithm, Limit, RESOLUTION_ENTRIES_MAX};
use crate::time::{Millis, Now};

pub mod image;
pub mod layout;
mod put_back;
mod ring;

use ring::Ring;

/// A log that fits in this many entries has ticks of 1 ms. 4096 entries are 32 kB in the store, and r is
/// then at most W / 4096: quota comes back at most 0.025 % of the window late.
pub const ENTRIES_TARGET: u64 = 4096;

/// The most older entries of a log with automatic resolution. (W + l) / r stays below it by construction;
/// refused requests that count (`count_denied`) can fill it, and then r is raised.
const ENTRIES_MAX: u32 = 8192;

/// The most ticks that a window may have. Ages are kept in 32 bits; half of them leaves room for ticks
/// that are rounded up.
const AGE_TICKS_MAX: u64 = 1 << 31;

/// The longest tick that is asked for, in milliseconds: 24 days. A coarser `resolution` is held at this,
/// which is finer than asked; raising r to a multiple of itself then never leaves 32 bits.
const R_ASKED_MAX_MS: u64 = 1 << 31;

/// The most entries that an empty ring keeps allocated: enough for a quiet key to come and go without
/// allocating, little enough for a million of them.
const SPARE_ENTRIES_MAX: usize = 64;

/// (tick, count) pairs of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TickLog {
    older: Ring,
    /// Boxed, since few keys are ever leased: the bytes serve the ring.
    lease: Option<Box<LeaseSpan>>,
    /// The newest tick: its end on the store's clock is this many times r.
    last_tick: u64,
    r_ms: u32,
    used: u32,
    newest: u32,
    epoch: u32,
}

/// Permits of one older tick. `tick` is its low 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tick: u32,
    count: u32,
}

impl TickLog {
    pub(super) const fn new(epoch: u32) -> Self {
        Self { older: Ring::new(), lease: None, last_tick: 0, r_ms: 1, used: 0, newest: 0, epoch }
    }

    pub(super) const fn used(&self) -> u32 {
        self.used
    }

    pub(super) const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The tick length in force.
    pub const fn resolution(&self) -> Millis {
        Millis(self.r_ms as u64)
    }

    /// Entries held, the newest included.
    pub fn entries(&self) -> usize {
        self.older.len() + usize::from(self.used > 0)
    }

    /// The leases that the log has to wait for; none if there are none.
    pub fn lease_span(&self) -> LeaseSpan {
        self.lease.as_deref().copied().unwrap_or_default()
    }

    // --- settle: bring the log up to now -------------------------------------------------------------

    #[inline]
    pub(super) fn settle(&mut self, now: Now, limit: &Limit) {
        if self.used > 0 {
            self.step_back(now, limit);
            self.expire(now, limit);
        }
        let wanted = wanted_r_ms(limit, self.lease_span().longest);
        if self.used == 0 {
            self.clear(wanted);
        } else if wanted > self.r_ms {
            self.raise_r(wanted);
        }
    }

    /// Moves the whole history back if the clock went back far: see [`backstep`](super::backstep). Before
    /// anything expires, because the move brings some of it closer to its end. Returns by how many ticks.
    #[inline]
    fn step_back(&mut self, now: Now, limit: &Limit) -> u64 {
        let natural = self.natural_tick(now);
        if !must_shift(self.end_ms(self.last_tick), self.end_ms(natural), limit.window()) {
            return 0;
        }
        let one_tick = self.used == self.newest;
        let shift = self.last_tick - (natural + u64::from(!one_tick));
        if shift == 0 {
            return 0; // A tick longer than the window, already where it belongs.
        }
        self.epoch = self.epoch.wrapping_add(1);
        self.last_tick -= shift;
        for entry in self.older.iter_mut() {
            entry.tick = entry.tick.wrapping_sub(low_32(shift));
        }
        if let Some(lease) = &mut self.lease {
            lease.end_ms = lease.end_ms.saturating_sub(shift * u64::from(self.r_ms));
        }
        shift
    }

    #[inline]
    fn expire(&mut self, now: Now, limit: &Limit) {
        let now_ms = now.floor_ms();
        let span = self.lease_span();
        if !span.covers(now_ms, limit.window()) {
            self.lease = None;
        }
        let window = span.window_at(now_ms, limit.window()).0;
        if self.end_ms(self.last_tick) + window <= now_ms {
            self.used = 0;
            return;
        }
        // What a refund has emptied goes with what stood before it.
        while let Some(entry) = self.older.front().copied()
            && (entry.count == 0 || self.entry_end_ms(entry) + window <= now_ms)
        {
            self.used -= entry.count;
            self.older.pop_front();
        }
    }

    fn clear(&mut self, r_ms: u32) {
        self.newest = 0;
        self.lease = None;
        self.older.clear(SPARE_ENTRIES_MAX);
        if self.r_ms != r_ms {
            self.last_tick = self.end_ms(self.last_tick).div_ceil(u64::from(r_ms));
            self.r_ms = r_ms;
        }
    }

    /// Re-dates every entry at the end of the longer tick that it lies in: later, so never over-admitting.
    fn raise_r(&mut self, at_least_ms: u32) {
        let r_ms = at_least_ms.next_multiple_of(self.r_ms);
        let factor = u64::from(r_ms / self.r_ms);
        let last_tick = self.last_tick.div_ceil(factor);
        let mut merged = Ring::with_capacity(self.older.len().div_ceil(2));
        for entry in self.older.iter().filter(|entry| entry.count > 0) {
            // An entry of before the Unix epoch, after a shift to there, is dated at it: later, too.
            let tick = self.last_tick.saturating_sub(self.age(*entry)).div_ceil(factor);
            let count = entry.count;
            match merged.back_mut() {
                _ if tick == last_tick => self.newest += count,
                Some(back) if back.tick == low_32(tick) => back.count += count,
                _ => merged.push_back(Entry { tick: low_32(tick), count }),
            }
        }
        self.older = merged;
        self.last_tick = last_tick;
        self.r_ms = r_ms;
    }

    // --- charge and refund ---------------------------------------------------------------------------

    /// Takes `units`, which the count has room for, and returns the end of the tick that they went to.
    #[inline]
    pub(super) fn charge(&mut self, now: Now, limit: &Limit, units: u32) -> u64 {
        let natural = self.natural_tick(now);
        if self.used == 0 {
            // The clock stands where it stood before the log ran empty: receipts from then must not match.
            if natural <= self.last_tick {
                self.epoch = self.epoch.wrapping_add(1);
            }
            self.older.clear(SPARE_ENTRIES_MAX);
            self.newest = 0;
            self.last_tick = natural;
        } else if natural > self.last_tick {
            self.turn(now, limit);
        }
        self.newest += units;
        self.used += units;
        self.end_ms(self.last_tick)
    }

    /// Moves the newest tick into the ring and begins the next one.
    #[inline]
    fn turn(&mut self, now: Now, limit: &Limit) {
        if self.newest > 0 {
            self.make_space(limit);
        }
        // Making space may have raised r so far that now lies in the newest tick.
        let natural = self.natural_tick(now);
        if natural > self.last_tick {
            if self.newest > 0 {
                self.older.push_back(Entry { tick: low_32(self.last_tick), count: self.newest });
                self.newest = 0;
            }
            self.last_tick = natural;
        }
    }

    /// A full ring first loses the entries that refunds have emptied, then its resolution; unless an eighth
    /// is free then, because squeezing a few out for each new tick would cost a walk each time.
    fn make_space(&mut self, limit: &Limit) {
        let entries_max = Self::entries_max(limit);
        if self.older.len() < entries_max {
            return;
        }
        self.older.retain(|entry| entry.count > 0);
        while self.older.len() > entries_max - entries_max / 8 {
            self.raise_r(self.r_ms.saturating_mul(2));
        }
    }

    const fn entries_max(limit: &Limit) -> usize {
        let entries_max = match limit.algorithm() {
            Algorithm::SlidingWindow { resolution: Some(_) } => RESOLUTION_ENTRIES_MAX,
            _ => ENTRIES_MAX,
        };
        entries_max as usize
    }

    /// Takes `units` that may be spent until `length` from now, at most [`LEASE_MAX`], and holds the window
    /// open for them: see [`crate::lease`]. Whether they fit is the caller's to ask first.
    pub fn lease(&mut self, now: Now, limit: &Limit, units: u32, length: Millis) -> Receipt {
        let units = units.min(u32::MAX - self.used);
        let at_ms = if units > 0 { self.charge(now, limit, units) } else { 0 };
        if units > 0 && length > Millis::ZERO {
            self.lease.get_or_insert_default().extend(at_ms, length.min(LEASE_MAX));
        }
        Receipt { epoch: self.epoch, at_ms, units }
    }

    /// Gives back to the tick that ends at `at_ms`, if there is one. The tick of a receipt is not looked for
    /// in a longer one that it may have become part of: the permit may have slid out before, and its
    /// neighbours not.
    pub(super) fn refund(&mut self, at_ms: u64, units: u32) -> u32 {
        let r_ms = u64::from(self.r_ms);
        if !at_ms.is_multiple_of(r_ms) {
            return 0;
        }
        self.last_tick.checked_sub(at_ms / r_ms).map_or(0, |age| self.give_back(age, units))
    }

    /// Gives back up to `units` of the tick that is `age` ticks older than the last; returns how many.
    fn give_back(&mut self, age: u64, units: u32) -> u32 {
        let last_tick = low_32(self.last_tick);
        let age_of = |entry: &Entry| u64::from(last_tick.wrapping_sub(entry.tick));
        let count = match age {
            0 => Some(&mut self.newest),
            _ => self.older.find_mut(age, age_of).map(|entry| &mut entry.count),
        };
        let Some(count) = count else { return 0 };
        let units = units.min(*count);
        *count -= units;
        self.used -= units;
        while self.older.front().is_some_and(|entry| entry.count == 0) {
            self.older.pop_front();
        }
        units
    }

    // --- what callers are told -----------------------------------------------------------------------

    pub(super) fn retry_after(&self, now: Now, limit: &Limit, cost: Cost) -> Millis {
        let over = (u64::from(self.used) + u64::from(cost)).saturating_sub(u64::from(limit.permits()));
        self.freed_after(now, limit, over)
    }

    /// Time until at least `units` of those in use have slid out.
    #[inline]
    pub(super) fn freed_after(&self, now: Now, limit: &Limit, units: u64) -> Millis {
        if units == 0 {
            return Millis::ZERO;
        }
        let mut freed = 0;
        let mut at_ms = self.end_ms(self.last_tick);
        for entry in self.older.iter() {
            freed += u64::from(entry.count);
            if freed >= units {
                at_ms = self.entry_end_ms(*entry);
                break;
            }
        }
        let leaves_ms = self.lease_span().leaves_at_ms(at_ms, limit.window());
        Millis(leaves_ms.saturating_sub(now.floor_ms()))
    }

    #[inline]
    pub(super) fn expires_at_ms(&self, limit: &Limit) -> u64 {
        self.lease_span().leaves_at_ms(self.end_ms(self.last_tick), limit.window())
    }

    // --- ticks ---------------------------------------------------------------------------------------

    /// The tick that a charge at `now` falls into.
    const fn natural_tick(&self, now: Now) -> u64 {
        // The usual case, without a division.
        if self.r_ms == 1 { now.ceil_ms() } else { now.ceil_ms().div_ceil(self.r_ms as u64) }
    }

    /// The end of a tick in milliseconds.
    const fn end_ms(&self, tick: u64) -> u64 {
        tick * self.r_ms as u64
    }

    /// The end of an older entry's tick. After a shift to the Unix epoch it may lie before it.
    const fn entry_end_ms(&self, entry: Entry) -> u64 {
        self.end_ms(self.last_tick.saturating_sub(self.age(entry)))
    }

    /// How many ticks an older entry lies behind the newest.
    const fn age(&self, entry: Entry) -> u64 {
        low_32(self.last_tick).wrapping_sub(entry.tick) as u64
    }
}

/// The tick length that a limit asks for while nothing of it is leased, in milliseconds.
pub fn resolution_of(limit: &Limit) -> u32 {
    wanted_r_ms(limit, Millis::ZERO)
}

/// The tick length that a limit asks for, in milliseconds.
fn wanted_r_ms(limit: &Limit, lease: Millis) -> u32 {
    let span = limit.window().0 + lease.0;
    let by_age = (span / AGE_TICKS_MAX + 1).next_power_of_two();
    let r_ms = match limit.algorithm() {
        Algorithm::SlidingWindow { resolution: Some(resolution) } => resolution.0.max(by_age),
        _ if span.min(u64::from(limit.permits())) <= ENTRIES_TARGET => by_age,
        _ => 1 << (span / ENTRIES_TARGET).max(1).ilog2(),
    };
    u32::try_from(r_ms.min(R_ASKED_MAX_MS)).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "ticks are kept modulo 2^32 on purpose")]
const fn low_32(tick: u64) -> u32 {
    tick as u32
}

#[cfg(test)]
mod tests;
