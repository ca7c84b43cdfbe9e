//! `token_bucket` and `leaky_bucket`: one meter, read from two sides.
//!
//! The state is a *backlog* of permits that drains at N/W, with the fraction drained so far as a remainder
//! in units of 1/W permit: integers only. A token bucket has `burst - backlog` tokens; a leaky bucket makes
//! a check wait for the backlog before it. Never an absolute arrival time: a changed rate then acts on
//! permits, not on times that were computed under another rate.
//!
//! **Bound**: in any T of continuous time at most burst + T x N/W. Time is read at the floor, so a charge
//! between two milliseconds would be refilled for the part of its millisecond that was over before it. That
//! matters only if the backlog was about to run dry (else nothing was lost to the rim), so just then the
//! charge is dated at the ceiling.
//!
//! Source: the meter of ITU-T I.371 Annex A (leaky bucket, continuous-state), in integers. The Redis twin
//! splits N to keep every product below 2^53; here `u128` does.

use super::Receipt;
use super::backstep::shift_ms;
use crate::decision::Cost;
use crate::limit::{Algorithm, Limit, WINDOW_MAX};
use crate::time::{Millis, Now};

/// Permits taken and not yet drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The time up to which the backlog has drained, in milliseconds.
    drained_ms: u64,
    backlog: u32,
    /// Part of the next permit that has drained, in 1/W; below the window that it was computed with.
    remainder: u64,
    epoch: u32,
}

impl Bucket {
    pub(super) const fn new(epoch: u32) -> Self {
        Self { drained_ms: 0, backlog: 0, remainder: 0, epoch }
    }

    pub(super) const fn backlog(&self) -> u32 {
        self.backlog
    }

    pub(super) const fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn settle(&mut self, now: Now, limit: &Limit) {
        let (now_ms, window) = (now.floor_ms(), limit.window().0);
        let shift = shift_ms(self.drained_ms, now.ceil_ms(), limit.window());
        if shift > 0 {
            self.epoch = self.epoch.wrapping_add(1);
            self.drained_ms -= shift;
        }
        // A shorter window makes the old remainder worth more than a permit.
        self.remainder = self.remainder.min(window - 1);
        // Nothing takes longer than WINDOW_MAX to drain, but for what a commit charged past the limit.
        let elapsed = now_ms.saturating_sub(self.drained_ms).min(WINDOW_MAX.0);
        let drained = u128::from(elapsed) * u128::from(limit.permits()) + u128::from(self.remainder);
        let (permits, remainder) = (drained / u128::from(window), drained % u128::from(window));
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        (self.backlog, self.remainder) = match self.backlog.checked_sub(permits) {
            None | Some(0) => (0, 0),
            #[expect(clippy::cast_possible_truncation, reason = "below the window, which is a u64")]
            Some(backlog) => (backlog, remainder as u64),
        };
        self.drained_ms = self.drained_ms.max(now_ms);
    }

    pub(super) fn room(&self, limit: &Limit, cost: Cost) -> u32 {
        match limit.algorithm() {
            Algorithm::LeakyBucket { max_delay } => self.queue_room(limit, max_delay, cost),
            _ => limit.capacity().saturating_sub(self.backlog) / cost,
        }
    }

    /// How many checks of `cost` could queue up before one would wait longer than `max_delay`: the k-th
    /// waits for a backlog of `backlog + (k - 1) cost`, less the remainder, at N/W.
    fn queue_room(&self, limit: &Limit, max_delay: Millis, cost: Cost) -> u32 {
        if cost > limit.permits() {
            return 0;
        }
        // (backlog + (k - 1) cost) W - remainder <= max_delay N
        let room = u128::from(max_delay.0) * u128::from(limit.permits()) + u128::from(self.remainder);
        let ahead = room / u128::from(limit.window().0);
        match ahead.checked_sub(u128::from(self.backlog)) {
            None => 0,
            Some(free) => u32::try_from(free / u128::from(cost) + 1).unwrap_or(u32::MAX),
        }
    }

    pub(super) fn charge(&mut self, now: Now, limit: &Limit, units: u32) -> u64 {
        if self.drains_within_a_millisecond(limit) {
            self.drained_ms = self.drained_ms.max(now.ceil_ms());
        }
        self.backlog = self.backlog.saturating_add(units);
        self.drained_ms
    }

    fn drains_within_a_millisecond(&self, limit: &Limit) -> bool {
        let backlog = u128::from(self.backlog) * u128::from(limit.window().0);
        backlog.saturating_sub(u128::from(self.remainder)) < u128::from(limit.permits())
    }

    /// Gives back what cannot have drained yet, taking the worst case: that these units drained first.
    pub(super) fn refund(&mut self, now: Now, limit: &Limit, receipt: &Receipt, units: u32) -> u32 {
        let elapsed = now.ceil_ms().saturating_sub(receipt.at_ms);
        let drained =
            (u128::from(elapsed) * u128::from(limit.permits())).div_ceil(u128::from(limit.window().0));
        let left = receipt.units.saturating_sub(u32::try_from(drained).unwrap_or(u32::MAX));
        let units = units.min(left).min(self.backlog);
        self.backlog -= units;
        if self.backlog == 0 {
            self.remainder = 0;
        }
        units
    }

    pub(super) fn retry_after(&self, now: Now, limit: &Limit, cost: Cost) -> Millis {
        match limit.algorithm() {
            Algorithm::LeakyBucket { max_delay } => {
                Millis(self.drain_ms(now, limit, self.backlog).saturating_sub(max_delay.0))
            }
            _ => {
                let over =
                    (u64::from(self.backlog) + u64::from(cost)).saturating_sub(u64::from(limit.capacity()));
                Millis(self.drain_ms(now, limit, u32::try_from(over).unwrap_or(u32::MAX)))
            }
        }
    }

    pub(super) fn reset_after(&self, now: Now, limit: &Limit) -> Millis {
        let over = match limit.algorithm() {
            Algorithm::LeakyBucket { .. } => 0,
            _ => self.backlog.saturating_sub(limit.capacity()),
        };
        Millis(self.drain_ms(now, limit, over.saturating_add(1)))
    }

    pub(super) fn delay(&self, now: Now, limit: &Limit) -> Millis {
        Millis(self.drain_ms(now, limit, self.backlog))
    }

    pub(super) fn expires_at_ms(&self, limit: &Limit) -> u64 {
        if limit.permits() == 0 {
            return self.drained_ms.saturating_add(WINDOW_MAX.0);
        }
        self.drained_ms.saturating_add(self.time_to_drain(limit, self.backlog))
    }

    /// Milliseconds from the floor of `now` until `permits` of the backlog have drained, rounded up.
    fn drain_ms(&self, now: Now, limit: &Limit, permits: u32) -> u64 {
        if permits == 0 || limit.permits() == 0 {
            return 0;
        }
        let done_ms = self.drained_ms.saturating_add(self.time_to_drain(limit, permits));
        done_ms.saturating_sub(now.floor_ms())
    }

    fn time_to_drain(&self, limit: &Limit, permits: u32) -> u64 {
        let parts = u128::from(permits) * u128::from(limit.window().0);
        let parts = parts.saturating_sub(u128::from(self.remainder));
        u64::try_from(parts.div_ceil(u128::from(limit.permits()))).unwrap_or(u64::MAX)
    }
}
