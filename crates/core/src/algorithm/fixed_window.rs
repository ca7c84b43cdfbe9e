//! `fixed_window`: N per window aligned to the store's clock.
//!
//! The state is a count and the millisecond of the last charge; the count stands while that millisecond
//! lies in the current window. Keeping the charge rather than the window's start gives a meaning to a
//! changed W: the old count stands until the window that holds the last charge is over.
//!
//! Source: the fixed window counter (INCR and EXPIRE). Up to 2N pass around a boundary: that is the
//! algorithm, not a fault. Windows start at multiples of W since the Unix epoch, so days are UTC days
//! whatever the time zone of the host.

use super::backstep::must_shift;
use crate::decision::Cost;
use crate::limit::Limit;
use crate::time::{Millis, Now};

/// The permits of the current window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    /// When it was last charged, or the count dropped: no window before this one is opened again.
    charged_ms: u64,
    used: u32,
    epoch: u32,
}

impl FixedWindow {
    pub(super) const fn new(epoch: u32) -> Self {
        Self { charged_ms: 0, used: 0, epoch }
    }

    /// One whose state was kept elsewhere.
    pub const fn stored(epoch: u32, used: u32, charged_ms: u64) -> Self {
        Self { charged_ms, used, epoch }
    }

    pub(super) const fn used(&self) -> u32 {
        self.used
    }

    pub(super) const fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) const fn settle(&mut self, now: Now, limit: &Limit) {
        if must_shift(self.charged_ms, now.floor_ms(), limit.window()) {
            self.epoch = self.epoch.wrapping_add(1);
            self.charged_ms = now.floor_ms();
        }
        if self.used > 0 && self.charged_ms < window_start(self.time(now), limit) {
            // A receipt says when it was taken, not under which W: only the epoch tells it from the next.
            self.epoch = self.epoch.wrapping_add(1);
            self.used = 0;
            self.charged_ms = self.time(now);
        }
    }

    pub(super) const fn charge(&mut self, now: Now, units: u32) -> u64 {
        self.charged_ms = self.time(now);
        self.used += units;
        self.charged_ms
    }

    /// Everything of this epoch lies in the current window.
    pub(super) const fn refund(&mut self, units: u32) -> u32 {
        let units = if units < self.used { units } else { self.used };
        self.used -= units;
        units
    }

    pub(super) fn retry_after(&self, now: Now, limit: &Limit, cost: Cost) -> Millis {
        let fits = u64::from(self.used) + u64::from(cost) <= u64::from(limit.permits());
        if fits { Millis::ZERO } else { self.ends_after(now, limit) }
    }

    pub(super) const fn ends_after(&self, now: Now, limit: &Limit) -> Millis {
        let end = window_start(self.time(now), limit) + limit.window().0;
        Millis(end.saturating_sub(now.floor_ms()))
    }

    pub(super) const fn expires_at_ms(&self, limit: &Limit) -> u64 {
        window_start(self.charged_ms, limit) + limit.window().0
    }

    /// The time that counts: a clock that went back a little stands still until it has caught up.
    const fn time(&self, now: Now) -> u64 {
        let now = now.floor_ms();
        if now > self.charged_ms { now } else { self.charged_ms }
    }
}

const fn window_start(at_ms: u64, limit: &Limit) -> u64 {
    at_ms - at_ms % limit.window().0
}
