//! Reported problems, continued: limits that change, clocks that do, and refunds. Each test names its entry.

use super::world::{MIDNIGHT_MS, Op, World, limit, sliding};
use crate::limit::{Algorithm, Limit};
use crate::time::Millis;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60_000;
const HOUR: u64 = 3_600_000;

fn logs(permits: u64, window: u64) -> [Limit; 2] {
    [sliding(permits, window), limit(permits, window, Algorithm::SlidingLog)]
}

fn changed(limit: &Limit, permits: u64, window: u64) -> Limit {
    self::limit(permits, window, limit.algorithm())
}

// R010: taking and giving back let the capacity collapse from 10 to 2, or rise above 10.
#[test]
fn taking_and_giving_back_wears_nothing_out() {
    for limit in logs(10, SECOND) {
        let mut world = World::new(&[limit]);
        for turn in 0..9 {
            let (passed, outcome) = world.ask(turn * 100, &limit, 1);
            assert!(passed);
            assert_eq!(outcome.remaining, 9);
            let pick = world.grants.len() - 1;
            world.apply(&Op::Refund { limit: 0, pick, share: 100 });
            assert_eq!(world.state.outcome(world.now(), &limit, 0, false).remaining, 10);
        }
        assert_eq!(world.ask(1_001, &limit, 0).1.remaining, 10);
    }
}

// R092: a clock that stepped back drove the tokens negative; who had done nothing was told to wait.
#[test]
fn a_jumping_clock_makes_no_debts() {
    for algorithm in [
        Algorithm::SLIDING_WINDOW,
        Algorithm::SlidingLog,
        Algorithm::FixedWindow,
        Algorithm::TokenBucket { burst: 60 },
    ] {
        let limit = limit(60, MINUTE, algorithm);
        let mut world = World::new(&[limit]);
        for turn in 0..3 {
            world.skew_us = if turn % 2 == 0 { 11_000_000 } else { -11_000_000 };
            assert!(world.ask(turn * 2 * SECOND, &limit, 1).0, "{algorithm:?}");
        }
        // All of it is used, and the clock goes back by an hour: nobody waits longer than W.
        world.flood(6 * SECOND, &limit, 60);
        world.skew_us -= 3_600_000_000;
        let (passed, outcome) = world.ask(6 * SECOND, &limit, 1);
        assert!(!passed);
        assert!(outcome.retry_after.unwrap() <= Millis(MINUTE), "{algorithm:?} {outcome:?}");
        assert!(world.ask(6 * SECOND + MINUTE, &limit, 1).0, "{algorithm:?}");
    }
}

// R098, F12: a raised limit still blocked, because denied hits were counted, or because "denied" stuck.
#[test]
fn a_raised_limit_admits_at_once() {
    for before in logs(10, HOUR) {
        let after = changed(&before, 20, HOUR);
        let mut world = World::new(&[before]);
        assert_eq!(world.flood(0, &before, 50), 10);
        assert_eq!(world.flood(SECOND, &after, 11), 10);
    }
}

// R099: raising the rate of a bucket made the next call deny.
#[test]
fn a_raised_rate_does_not_deny() {
    let bucket = |permits| limit(permits, 20 * SECOND, Algorithm::TokenBucket { burst: 16 });
    let mut world = World::new(&[bucket(10)]);
    assert_eq!(world.flood(0, &bucket(10), 3), 3);
    let (passed, outcome) = world.ask(0, &bucket(1000), 1);
    assert!(passed);
    assert_eq!(outcome.remaining, 12);
}

// R101: the limit was stored at creation and kept for ever.
#[test]
fn the_limit_of_this_call_counts_and_not_that_of_the_first() {
    for first in logs(30, MINUTE) {
        let (none, more) = (changed(&first, 0, MINUTE), changed(&first, 150, MINUTE));
        let mut world = World::new(&[first]);
        assert_eq!(world.flood(0, &first, 20), 20);
        assert_eq!(world.flood(SECOND, &none, 5), 0);
        assert_eq!(world.flood(2 * SECOND, &more, 200), 130);
    }
}

