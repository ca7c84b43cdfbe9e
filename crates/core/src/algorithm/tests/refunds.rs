//! Refunds give back what was taken, and nothing else.

use proptest::collection::vec as vec_of;
use proptest::prelude::*;

use super::promises::any_limit;
use super::world::{CASES, Event, Mix, World, any_sliding, limit, sliding, trace};
use crate::algorithm::{Receipt, State};
use crate::limit::Algorithm;
use crate::time::{Millis, Now};

const EVERYTHING: Mix = Mix { refunds: true, batches: true, back: true, forward: true };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// A refund gives back at most what was asked for, which is at most what its admission still holds; the
    /// count falls by exactly that (a bucket's by that, or one less for a part of a permit), so that
    /// capacity never rises above N.
    #[test]
    fn a_refund_gives_back_at_most_what_was_taken(limits in vec_of(any_limit(), 1..3), ops in trace(EVERYTHING)) {
        let mut world = World::new(&limits);
        for op in &ops {
            let before = world.state.clone();
            if let Event::Refunded { asked, given } = world.apply(op) {
                let super::world::Op::Refund { limit, .. } = op else { unreachable!() };
                let limit = limits[limit % limits.len()];
                let mut settled = before;
                settled.settle(world.now(), &limit);
                prop_assert!(given <= asked);
                let part = u32::from(given > 0 && matches!(world.state, State::Bucket(_)));
                prop_assert!((settled.used() - given..=settled.used() - given + part).contains(&world.state.used()));
                let outcome = world.state.outcome(world.now(), &limit, 0, false);
                prop_assert!(outcome.remaining <= limit.capacity());
            }
        }
    }

    /// Once units have slid out, and their place may be taken by others, a refund of them gives back nothing;
    /// until then, while limits stay as they are and the clock runs, it gives back all of them.
    #[test]
    fn a_refund_works_until_its_units_have_slid_out_and_not_after(limit in any_sliding(), ops in trace(Mix { refunds: true, batches: true, ..Mix::default() })) {
        let mut world = World::new(&[limit]);
        for op in &ops {
            let event = world.apply(op);
            if let (Event::Refunded { asked, given }, super::world::Op::Refund { pick, .. }) = (event, op) {
                let grant = &world.grants[pick % world.grants.len()];
                let (floor, window) = (world.now().floor_ms(), limit.window().get());
                let resolution = match &world.state { State::TickLog(log) => log.resolution().get(), _ => 1 };
                if grant.at_ms + window > floor {
                    prop_assert_eq!(given, asked);
                } else if grant.at_ms + window + resolution - 1 <= floor {
                    prop_assert_eq!(given, 0);
                }
            }
        }
    }

    /// A permit that is given back at once was never taken: its place is free for the next, and everybody
    /// else is decided as if nothing had happened.
    #[test]
    fn taken_and_given_back_at_once_is_not_taken(limit in any_limit(), ops in trace(Mix { batches: true, ..Mix::default() }), cost in 1u32..4) {
        // A bucket does not know within a millisecond when it was charged, and drains in that time.
        let exact = !matches!(State::new(&limit, 1), State::Bucket(_));
        let (mut plain, mut busy) = (World::new(&[limit]), World::new(&[limit]));
        for op in &ops {
            if let Event::Checked { granted: 1, receipt: Some(receipt), .. } = busy.check(0, cost, 1) {
                let given = busy.state.refund(busy.now(), &limit, &receipt, cost);
                prop_assert!(given == cost || !exact);
            }
            let expected = plain.apply(op);
            busy.real_us = plain.real_us;
            if let Event::Checked { granted: expected, .. } = expected {
                let Event::Checked { granted, .. } = busy.apply(op) else { unreachable!() };
                prop_assert!(granted == expected || !exact);
            }
        }
    }
}

fn charge(state: &mut State, limit: &crate::limit::Limit, at_ms: u64, units: u32) -> Receipt {
    let now = Now::from_millis(at_ms);
    state.settle(now, limit);
    state.charge(now, limit, units)
}

fn refund(state: &mut State, limit: &crate::limit::Limit, at_ms: u64, receipt: &Receipt) -> u32 {
    let now = Now::from_millis(at_ms);
    state.settle(now, limit);
    state.refund(now, limit, receipt, receipt.units)
}

