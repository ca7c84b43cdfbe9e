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
//! charge is dated at the ceiling. What was left of the backlog is then kept to that millisecond, too,
//! because it still counts for the next check of the same one.
//!
//! **Leaky bucket**: a check leaves `delay` after it came, rounded up to a millisecond, so at most
//! c + (T + 2 ms) x N/W permits leave in any T, for checks of at most c. A wait is never above `max_delay`.
//! Only a clock that is set back further than it can stand still forgets what those in the queue were told.
//!
//! Source: the meter of ITU-T I.371 Annex A (leaky bucket, continuous-state), in integers. The Redis twin
//! splits N to keep every product below 2^53; here `u128` does.

use super::Receipt;
use super::backstep::must_shift;
use crate::decision::Cost;
use crate::limit::{Algorithm, Limit, WINDOW_MAX};
use crate::time::{Millis, Now};

/// Permits taken and not yet drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The time up to which the backlog has drained, in milliseconds: ahead of the clock after a charge
    /// dated at the ceiling, or when the clock stepped back.
    drained_ms: u64,
    /// Part of the next permit that has drained, in units of 1/`window_ms`; below it.
    remainder: u64,
    /// The window that the remainder is counted in.
    window_ms: u64,
    /// When it was last settled: [`room`](Self::room) has to know how long a check would wait from now.
    settled: Now,
    backlog: u32,
    epoch: u32,
}

impl Bucket {
    pub(super) const fn new(epoch: u32) -> Self {
        Self { drained_ms: 0, remainder: 0, window_ms: 1, settled: Now::from_micros(0), backlog: 0, epoch }
    }

    /// One whose state was kept elsewhere, where it was settled at `now` and under `limit`.
    pub const fn stored(
        epoch: u32,
        backlog: u32,
        remainder: u64,
        drained_ms: u64,
        now: Now,
        limit: &Limit,
    ) -> Self {
        Self { drained_ms, remainder, window_ms: limit.window().0, settled: now, backlog, epoch }
    }

    pub(super) const fn backlog(&self) -> u32 {
        self.backlog
    }

    pub(super) const fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn settle(&mut self, now: Now, limit: &Limit) {
        self.settled = now;
        if must_shift(self.drained_ms, now.ceil_ms(), limit.window()) {
            self.epoch = self.epoch.wrapping_add(1);
            self.drained_ms = now.ceil_ms();
        }
        self.count_in(limit.window().0);
        // Nothing takes longer than WINDOW_MAX to drain, but for what a commit charged past the limit.
        let elapsed = now.floor_ms().saturating_sub(self.drained_ms).min(WINDOW_MAX.0);
        let drained = u128::from(elapsed) * u128::from(limit.permits()) + u128::from(self.remainder);
        let window = u128::from(self.window_ms);
        let permits = u32::try_from(drained / window).unwrap_or(u32::MAX);
        (self.backlog, self.remainder) = match self.backlog.checked_sub(permits) {
            None | Some(0) => (0, 0),
            #[expect(clippy::cast_possible_truncation, reason = "below the window, which is a u64")]
            Some(backlog) => (backlog, (drained % window) as u64),
        };
        if self.backlog == 0 && self.drained_ms > now.floor_ms() {
            // An empty bucket has no past to stand still for; only its receipts must not match later ones.
            self.epoch = self.epoch.wrapping_add(1);
            self.drained_ms = 0;
        }
        self.drained_ms = self.drained_ms.max(now.floor_ms());
    }

    /// Counts the remainder in parts of another window, rounded down: the same part of a permit. Kept as a
    /// bare number, it would grow by a permit's worth whenever a shorter window read it: two instances
    /// with `1000/1000s` and `1/1s` would drain one permit in 2 ms instead of 1 s.
    fn count_in(&mut self, window_ms: u64) {
        if self.window_ms != window_ms {
            let parts = u128::from(self.remainder) * u128::from(window_ms) / u128::from(self.window_ms);
            self.remainder = u64::try_from(parts).unwrap_or(0);
            self.window_ms = window_ms;
        }
    }

    pub(super) fn room(&self, limit: &Limit, cost: Cost) -> u32 {
        match limit.algorithm() {
            Algorithm::LeakyBucket { max_delay } => self.queue_room(limit, max_delay, cost),
            _ => limit.capacity().saturating_sub(self.backlog) / cost,
        }
    }

    /// How many checks of `cost` could queue up before one would wait longer than `max_delay`.
    fn queue_room(&self, limit: &Limit, max_delay: Millis, cost: Cost) -> u32 {
        if cost > limit.permits() || self.delay(self.settled, limit) > max_delay {
            return 0;
        }
        // The first one fits. The k-th waits for (k - 1) cost more than the first, but if that one is going
        // to be dated at the ceiling, everything behind it waits from there.
        let behind_ms = if self.runs_dry_within_a_millisecond(limit) {
            self.drained_ms.max(self.settled.ceil_ms())
        } else {
            self.drained_ms
        } - self.settled.floor_ms();
        let time_left = u128::from(max_delay.0.saturating_sub(behind_ms)) * u128::from(limit.permits());
        let more = time_left.saturating_sub(self.parts(self.backlog))
            / (u128::from(cost) * u128::from(self.window_ms));
        let countable = (u32::MAX - self.backlog) / cost;
        u32::try_from(more + 1).unwrap_or(u32::MAX).min(countable)
    }

