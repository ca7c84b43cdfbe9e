//! Problems that people reported about rate limiters in production, retold here. Each test names its entry.

use super::world::{MIDNIGHT_MS, World, limit, sliding};
use crate::algorithm::State;
use crate::limit::{Algorithm, Limit, LimitError, PERMITS_MAX};
use crate::time::Millis;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60_000;
const DAY: u64 = 86_400_000;

/// The exact algorithms: every story about a log must hold for both.
fn logs(permits: u64, window: u64) -> [Limit; 2] {
    [sliding(permits, window), limit(permits, window, Algorithm::SlidingLog)]
}

/// Every algorithm, where the story does not depend on it.
fn all(permits: u64, window: u64) -> [Limit; 5] {
    let burst = u32::try_from(permits).unwrap();
    [
        sliding(permits, window),
        limit(permits, window, Algorithm::SlidingLog),
        limit(permits, window, Algorithm::FixedWindow),
        limit(permits, window, Algorithm::TokenBucket { burst }),
        limit(permits, window, Algorithm::LeakyBucket { max_delay: Millis(0) }),
    ]
}

// R001: requests of one second were one entry, since the second was the member.
#[test]
fn requests_of_one_instant_are_counted_one_by_one() {
    for limit in logs(5, 20 * SECOND) {
        let mut world = World::new(&[limit]);
        assert_eq!(world.flood(0, &limit, 100), 5);
        assert_eq!(world.state.used(), 5);
    }
}

// R004: nothing was trimmed while traffic went on, so that a steady caller was locked out.
#[test]
fn the_window_slides_under_steady_traffic() {
    for limit in logs(2, SECOND) {
        let mut world = World::new(&[limit]);
        for ms in (0..30 * SECOND).step_by(600) {
            assert!(world.ask(ms, &limit, 1).0);
            assert!(world.state.used() <= 2);
        }
    }
}

// R006: rejected requests were recorded too, so that a steady retrier was locked out for ever.
#[test]
fn a_steady_retrier_gets_its_share() {
    for limit in logs(10, 600 * SECOND) {
        let mut world = World::new(&[limit]);
        let passed: std::vec::Vec<bool> =
            (0..240).map(|turn| world.ask(turn * 30 * SECOND, &limit, 1).0).collect();
        for burst in passed.chunks(20) {
            assert_eq!(burst, [[true; 10], [false; 10]].concat());
        }
    }
}

// R007: the window was taken as closed at both ends: denied at second 10 with a wait of 0.
#[test]
fn an_event_that_is_exactly_a_window_old_no_longer_counts() {
    for limit in logs(1, 10 * SECOND) {
        let mut world = World::new(&[limit]);
        assert!(world.ask(0, &limit, 1).0);
        let (passed, outcome) = world.ask(9_999, &limit, 1);
        assert!(!passed);
        assert_eq!(outcome.retry_after.unwrap().ceil_secs(), 1);
        assert!(world.ask(10_000, &limit, 1).0);
    }
}

// R009: a report that took "count after adding > limit" for an off-by-one. It is right.
#[test]
fn exactly_n_pass_neither_one_less_nor_one_more() {
    for limit in &all(5, MINUTE)[..4] {
        let mut world = World::new(&[*limit]);
        let seen: std::vec::Vec<_> = (0..6)
            .map(|_| world.ask(0, limit, 1))
            .map(|(passed, outcome)| (passed, outcome.remaining))
            .collect();
        assert_eq!(seen, [(true, 4), (true, 3), (true, 2), (true, 1), (true, 0), (false, 0)]);
    }
}

// R012: a unit of a year lost a factor, and `remaining` was sometimes the one before the request.
#[test]
fn a_year_is_a_year_and_remaining_is_after_this_request() {
    for limit in logs(10, 365 * DAY) {
        let mut world = World::new(&[limit]);
        let (_, outcome) = world.ask(0, &limit, 1);
        assert_eq!(outcome.remaining, 9);
        let lives = world.state.expires_at_ms(&limit) - MIDNIGHT_MS;
        assert!((31_535_000_001..=31_536_100_000).contains(&lives), "{lives}");
    }
}