// R102: a changed window was ignored by keys that existed.
#[test]
fn a_changed_window_counts_at_once() {
    for long in logs(5, MINUTE) {
        let short = changed(&long, 5, SECOND);
        let mut world = World::new(&[long]);
        assert_eq!(world.flood(0, &long, 6), 5);
        assert_eq!(world.flood(999, &short, 1), 0);
        assert_eq!(world.flood(SECOND, &short, 6), 5);
        // And back: what was admitted a moment ago now counts for a minute, and lives for one.
        assert_eq!(world.state.expires_at_ms(&short), MIDNIGHT_MS + 2 * SECOND);
        assert_eq!(world.state.expires_at_ms(&long), MIDNIGHT_MS + 61 * SECOND);
        assert_eq!(world.flood(SECOND + MINUTE - 1, &long, 1), 0);
        assert_eq!(world.flood(SECOND + MINUTE, &long, 1), 1);
    }
}

// R104, F8: with a limit lowered below what was in use there was no Retry-After, or one too short.
#[test]
fn a_lowered_limit_says_how_long_until_enough_has_left() {
    for before in logs(10, MINUTE) {
        let after = changed(&before, 3, MINUTE);
        let mut world = World::new(&[before]);
        (0..10).for_each(|second| assert!(world.ask(second * SECOND, &before, 1).0));
        let (passed, outcome) = world.ask(10 * SECOND, &after, 1);
        assert!(!passed);
        assert_eq!((outcome.used, outcome.remaining), (3, 0));
        assert_eq!(outcome.retry_after, Some(Millis(57 * SECOND)));
        assert_eq!(outcome.reset_after, Millis(57 * SECOND));
        assert!(!world.ask(67 * SECOND - 1, &after, 1).0);
        assert!(world.ask(67 * SECOND, &after, 1).0);
    }
}

// R105: the limit was part of the key, so each limit had a counter of its own.
#[test]
fn another_limit_continues_the_count() {
    for ten in logs(10, MINUTE) {
        let twenty = changed(&ten, 20, MINUTE);
        let mut world = World::new(&[ten]);
        world.flood(0, &ten, 7);
        assert_eq!(world.ask(0, &twenty, 0).1.used, 7);
        world.flood(0, &twenty, 3);
        assert!(!world.ask(0, &ten, 1).0);
    }
}

/// A changed algorithm starts from the old count: what the old one would have let go by now is not carried
/// along, and nobody gets a fresh quota by a reload.
#[test]
fn a_changed_algorithm_starts_from_the_old_count() {
    let algorithms = [
        Algorithm::SLIDING_WINDOW,
        Algorithm::SlidingLog,
        Algorithm::FixedWindow,
        Algorithm::TokenBucket { burst: 10 },
        Algorithm::LeakyBucket { max_delay: Millis(MINUTE) },
    ];
    for (old, new) in algorithms.iter().flat_map(|old| algorithms.iter().map(move |new| (*old, *new))) {
        let (old, new) = (limit(10, MINUTE, old), limit(10, MINUTE, new));
        let mut world = World::new(&[old]);
        assert!(world.ask(0, &old, 6).0);
        let (passed, outcome) = world.ask(SECOND, &new, 1);
        assert!(passed);
        assert_eq!(outcome.used, 7, "{old} -> {new}");
        let mut world = World::new(&[old]);
        assert!(world.ask(0, &old, 6).0);
        assert_eq!(world.ask(2 * MINUTE, &new, 0).1.used, 0, "{old} -> {new}");
    }
}

// R124: a roll-back gave back more than had been taken.
#[test]
fn a_roll_back_gives_back_what_was_taken_and_no_more() {
    for limit in logs(10, MINUTE) {
        let mut world = World::new(&[limit]);
        world.ask(0, &limit, 1);
        world.ask(0, &limit, 4);
        let receipt = world.grants[0].receipt;
        let now = world.now();
        assert_eq!(world.state.refund(now, &limit, &receipt, 5), 1);
        assert_eq!(world.state.used(), 4);
    }
}
