//! Token and leaky buckets, in continuous time. Rates are compared as fractions, in integers.

use std::vec::Vec;

use proptest::prelude::*;

use super::world::{CASES, Event, Mix, Op, World, limit, small, trace};
use crate::algorithm::State;
use crate::limit::{Algorithm, Limit};
use crate::time::{Millis, Now};

/// From one permit in a minute to thousands in a millisecond.
fn rate() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![3 => small(), 1 => (1u64..5000, 1u64..60), 1 => (1u64..9, 1u64..60_000)]
}

fn token() -> impl Strategy<Value = Limit> {
    (rate(), 1u32..20)
        .prop_map(|((permits, window), burst)| limit(permits, window, Algorithm::TokenBucket { burst }))
}

/// Whether `units` in a span of `span_us` are at most `burst + rate x span`.
fn within(limit: &Limit, burst: u64, units: u64, span_us: u64) -> bool {
    let us_per_window = u128::from(limit.window().get()) * 1000;
    u128::from(units) * us_per_window
        <= u128::from(burst) * us_per_window + u128::from(limit.permits()) * u128::from(span_us)
}

/// For every span between two of (microsecond, units): what lies in it, both ends included.
fn every_span_within(limit: &Limit, burst: u64, slack_us: u64, moments: &[(u64, u32)]) -> bool {
    (0..moments.len()).all(|from| {
        let mut units = 0;
        moments[from..].iter().all(|(at, more)| {
            units += u64::from(*more);
            within(limit, burst, units, at - moments[from].0 + slack_us)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// A token bucket admits at most burst + rate x T in any T of continuous time, both ends included, and
    /// this holds for what was not given back, whatever was.
    #[test]
    fn a_token_bucket_admits_at_most_burst_and_rate(limit in token(), ops in trace(Mix { refunds: true, batches: true, ..Mix::default() })) {
        let mut world = World::new(&[limit]);
        for op in &ops {
            if let Event::Checked { granted: 1.., .. } = world.apply(op) {
                let admitted: Vec<_> = world.grants.iter().map(|grant| (grant.at_us, grant.units)).collect();
                prop_assert!(every_span_within(&limit, u64::from(limit.capacity()), 0, &admitted));
            }
        }
    }

    /// Nor does it admit more when the store's clock steps back.
    #[test]
    fn nor_on_a_clock_that_steps_back(limit in token(), ops in trace(Mix { refunds: true, batches: true, back: true, ..Mix::default() })) {
        let mut world = World::new(&[limit]);
        ops.iter().for_each(|op| { world.apply(op); });
        let admitted: Vec<_> = world.grants.iter().map(|grant| (grant.at_us, grant.units)).collect();
        prop_assert!(every_span_within(&limit, u64::from(limit.capacity()), 0, &admitted));
    }

    /// It denies nothing but for the rounding of time: an exact meter of the same admissions, in fractions of
    /// a permit, is at most 3 ms of draining away from being too full itself (one for reading time at the
    /// floor, two for a charge dated at the ceiling and what was left before it).
    #[test]
    fn a_token_bucket_denies_only_what_an_exact_meter_has_no_room_for(limit in token(), ops in trace(Mix { batches: true, ..Mix::default() })) {
        if limit.permits() == 0 {
            return Ok(());
        }
        let us_per_window = u128::from(limit.window().get()) * 1000;
        let drain = |us: u64| u128::from(us) * u128::from(limit.permits());
        let mut world = World::new(&[limit]);
        let (mut level, mut at_us) = (0u128, world.real_us);
        for op in &ops {
            let Event::Checked { cost, times, granted, .. } = world.apply(op) else { continue };
            level = level.saturating_sub(drain(world.real_us - at_us)) + u128::from(granted * cost) * us_per_window;
            at_us = world.real_us;
            if granted < times && cost <= limit.capacity() {
                let brim = u128::from(limit.capacity() - cost) * us_per_window;
                prop_assert!(level + drain(3000) > brim);
            }
        }
    }

    /// What a leaky bucket admits leaves at arrival + delay: never later than max_delay, and in any T, both
    /// ends included, at most c + rate x (T + 2 ms) for checks of cost c: 2 ms, because each delay is rounded
    /// up to a millisecond and counted from the whole millisecond before. Also while the clock steps back, as
    /// far as it is clamped.
    #[test]
    fn a_leaky_bucket_lets_permits_out_one_by_one((permits, window) in rate(), max_delay in 0u64..200, cost in 1u32..4, ops in trace(Mix { back: true, ..Mix::default() })) {
        let limit = limit(permits, window, Algorithm::LeakyBucket { max_delay: Millis(max_delay) });
        let mut world = World::new(&[limit]);
        let mut left: Vec<(u64, u32)> = Vec::new();
        let mut latest = world.now().floor_ms();
        for op in &ops {
            if latest > world.now().floor_ms() + limit.window().get().min(10_000) { break }
            latest = latest.max(world.now().floor_ms());
            world.apply(&match *op {
                Op::Check { limit, .. } => Op::Check { limit, cost: 0, share: 0, times: 1 },
                ref other => other.clone(),
            });
            if !matches!(op, Op::Check { .. }) { continue }
            if let Event::Checked { granted: 1, outcome, .. } = world.check(0, cost, 1) {
                prop_assert!(outcome.delay.get() <= max_delay);
                left.push((world.real_us + outcome.delay.get() * 1000, cost));
            }
        }
        left.sort_unstable();
        prop_assert!(every_span_within(&limit, u64::from(cost), 2000, &left));
    }

    /// A batch of equal checks queues up like as many single ones.
    #[test]
    fn a_queue_takes_a_batch_like_single_checks((permits, window) in rate(), max_delay in 0u64..200, cost in 1u32..4, times in 1u32..20, ops in trace(Mix { batches: true, back: true, ..Mix::default() })) {
        let limit = limit(permits, window, Algorithm::LeakyBucket { max_delay: Millis(max_delay) });
        let (mut batch, mut single) = (World::new(&[limit]), World::new(&[limit]));
        for op in &ops {
            batch.apply(op);
            single.apply(op);
        }
        let Event::Checked { granted, .. } = batch.check(0, cost, times) else { unreachable!() };
        let one_by_one = (0..times).filter(|_| matches!(single.check(0, cost, 1), Event::Checked { granted: 1, .. })).count();
        prop_assert_eq!(granted as usize, one_by_one);
        prop_assert_eq!(batch.state.used(), single.state.used());
    }

    /// Two configurations of the same rate, told apart only by their units, take turns on one key: what was
    /// admitted stays within the larger burst, the rate, and the one permit that is lost to rounding.
    #[test]
    fn configurations_that_take_turns_do_not_speed_a_bucket_up(scale in 2u64..2000, burst in 1u32..5, gaps in proptest::collection::vec(1u64..4000, 1..80)) {
        let algorithm = Algorithm::TokenBucket { burst };
        let limits = [limit(1, 1_000, algorithm), limit(scale, 1_000 * scale, algorithm)];
        let mut world = World::new(&limits);
        for (turn, gap) in gaps.iter().enumerate() {
            world.real_us += gap * 100;
            world.check(turn % 2, 1, 1);
        }
        let admitted: Vec<_> = world.grants.iter().map(|grant| (grant.at_us, grant.units)).collect();
        prop_assert!(every_span_within(&limits[0], u64::from(burst), 0, &admitted));
    }
}

/// At 5 permits a millisecond with a burst of 3: a charge between two milliseconds empties a bucket that
/// would have been full again before the next one, twice over.
#[test]
fn a_charge_between_two_milliseconds_is_not_refilled_for_what_was_over_before_it() {
    let limit = limit(5_000, 1_000, Algorithm::TokenBucket { burst: 3 });
    let mut world = World::new(&[limit]);
    world.real_us = 1_000_000_000_900;
    assert!(matches!(world.check(0, 3, 1), Event::Checked { granted: 1, .. }));
    world.real_us += 100; // Half a permit later.
    assert!(matches!(world.check(0, 1, 1), Event::Checked { granted: 0, .. }));
}

#[test]
fn a_leaky_bucket_makes_each_wait_for_those_before() {
    let limit = limit(10, 1_000, Algorithm::LeakyBucket { max_delay: Millis(300) });
    let mut state = State::new(&limit, 1);
    let now = Now::from_millis(1_000_000);
    let mut waits = Vec::new();
    state.settle(now, &limit);
    while state.room(&limit, 1) > 0 {
        waits.push(state.delay(now, &limit).get());
        state.charge(now, &limit, 1);
    }
    assert_eq!(waits, [0, 100, 200, 300]);
    assert_eq!(state.retry_after(now, &limit, 1), Some(Millis(100)));
}