// R018: waits were mangled on their way: 1.9 s became 1, no wait at all became a 19-digit one.
#[test]
fn waits_are_whole_milliseconds_and_never_is_not_a_number() {
    let limit = sliding(1, 2 * SECOND);
    let mut world = World::new(&[limit]);
    world.ask(0, &limit, 1);
    assert_eq!(world.ask(100, &limit, 1).1.retry_after, Some(Millis(1_900)));
    assert_eq!(world.ask(100, &sliding(0, 2 * SECOND), 1).1.retry_after, None);
}

// R023: the TTL was set again on every hit, so that a fixed window never ended.
#[test]
fn a_fixed_window_ends_under_steady_traffic() {
    let limit = limit(5, MINUTE, Algorithm::FixedWindow);
    let mut world = World::new(&[limit]);
    for ms in (0..20 * MINUTE).step_by(20_000) {
        assert!(world.ask(ms, &limit, 1).0);
        assert_eq!(world.state.expires_at_ms(&limit), MIDNIGHT_MS + (ms / MINUTE + 1) * MINUTE);
    }
}

// R020, R021, F22: the count was written and its TTL was not, so that the counter, and with it the denial,
// stayed for ever. Here both are one state, and it never outlives its window.
#[test]
fn no_counter_outlives_its_window() {
    for limit in (1..=5).flat_map(|window| all(2, window)) {
        let mut world = World::new(&[limit]);
        for ms in (0..1_000).flat_map(|ms| [ms, ms, ms]) {
            world.ask(ms, &limit, 1 + u32::from(ms % 7 == 0));
            let lives = world.state.expires_at_ms(&limit) - world.now().floor_ms();
            assert!((1..=limit.window().get()).contains(&lives), "{limit} {lives}");
        }
    }
}

// R024: count, limit and reset were three keys that expired one after the other: at the end of each window
// clients were told a limit of 0 and a reset of 0.
#[test]
fn what_is_told_at_the_end_of_a_window_is_whole() {
    for limit in &all(5, SECOND)[..4] {
        let mut world = World::new(&[*limit]);
        for ms in 0..3_500 {
            let (_, outcome) = world.ask(ms, limit, 1);
            assert_eq!((outcome.limit, outcome.used + outcome.remaining), (5, 5), "{limit} at {ms}");
            assert!(outcome.reset_after > Millis::ZERO, "{limit} at {ms}");
        }
    }
}

// R026: looking at absent keys created them, without an end.
#[test]
fn a_peek_leaves_a_new_counter_new() {
    for limit in all(5, MINUTE) {
        let mut world = World::new(&[limit]);
        let (passed, outcome) = world.ask(0, &limit, 0);
        assert!(passed);
        assert_eq!((outcome.used, outcome.reset_after), (0, Millis::ZERO));
        assert!(world.state.expires_at_ms(&limit) <= MIDNIGHT_MS + MINUTE);
        let mut new = State::new(&limit, 7);
        new.settle(world.now(), &limit);
        assert_eq!(world.state, new);
    }
}

// R027, F23: a TTL of floor(2 x capacity / rate) is 0 for a fast bucket: nothing was stored or limited.
#[test]
fn a_bucket_that_refills_faster_than_its_ttl_still_limits() {
    let limit = limit(10, SECOND, Algorithm::TokenBucket { burst: 1 });
    let mut world = World::new(&[limit]);
    assert_eq!(world.flood(0, &limit, 5), 1);
    assert!(world.state.expires_at_ms(&limit) > MIDNIGHT_MS);
    for limit in [sliding(1, 300), super::world::limit(3, SECOND, Algorithm::TokenBucket { burst: 1 })] {
        assert_eq!(World::new(&[limit]).flood(0, &limit, 2), 1);
    }
}

// R106: a rate of 0 divided by zero, or told clients to come back after 0 s.
#[test]
fn a_limit_of_zero_denies_and_names_no_time() {
    for limit in all(1, MINUTE).map(|limit| self::limit(0, MINUTE, limit.algorithm())) {
        let mut world = World::new(&[limit]);
        let (passed, outcome) = world.ask(0, &limit, 1);
        assert!(!passed);
        assert_eq!((outcome.limit, outcome.remaining, outcome.retry_after), (0, 0, None));
        assert_eq!(outcome.reset_after, Millis::ZERO);
    }
    assert_eq!(Limit::new(1, Millis(0)), Err(LimitError::Window { window: Millis(0) }));
}