    pub(super) fn charge(&mut self, now: Now, limit: &Limit, units: u32) -> u64 {
        if self.runs_dry_within_a_millisecond(limit) {
            self.drained_ms = self.drained_ms.max(now.ceil_ms());
        }
        if matches!(limit.algorithm(), Algorithm::LeakyBucket { .. }) {
            // Those behind have been told when to go, so a queue can only be shortened at its end: each
            // charge makes the receipts of earlier ones void.
            self.epoch = self.epoch.wrapping_add(1);
        }
        self.backlog += units;
        self.drained_ms
    }

    fn runs_dry_within_a_millisecond(&self, limit: &Limit) -> bool {
        self.parts(self.backlog) < u128::from(limit.permits())
    }

    /// Gives back what cannot have drained yet, taking the worst case: that these units drained first. To the
    /// part of a permit, since at a slow rate a whole one would be lost to the first millisecond; a part
    /// counts as one given back.
    pub(super) fn refund(&mut self, now: Now, limit: &Limit, receipt: &Receipt, units: u32) -> u32 {
        let (window, rate) = (u128::from(self.window_ms), u128::from(limit.permits()));
        // Time that stood still after a step back drained nothing.
        let elapsed = self.drained_ms.max(now.ceil_ms()).saturating_sub(receipt.at_ms);
        let kept = (u128::from(receipt.units) * window).saturating_sub(u128::from(elapsed) * rate);
        let used = self.parts(self.backlog);
        let given = (u128::from(units) * window).min(kept).min(used);
        let left = used - given;
        let whole = |parts: u128| u32::try_from(parts.div_ceil(window)).unwrap_or(u32::MAX);
        self.backlog = whole(left);
        self.remainder = u64::try_from(u128::from(self.backlog) * window - left).unwrap_or(0);
        whole(given)
    }

    pub(super) fn retry_after(&self, now: Now, limit: &Limit, cost: Cost) -> Millis {
        match limit.algorithm() {
            Algorithm::LeakyBucket { max_delay } => {
                self.queues_after(now, limit, max_delay, self.backlog, cost)
            }
            _ => {
                let over =
                    (u64::from(self.backlog) + u64::from(cost)).saturating_sub(u64::from(limit.capacity()));
                self.drained_after(now, limit, u32::try_from(over).unwrap_or(u32::MAX))
            }
        }
    }

    pub(super) fn reset_after(&self, now: Now, limit: &Limit) -> Millis {
        match limit.algorithm() {
            Algorithm::LeakyBucket { max_delay } => self.queue_reset_after(now, limit, max_delay),
            _ => {
                let over = self.backlog.saturating_sub(limit.capacity());
                self.drained_after(now, limit, over.saturating_add(1))
            }
        }
    }

    /// When one more single permit could queue up than now; zero if never more.
    fn queue_reset_after(&self, now: Now, limit: &Limit, max_delay: Millis) -> Millis {
        let room = self.queue_room(limit, max_delay, 1);
        if room >= limit.permits() {
            return Millis::ZERO;
        }
        let ahead = self.backlog.saturating_add(room);
        let soonest = self.queues_after(now, limit, max_delay, ahead, 1).0;
        // A charge dated at the ceiling can make those behind it wait one millisecond more.
        let later = |wait: &u64| {
            let mut later = self.clone();
            later.settle(now.after(Millis(*wait)), limit);
            later.queue_room(limit, max_delay, 1) > room
        };
        Millis((soonest..=soonest.saturating_add(1)).find(later).unwrap_or(0))
    }

    /// Time until a check of `cost` behind `ahead` permits waits no longer than `max_delay`, and the backlog
    /// can be counted with it.
    fn queues_after(&self, now: Now, limit: &Limit, max_delay: Millis, ahead: u32, cost: Cost) -> Millis {
        let waits = self.drained_after(now, limit, ahead).0.saturating_sub(max_delay.0);
        let over = (u64::from(ahead) + u64::from(cost)).saturating_sub(u64::from(u32::MAX));
        let over = u32::try_from(over).unwrap_or(u32::MAX);
        self.drained_after(now, limit, over).max(Millis(waits))
    }

    /// How long the next check waits for the backlog before it.
    pub(super) fn delay(&self, now: Now, limit: &Limit) -> Millis {
        self.drained_after(now, limit, self.backlog)
    }

    pub(super) fn expires_at_ms(&self, limit: &Limit) -> u64 {
        if limit.permits() == 0 {
            return self.drained_ms + WINDOW_MAX.0;
        }
        self.drained_ms.saturating_add(self.time_to_drain(limit, self.backlog))
    }

    /// Time from the floor of `now` until `permits` of the backlog have drained, rounded up.
    fn drained_after(&self, now: Now, limit: &Limit, permits: u32) -> Millis {
        if permits == 0 || limit.permits() == 0 {
            return Millis::ZERO;
        }
        let done_ms = self.drained_ms.saturating_add(self.time_to_drain(limit, permits));
        Millis(done_ms.saturating_sub(now.floor_ms()))
    }

    fn time_to_drain(&self, limit: &Limit, permits: u32) -> u64 {
        let time = self.parts(permits).div_ceil(u128::from(limit.permits()));
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// What of the next `permits` of the backlog has not drained yet, in units of 1/W permit.
    fn parts(&self, permits: u32) -> u128 {
        (u128::from(permits) * u128::from(self.window_ms)).saturating_sub(u128::from(self.remainder))
    }
}
