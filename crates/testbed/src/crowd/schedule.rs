//! When each request is to be sent. It is settled before the first one is, so that no answer can change it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::random::Random;

const MICROS_PER_SECOND: u64 = 1_000_000;

/// Arrivals at one instance, in microseconds since the start, ascending: one in each period, at a moment in it that
/// the seed chooses. So instances are out of phase with each other and with any clock's ticks, and none gets
/// more or less than its share in any second.
pub(super) fn arrivals(per_second: u64, lasts: Duration, seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    let lasts_us = u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX);
    let count = u128::from(lasts_us) * u128::from(per_second) / u128::from(MICROS_PER_SECOND);
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    // Products of two numbers of a test's size: an hour of a million requests each second is far from the end.
    let begin_of = |index: u64| index * MICROS_PER_SECOND / per_second;
    (0..count)
        .map(|index| {
            let begin = begin_of(index);
            begin + random.below(begin_of(index + 1) - begin)
        })
        .collect()
}

/// Who may send: one permit for each arrival, from its moment on.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) arrivals: Arc<Vec<u64>>,
    pub(super) due: Arc<Semaphore>,
}

/// Opens the gates, each arrival at its moment, on a thread of its own: tokio's timers come once in a
/// millisecond, and all instances would be in phase after all.
#[expect(clippy::disallowed_methods, reason = "other processes know nothing of virtual time")]
pub(super) fn pace(gates: &[Gate], start: Instant, connections: usize) {
    let mut all: Vec<(u64, &Gate)> =
        gates.iter().flat_map(|gate| gate.arrivals.iter().map(move |arrival| (*arrival, gate))).collect();
    all.sort_by_key(|(arrival, _)| *arrival);
    for (arrival, gate) in all {
        let left = (start + Duration::from_micros(arrival)).saturating_duration_since(Instant::now());
        if !left.is_zero() {
            thread::sleep(left);
        }
        gate.due.add_permits(1);
    }
    // One more for each client, who finds nothing left to do, and ends.
    for gate in gates {
        gate.due.add_permits(connections);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_period_has_one_arrival_and_seeds_differ() {
        let of_seed = |seed| arrivals(400, Duration::from_secs(2), seed);
        let first = of_seed(1);
        assert_eq!(first.len(), 800);
        assert!(first.iter().zip(0..).all(|(at, index)| (index * 2500..(index + 1) * 2500).contains(at)));
        assert_eq!(first, of_seed(1));
        assert_ne!(first, of_seed(2));
        assert_eq!(arrivals(3, Duration::from_millis(1500), 1).len(), 4);
        assert_eq!(arrivals(2_000_000, Duration::from_micros(3), 1), [0, 0, 1, 1, 2, 2]);
        assert!(arrivals(0, Duration::from_secs(1), 1).is_empty());
    }
}