// R111, R114: a cost above the limit waited for ever, or overflowed and was allowed.
#[test]
fn a_cost_that_never_fits_is_told_so_and_takes_nothing() {
    for limit in all(10, DAY) {
        for cost in [11, 200_000_000, u32::MAX] {
            let mut world = World::new(&[limit]);
            let (passed, outcome) = world.ask(0, &limit, cost);
            assert!(!passed);
            assert_eq!((outcome.retry_after, outcome.used), (None, 0));
        }
    }
}

// R112: `ttlSeconds` was -1794967295 for a plain 120/s.
#[test]
fn every_rate_lives_for_some_time_and_none_overflows() {
    let numbers = [1, 2, 7, 120, 999_999_999, 1_000_000_000, u64::from(PERMITS_MAX)];
    let windows = [1, 999, SECOND, DAY, 366 * DAY];
    for (permits, window) in numbers.iter().flat_map(|permits| windows.map(|window| (*permits, window))) {
        let plain = sliding(permits, window);
        let buckets = numbers.map(|burst| Algorithm::TokenBucket { burst: u32::try_from(burst).unwrap() });
        let buckets = buckets.into_iter().filter_map(|bucket| plain.with_algorithm(bucket).ok());
        for limit in buckets.chain([plain]) {
            let mut world = World::new(&[limit]);
            assert!(world.ask(0, &limit, 1).0, "{limit}");
            assert!(world.state.expires_at_ms(&limit) > MIDNIGHT_MS, "{limit}");
        }
    }
}

// R015, R115, F3: counters wrapped at their largest value, limits above it rounded to something else.
#[test]
fn the_largest_limit_works_and_a_full_counter_stays_full() {
    for permits in [u64::from(PERMITS_MAX) + 1, 9_007_199_254_740_991, 9_007_199_254_740_992, u64::MAX] {
        assert_eq!(Limit::new(permits, Millis(SECOND)), Err(LimitError::Permits { permits }));
    }
    let largest = u64::from(PERMITS_MAX);
    let burst = PERMITS_MAX;
    for algorithm in [Algorithm::SLIDING_WINDOW, Algorithm::FixedWindow, Algorithm::TokenBucket { burst }] {
        let limit = limit(largest, DAY, algorithm);
        let mut world = World::new(&[limit]);
        assert!(world.ask(0, &limit, PERMITS_MAX).0);
        for _ in 0..3 {
            let (passed, outcome) = world.ask(0, &limit, 1);
            assert!(!passed);
            assert_eq!((outcome.used, outcome.remaining), (PERMITS_MAX, 0));
            let now = world.now();
            world.state.charge(now, &limit, PERMITS_MAX); // A penalty on top.
        }
    }
}

// R117: days are UTC days, and this is documented; the host's time zone changes nothing.
#[test]
fn a_fixed_day_ends_at_midnight_utc() {
    let limit = limit(1, DAY, Algorithm::FixedWindow);
    let mut world = World::new(&[limit]);
    assert!(world.ask(DAY - 1, &limit, 1).0);
    assert!(world.ask(DAY, &limit, 1).0);
    assert!(!world.ask(DAY + 8 * 60 * MINUTE, &limit, 1).0);
}

// R128, F4: Retry-After rounded down, so that obeying it met the next denial; or 0.
#[test]
fn whoever_waits_the_whole_seconds_that_he_was_told_passes() {
    for limit in all(3, 7_001) {
        let mut world = World::new(&[limit]);
        let mut at_ms = 0;
        for _ in 0..1_000 {
            let (passed, outcome) = world.ask(at_ms, &limit, 1);
            if let Some(retry) = outcome.retry_after {
                assert!(!passed && retry.ceil_secs() >= 1);
                at_ms += retry.ceil_secs() * SECOND;
                assert!(world.ask(at_ms, &limit, 1).0);
            }
            at_ms += 13;
        }
    }
}

// R134, F8: `remaining` went to -1, or wrapped to 1.8e19.
#[test]
fn remaining_is_never_below_zero() {
    for limit in all(10, MINUTE) {
        let mut world = World::new(&[limit]);
        world.flood(0, &limit, 10);
        for _ in 0..20 {
            assert_eq!(world.ask(0, &limit, 1).1.remaining, 0);
        }
    }
}

