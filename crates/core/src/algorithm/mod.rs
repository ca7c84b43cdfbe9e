//! The algorithms, each one a small state machine over `(now, limit, cost)`, behind one closed enum.
//!
//! | module | algorithm | state |
//! |---|---|---|
//! | [`tick_log`] | `sliding_window` | (tick, count) pairs: exact, memory bounded by the window |
//! | [`sorted_log`] | `sliding_log` | (millisecond, count) pairs, never merged: the yardstick of the tick log |
//! | [`fixed_window`] | `fixed_window` | one count and the time of the last charge |
//! | [`bucket`] | `token_bucket`, `leaky_bucket` | backlog and remainder |
//!
//! All of them share the life of a check: [`State::settle`] brings the state up to `now`, then
//! [`State::room`] says how often the cost fits, [`State::charge`] takes it, and [`State::outcome`] tells
//! the caller. Limits arrive with every call, so a changed limit acts on the history that is there.
//! What all of them do when the store's clock goes backwards is decided once, in [`backstep`].

use crate::decision::{Cost, Outcome};
use crate::limit::{Algorithm, Limit};
use crate::time::{Millis, Now};

pub mod backstep;
pub mod bucket;
pub mod fixed_window;
pub mod sorted_log;
pub mod tick_log;

#[cfg(test)]
pub(crate) mod tests;

use bucket::Bucket;
use fixed_window::FixedWindow;
use sorted_log::SortedLog;
use tick_log::TickLog;

/// The counters of one key under one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// `sliding_window`.
    TickLog(TickLog),
    /// `sliding_log`.
    SortedLog(SortedLog),
    /// `fixed_window`.
    FixedWindow(FixedWindow),
    /// `token_bucket` and `leaky_bucket`.
    Bucket(Bucket),
}

/// Names the admission that a refund gives back: where its units went, and under which history.
///
/// A refund whose history is gone (reset, clock shifted, slid out) gives back nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Changes whenever the history that `at` belongs to is dropped or moved.
    pub epoch: u32,
    /// The tick, millisecond, or time of the charge, in milliseconds on the store's clock.
    pub at_ms: u64,
    /// Units that were taken.
    pub units: u32,
}

/// Steps of this size visit all 2^32 epochs, a thousand in a row nearly two million apart: 2^32 over the
/// golden ratio, made odd.
pub const EPOCH_STRIDE: u32 = 0x9e37_79b1;

