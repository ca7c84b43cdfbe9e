//! Leases, as far as every caller of a key has to know them: how long the window must be held open.
//!
//! A permit leased at s is spent somewhere in [s, s + l]. If it left the window at s + W it could still
//! have been spent less than W ago. So from the first lease until the last one's end is a window old,
//! *every* caller counts W + l instead of W; then no window of length W holds more than N.
//! The price is utilisation, at most W / (W + l).
//!
//! Sizing leases by rate, spending them and giving them back is not here.

use crate::limit::WINDOW_MAX;
use crate::time::Millis;

/// The longest lease: policies hold each one to a fiftieth of its window, so that W / (W + l) stays above 98 %.
/// In milliseconds it fits in the 32 bits that the stored header has for it.
pub const LEASE_MAX: Millis = Millis(WINDOW_MAX.0 / 50);

/// The leases that may still have permits in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseSpan {
    /// The longest lease taken since there was none.
    pub longest: Millis,
    /// The end of the last lease, in milliseconds on the store's clock.
    pub end_ms: u64,
}

impl LeaseSpan {
    /// Takes note of a lease that starts at `at_ms` and lasts `length`.
    pub fn extend(&mut self, at_ms: u64, length: Millis) {
        self.longest = self.longest.max(length);
        self.end_ms = self.end_ms.max(at_ms.saturating_add(length.0));
    }

    /// Whether leased permits may still lie in a window that ends at `now_ms`.
    pub const fn covers(&self, now_ms: u64, window: Millis) -> bool {
        self.longest.0 > 0 && now_ms < self.end_ms.saturating_add(window.0)
    }

    /// The window to count at `now_ms`: W + l while leased permits may lie in it, else W.
    pub const fn window_at(&self, now_ms: u64, window: Millis) -> Millis {
        if self.covers(now_ms, window) { Millis(window.0.saturating_add(self.longest.0)) } else { window }
    }

    /// The millisecond from which a permit charged at `at_ms` no longer counts: W + l later, or as soon as
    /// the last lease is a window old, but never before the permit itself is.
    pub fn leaves_at_ms(&self, at_ms: u64, window: Millis) -> u64 {
        let plain = at_ms.saturating_add(window.0);
        if self.longest.0 == 0 {
            return plain;
        }
        let closed = self.end_ms.saturating_add(window.0);
        let held = plain.saturating_add(self.longest.0);
        if held < closed { held } else { plain.max(closed) }
    }
}