// R135: Retry-After was a default of 60 although the store said 100.
#[test]
fn the_wait_falls_with_time_and_never_exceeds_the_window() {
    let limit = sliding(1, 100 * SECOND);
    let mut world = World::new(&[limit]);
    world.ask(0, &limit, 1);
    for second in 0..100 {
        let retry = world.ask(second * SECOND, &limit, 1).1.retry_after;
        assert_eq!(retry, Some(Millis((100 - second) * SECOND)));
    }
}

// R177: a limit of 1 in a sliding counter compared the wrong way round. Ours is exact: used + cost <= N.
#[test]
fn a_limit_of_one_admits_one_per_window() {
    for limit in logs(1, 10 * SECOND) {
        let mut world = World::new(&[limit]);
        let passed = [0, 5, 10, 15, 20].map(|second| world.ask(second * SECOND, &limit, 1).0);
        assert_eq!(passed, [true, false, true, false, true]);
    }
}

// R179: a fixed window lets 2N through at its edge; that is what it is. A log never does.
#[test]
fn a_fixed_window_lets_2n_through_at_its_edge_and_a_log_does_not() {
    let fixed = limit(60, MINUTE, Algorithm::FixedWindow);
    let mut world = World::new(&[fixed]);
    assert_eq!(world.flood(59 * SECOND, &fixed, 60) + world.flood(60 * SECOND, &fixed, 60), 120);
    for limit in logs(60, MINUTE) {
        let mut world = World::new(&[limit]);
        assert_eq!(world.flood(59 * SECOND, &limit, 60), 60);
        assert_eq!(world.flood(60 * SECOND, &limit, 60), 0);
        assert_eq!(world.flood(119 * SECOND - 1, &limit, 60), 0);
        assert_eq!(world.flood(119 * SECOND, &limit, 60), 60);
    }
}

// R182: rejections moved the time of the last refill, so that a steady retrier never saw one.
#[test]
fn a_bucket_refills_under_steady_retries() {
    let limit = limit(1, 10 * SECOND, Algorithm::TokenBucket { burst: 1 });
    let mut world = World::new(&[limit]);
    let passed: std::vec::Vec<u64> =
        (0..=20).filter(|second| world.ask(second * SECOND, &limit, 1).0).collect();
    assert_eq!(passed, [0, 10, 20]);
    // And at a rate where each retry sees only a fraction of a permit.
    let mut world = World::new(&[limit]);
    let passed: std::vec::Vec<u64> = (0..=20_000).filter(|ms| world.ask(*ms, &limit, 1).0).collect();
    assert_eq!(passed, [0, 10_000, 20_000]);
}

// F1: a limit of 1 computed a TTL of 0, the entry was gone at once, everything was admitted.
#[test]
fn a_limit_of_one_limits_whatever_its_window() {
    for limit in [1, SECOND, DAY].into_iter().flat_map(|window| all(1, window)) {
        assert_eq!(World::new(&[limit]).flood(0, &limit, 2), 1, "{limit}");
    }
}

// F2: a theoretical arrival time was clamped one burst too low: after a pause twice as much passed.
#[test]
fn a_pause_just_below_the_window_earns_no_second_burst() {
    for limit in logs(10, 10 * SECOND) {
        let mut world = World::new(&[limit]);
        assert!(world.ask(0, &limit, 1).0);
        assert_eq!(world.flood(9_999, &limit, 100), 9);
        assert_eq!(world.flood(10_000, &limit, 100), 1);
    }
    let bucket = limit(10, 10 * SECOND, Algorithm::TokenBucket { burst: 10 });
    let mut world = World::new(&[bucket]);
    assert!(world.ask(0, &bucket, 1).0);
    assert_eq!(world.flood(9_999, &bucket, 100), 10);
    assert_eq!(world.flood(19_998, &bucket, 100), 9);
}

// F19: a rejected costly request consumed.
#[test]
fn a_rejected_costly_request_leaves_room_for_a_cheap_one() {
    for limit in &all(10, MINUTE)[..4] {
        let mut world = World::new(&[*limit]);
        assert!(world.ask(0, limit, 8).0);
        assert!(!world.ask(0, limit, 5).0);
        let (passed, outcome) = world.ask(0, limit, 2);
        assert!(passed);
        assert_eq!(outcome.remaining, 0);
    }
}