impl State {
    /// An empty state for a limit. `epoch` must differ from that of any earlier state of the same key, and
    /// from what that one has counted on to since (a few for each window; a leaky bucket, one for each
    /// charge): steps of [`EPOCH_STRIDE`] are far apart.
    pub fn new(limit: &Limit, epoch: u32) -> Self {
        match limit.algorithm() {
            Algorithm::SlidingWindow { .. } => Self::TickLog(TickLog::new(epoch)),
            Algorithm::SlidingLog => Self::SortedLog(SortedLog::new(epoch)),
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::new(epoch)),
            Algorithm::TokenBucket { .. } | Algorithm::LeakyBucket { .. } => Self::Bucket(Bucket::new(epoch)),
        }
    }

    /// Brings the state up to `now`: converts it if the limit's algorithm changed (starting from the old
    /// count), applies the rule for clocks that went back, and drops what has slid out.
    ///
    /// Everything below expects it to have been called with the same `now` and `limit`.
    #[inline]
    pub fn settle(&mut self, now: Now, limit: &Limit) {
        match (&mut *self, limit.algorithm()) {
            (Self::TickLog(log), Algorithm::SlidingWindow { .. }) => log.settle(now, limit),
            (Self::SortedLog(log), Algorithm::SlidingLog) => log.settle(now, limit),
            (Self::FixedWindow(window), Algorithm::FixedWindow) => window.settle(now, limit),
            (Self::Bucket(bucket), Algorithm::TokenBucket { .. } | Algorithm::LeakyBucket { .. }) => {
                bucket.settle(now, limit);
            }
            _ => self.convert(now, limit),
        }
    }

    /// A changed algorithm starts from the old count, dated now; leased permits, when the last can be spent.
    fn convert(&mut self, now: Now, limit: &Limit) {
        // First what the old algorithm would let go itself by now.
        match self {
            Self::TickLog(log) => log.settle(now, limit),
            Self::SortedLog(log) => log.settle(now, limit),
            Self::FixedWindow(window) => window.settle(now, limit),
            Self::Bucket(bucket) => bucket.settle(now, limit),
        }
        let spent_by = match self {
            Self::TickLog(log) => now.max(Now::from_millis(log.lease_span().end_ms)),
            Self::SortedLog(_) | Self::FixedWindow(_) | Self::Bucket(_) => now,
        };
        let used = self.used();
        *self = Self::new(limit, self.epoch().wrapping_add(1));
        self.settle(now, limit);
        self.charge(spent_by, limit, used);
    }

    /// How many times `cost` fits now, one after another. A cost of 0 always fits.
    #[inline]
    pub fn room(&self, limit: &Limit, cost: Cost) -> u32 {
        if cost == 0 {
            return u32::MAX;
        }
        match self {
            Self::Bucket(bucket) => bucket.room(limit, cost),
            Self::TickLog(_) | Self::SortedLog(_) | Self::FixedWindow(_) => {
                limit.permits().saturating_sub(self.used()) / cost
            }
        }
    }

    /// Takes `units`, whether they fit or not: deciding is the caller's. The count stops at `u32::MAX`; what
    /// is above it is not taken, and the receipt says so. Taking nothing changes nothing.
    #[inline]
    pub fn charge(&mut self, now: Now, limit: &Limit, units: u32) -> Receipt {
        let units = units.min(u32::MAX - self.used());
        if units == 0 {
            return Receipt { epoch: self.epoch(), at_ms: 0, units };
        }
        let at_ms = match self {
            Self::TickLog(log) => log.charge(now, limit, units),
            Self::SortedLog(log) => log.charge(now, units),
            Self::FixedWindow(window) => window.charge(now, units),
            Self::Bucket(bucket) => bucket.charge(now, limit, units),
        };
        Receipt { epoch: self.epoch(), at_ms, units }
    }

    /// Gives back up to `units` of the admission that `receipt` names, never more than it still holds.
    /// Returns how many were given back. Must not be called twice for the same units: after a part was given
    /// back, lower the receipt's `units` by it before it is used again.
    ///
    /// A tick log whose r was raised since, and a leaky bucket that was charged again since, may give back
    /// nothing: the place of these units can't be told from that of others any more.
    pub fn refund(&mut self, now: Now, limit: &Limit, receipt: &Receipt, units: u32) -> u32 {
        if receipt.epoch != self.epoch() {
            return 0;
        }
        let units = units.min(receipt.units);
        match self {
            Self::TickLog(log) => log.refund(receipt.at_ms, units),
            Self::SortedLog(log) => log.refund(receipt.at_ms, units),
            Self::FixedWindow(window) => window.refund(units),
            Self::Bucket(bucket) => bucket.refund(now, limit, receipt, units),
        }
    }

    /// What a check of `cost` sees now, as if it had just been decided; `violated` and `retry_after` are
    /// filled when `refused`.
    #[inline] // Returned through memory, it costs a tenth of a check.
    pub fn outcome(&self, now: Now, limit: &Limit, cost: Cost, refused: bool) -> Outcome {
        let capacity = limit.capacity();
        Outcome {
            limit: capacity,
            used: self.used().min(capacity),
            remaining: self.room(limit, 1).min(capacity),
            reset_after: self.reset_after(now, limit),
            violated: refused,
            retry_after: if refused { self.retry_after(now, limit, cost) } else { None },
            delay: Millis::ZERO,
        }
    }

    /// How long the check that is about to be charged waits before it goes on (`leaky_bucket`).
    pub fn delay(&self, now: Now, limit: &Limit) -> Millis {
        match (self, limit.algorithm()) {
            (Self::Bucket(bucket), Algorithm::LeakyBucket { .. }) => bucket.delay(now, limit),
            _ => Millis::ZERO,
        }
    }

    /// The exact time after which `cost` fits if nobody else takes it; `None` if it never does.
    pub fn retry_after(&self, now: Now, limit: &Limit, cost: Cost) -> Option<Millis> {
        if cost > limit.capacity() || limit.permits() == 0 {
            return None;
        }
        Some(match self {
            Self::TickLog(log) => log.retry_after(now, limit, cost),
            Self::SortedLog(log) => log.retry_after(now, limit, cost),
            Self::FixedWindow(window) => window.retry_after(now, limit, cost),
            Self::Bucket(bucket) => bucket.retry_after(now, limit, cost),
        })
    }

    /// Time until any more quota appears, to the millisecond: zero when nothing is used, or when no more ever
    /// will appear.
    #[inline]
    pub fn reset_after(&self, now: Now, limit: &Limit) -> Millis {
        let used = self.used();
        if used == 0 || limit.permits() == 0 {
            return Millis::ZERO;
        }
        // The next unit to leave brings quota back only once the count is below a lowered limit.
        let over = u64::from(used.saturating_sub(limit.permits()));
        match self {
            Self::TickLog(log) => log.freed_after(now, limit, over + 1),
            Self::SortedLog(log) => log.freed_after(now, limit, over + 1),
            Self::FixedWindow(window) => window.ends_after(now, limit),
            Self::Bucket(bucket) => bucket.reset_after(now, limit),
        }
    }

    /// Permits in use. For a bucket its backlog.
    #[inline]
    pub fn used(&self) -> u32 {
        match self {
            Self::TickLog(log) => log.used(),
            Self::SortedLog(log) => log.used(),
            Self::FixedWindow(window) => window.used(),
            Self::Bucket(bucket) => bucket.backlog(),
        }
    }

    /// Changes whenever refunds of earlier receipts would hit the wrong history.
    pub fn epoch(&self) -> u32 {
        match self {
            Self::TickLog(log) => log.epoch(),
            Self::SortedLog(log) => log.epoch(),
            Self::FixedWindow(window) => window.epoch(),
            Self::Bucket(bucket) => bucket.epoch(),
        }
    }

    /// The time on the store's clock, in milliseconds, from which this state says no more than an absent
    /// one would.
    #[inline]
    pub fn expires_at_ms(&self, limit: &Limit) -> u64 {
        match self {
            Self::TickLog(log) => log.expires_at_ms(limit),
            Self::SortedLog(log) => log.expires_at_ms(limit),
            Self::FixedWindow(window) => window.expires_at_ms(limit),
            Self::Bucket(bucket) => bucket.expires_at_ms(limit),
        }
    }
}
