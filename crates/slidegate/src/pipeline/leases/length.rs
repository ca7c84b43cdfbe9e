//! How long a lease is: what the policies of a check say, and what the store's pace makes of it.

use std::sync::atomic::{AtomicU64, Ordering};

use slidegate_core::limit::Algorithm;
use slidegate_core::time::Millis;

use crate::policy::Lease;
use crate::store::{Charge, Check};

/// How long permits are leased where the policy leaves it open: fifty calls a second for the busiest key.
const USUAL: Millis = Millis(20);

/// A lease is at least so many round trips long: one of them is over when it arrives, and those who come in the last
/// wait for the next. Half of all checks then wait for no call.
const ROUND_TRIPS: u64 = 4;

/// How long the store takes to answer, averaged over some eight calls. In microseconds.
#[derive(Debug, Default)]
pub(super) struct RoundTrip(AtomicU64);

impl RoundTrip {
    /// Two at once may lose one of their readings.
    pub(super) fn note(&self, took_us: u64) {
        let before = self.get();
        let average =
            if before == 0 { took_us } else { (before.saturating_mul(7).saturating_add(took_us)) / 8 };
        self.0.store(average, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// For how long a check may be leased; `None`: not at all. `slow_us` is the round trip of a store that is slow.
pub(super) fn of(check: &Check<'_>, slow_us: Option<u64>, round_trip_us: u64) -> Option<Millis> {
    if check.reserve.is_some() || check.charges.is_empty() {
        return None;
    }
    let slow = slow_us.is_some();
    let trip_us = slow_us.unwrap_or_default().max(round_trip_us);
    let trips = Millis(trip_us.saturating_mul(ROUND_TRIPS).div_ceil(1000));
    let lengths = check.charges.iter().map(|charge| of_charge(charge, slow, trips));
    lengths.min().flatten().filter(|length| *length > Millis::ZERO)
}

/// `None` is less than any length: so one counter that can't be leased says so for all.
fn of_charge(charge: &Charge<'_>, slow: bool, trips: Millis) -> Option<Millis> {
    let limit = charge.counter.limit.limit();
    let can = charge.cost > 0
        && charge.cost <= limit.permits()
        && !charge.terms.shadow
        && !charge.terms.count_denied
        && matches!(limit.algorithm(), Algorithm::SlidingWindow { .. });
    let asked = match charge.counter.policy.lease() {
        Lease::For(length) if slow => length.max(trips),
        Lease::For(length) => length,
        Lease::Auto => USUAL.max(trips),
        Lease::None if slow => USUAL.max(trips),
        Lease::None => Millis::ZERO,
    };
    let length = asked.min(Lease::longest(limit));
    (can && length > Millis::ZERO).then_some(length)
}

#[cfg(test)]
mod tests {
    use slidegate_core::key::Key;

    use super::*;
    use crate::policy::Policy;
    use crate::store::Counter;

    fn length(limits: &str, lease: Lease, slow_us: Option<u64>, round_trip_us: u64) -> Option<Millis> {
        let policy = Policy::builder("p").limits(limits).lease(lease).build().unwrap();
        let charges: Vec<Charge<'_>> = (policy.limits().iter())
            .map(|limit| Charge {
                counter: Counter { policy: &policy, key: &Key::EMPTY, limit },
                cost: 1,
                group: 0,
                terms: policy.terms(),
            })
            .collect();
        of(&Check { times: 1, charges: &charges, reserve: None }, slow_us, round_trip_us)
    }

    #[test]
    fn the_shortest_window_says_how_long() {
        assert_eq!(length("10/1s", Lease::For(Millis(15)), None, 0), Some(Millis(15)));
        assert_eq!(length("10/1s; 1000/1h", Lease::Auto, None, 9_000), Some(Millis(20)));
        assert_eq!(length("1000/1h", Lease::Auto, None, 300), Some(Millis(20)));
        assert_eq!(length("1000/1h", Lease::Auto, None, 9_001), Some(Millis(37)));
        assert_eq!(length("10/1s", Lease::None, None, 9_000), None);
    }

    /// A store that is slow is asked less often, by those who leased nothing before as well.
    #[test]
    fn while_the_store_is_slow_all_lease_that_can() {
        assert_eq!(length("10/5s", Lease::None, Some(8_000), 300), Some(Millis(32)));
        assert_eq!(length("10/5s", Lease::For(Millis(5)), Some(8_000), 300), Some(Millis(32)));
        assert_eq!(length("10/5s", Lease::For(Millis(50)), Some(8_000), 300), Some(Millis(50)));
        // The window is too short.
        assert_eq!(length("10/1ms", Lease::None, Some(8_000), 300), None);
    }
}