/// The clock was set back by an hour while nothing was in use, and later passes the same millisecond again:
/// the units of that millisecond are not those of the old receipt.
#[test]
fn a_receipt_from_before_the_clock_went_back_names_nobody() {
    for algorithm in [
        Algorithm::SLIDING_WINDOW,
        Algorithm::SlidingLog,
        Algorithm::FixedWindow,
        Algorithm::TokenBucket { burst: 5 },
    ] {
        let limit = limit(5, 1_000, algorithm);
        let mut state = State::new(&limit, 1);
        let old = charge(&mut state, &limit, 10_000_000, 5);
        charge(&mut state, &limit, 6_400_000, 0);
        charge(&mut state, &limit, 10_002_000, 0); // Everything has left.
        charge(&mut state, &limit, 9_000_000, 0);
        charge(&mut state, &limit, 10_000_000, 5);
        assert_eq!(refund(&mut state, &limit, 10_000_000, &old), 0, "{algorithm:?}");
        assert_eq!(state.used(), 5);
    }
}

/// A permit expired while its neighbour stayed; then the window grew, and with it the ticks, so that both
/// would lie in the same one.
#[test]
fn a_receipt_of_a_permit_that_left_does_not_take_its_neighbours() {
    let (short, long) = (sliding(5000, 100), sliding(5000, 3_600_000));
    let mut state = State::new(&short, 1);
    let left = charge(&mut state, &short, 1_000_001, 5);
    charge(&mut state, &short, 1_000_002, 7);
    charge(&mut state, &short, 1_000_101, 0);
    assert_eq!(state.used(), 7);
    assert_eq!(refund(&mut state, &long, 1_000_101, &left), 0);
    assert_eq!(state.used(), 7);
}

/// A fixed window was over, and the next configuration has a longer one in which the old charge would lie.
#[test]
fn a_receipt_of_a_window_that_is_over_does_not_take_from_a_longer_one() {
    let short = limit(5, 1_000, Algorithm::FixedWindow);
    let long = limit(5, 10_000, Algorithm::FixedWindow);
    let mut state = State::new(&short, 1);
    let old = charge(&mut state, &short, 1_000_500, 5);
    charge(&mut state, &short, 1_001_500, 3);
    assert_eq!(refund(&mut state, &long, 1_001_600, &old), 0);
    assert_eq!(state.used(), 3);
}

/// What does not fit into a saturated count was not taken, and can't be given back from others.
#[test]
fn what_a_saturated_count_did_not_take_is_not_on_the_receipt() {
    for algorithm in [
        Algorithm::SLIDING_WINDOW,
        Algorithm::SlidingLog,
        Algorithm::FixedWindow,
        Algorithm::TokenBucket { burst: 5 },
    ] {
        let limit = limit(5, 1_000, algorithm);
        let mut state = State::new(&limit, 1);
        charge(&mut state, &limit, 1_000_000, u32::MAX - 3);
        let receipt = charge(&mut state, &limit, 1_000_000, 100);
        assert_eq!(receipt.units, 3);
        assert_eq!(refund(&mut state, &limit, 1_000_000, &receipt), 3);
        assert_eq!(state.used(), u32::MAX - 3);
    }
}

/// At one permit a minute, a millisecond drains 1/60,000 of one: it must not cost the whole of it.
#[test]
fn a_slow_bucket_gives_a_permit_back() {
    let limit = limit(1, 60_000, Algorithm::TokenBucket { burst: 1 });
    let mut state = State::new(&limit, 1);
    let receipt = charge(&mut state, &limit, 1_000_000, 1);
    assert_eq!(refund(&mut state, &limit, 1_000_010, &receipt), 1);
    assert_eq!(state.retry_after(Now::from_millis(1_000_010), &limit, 1), Some(Millis(0)));
    charge(&mut state, &limit, 1_000_010, 1);
    assert_eq!(state.retry_after(Now::from_millis(1_000_010), &limit, 1), Some(Millis(60_000)));
}

/// A leaky bucket told each one behind when to go. Giving a place back from the middle of the queue would let
/// two go at once; the last place can be given back.
#[test]
fn a_queue_is_only_shortened_at_its_end() {
    let limit = limit(10, 1_000, Algorithm::LeakyBucket { max_delay: Millis(1_000) });
    let mut state = State::new(&limit, 1);
    let first = charge(&mut state, &limit, 1_000_000, 1);
    let last = charge(&mut state, &limit, 1_000_000, 1);
    assert_eq!(refund(&mut state, &limit, 1_000_000, &first), 0);
    assert_eq!(refund(&mut state, &limit, 1_000_000, &last), 1);
    assert_eq!(state.delay(Now::from_millis(1_000_000), &limit), Millis(100));
}
