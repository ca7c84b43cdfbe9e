//! Clocks that go backwards and forwards, while real time only goes on.

use std::vec::Vec;

use proptest::prelude::*;

use super::world::{
    CASES, Event, Mix, Op, World, any_sliding, large, limit, sliding, small, trace, worst_window,
};
use crate::limit::{Algorithm, Limit};
use crate::time::{Millis, Now};

const BACK: Mix = Mix { refunds: true, batches: true, back: true, forward: false };

/// The same N and W at different resolutions, and once more with more permits than fit into 1 ms ticks.
fn resolutions() -> impl Strategy<Value = Vec<Limit>> {
    let shares = proptest::collection::vec(1u64..=300, 1..4);
    (prop_oneof![small(), large()], shares).prop_map(|((permits, window), shares)| {
        shares
            .into_iter()
            .map(|share| Some(Millis((window * share / 1000).max(1))))
            .chain([None])
            .map(|resolution| limit(permits, window, Algorithm::SlidingWindow { resolution }))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// A store's clock that stands behind real time ever more, by steps small (clamped) and large (shifted):
    /// no window of real time ever holds more than N.
    #[test]
    fn a_clock_that_steps_back_never_lets_more_than_n_into_real_time(limit in any_sliding(), ops in trace(BACK)) {
        let mut world = World::new(&[limit]);
        for op in &ops {
            if let Event::Checked { granted: 1.., .. } = world.apply(op) {
                prop_assert!(world.held(limit.window()) <= u64::from(limit.permits()));
            }
        }
    }

    /// The same while r changes from call to call.
    #[test]
    fn nor_while_r_changes(limits in resolutions(), ops in trace(BACK)) {
        let mut world = World::new(&limits);
        for op in &ops {
            if let Event::Checked { granted: 1.., .. } = world.apply(op) {
                prop_assert!(world.held(limits[0].window()) <= u64::from(limits[0].permits()));
            }
        }
    }

    /// One step forward, of any size, among steps back: windows that lie before it or after it hold at most
    /// N, those across it at most 2N. So N more, once.
    #[test]
    fn a_step_forward_admits_n_more_once(limit in any_sliding(), before in trace(BACK), share in 0i64..100_000, after in trace(BACK)) {
        let mut world = World::new(&[limit]);
        before.iter().for_each(|op| { world.apply(op); });
        let seam = world.grants.len();
        world.apply(&Op::Step { share, micros: 0 });
        after.iter().for_each(|op| { world.apply(op); });

        let spent: Vec<_> = world.grants.iter().map(|grant| (grant.at_us, grant.units)).collect();
        let (permits, window) = (u64::from(limit.permits()), limit.window());
        prop_assert!(worst_window(&spent[..seam], window) <= permits);
        prop_assert!(worst_window(&spent[seam..], window) <= permits);
        prop_assert!(worst_window(&spent, window) <= 2 * permits);
    }

    /// However far a clock goes back, nobody is locked out for longer than the rule says: after at most W,
    /// a tick and the step that is clamped (min(W, 10 s)), N permits are there again.
    #[test]
    fn no_step_back_locks_out(limit in any_sliding(), ops in trace(BACK)) {
        if limit.permits() == 0 {
            return Ok(());
        }
        let mut world = World::new(&[limit]);
        ops.iter().for_each(|op| { world.apply(op); });
        let window = limit.window().get();
        let resolution = match &world.state {
            crate::algorithm::State::TickLog(log) => log.resolution().get(),
            _ => 1,
        };
        world.check(0, 0, 1); // Sees where the clock is.
        world.real_us += 1000 * (window + window.min(10_000) + 2 * resolution + 1);
        let event = world.check(0, limit.permits(), 1);
        prop_assert!(matches!(event, Event::Checked { granted: 1, .. }), "{:?}", event);
    }
}

/// The distance between two ticks may be a tick longer than the time between two charges: at the first
/// instant of one millisecond, and 1 µs later in the next. If a large step back then put the newest tick
/// at now, the older one would leave 1 ms early.
#[test]
fn a_shift_brings_no_permit_closer_to_its_end_than_it_really_is() {
    for algorithm in [Algorithm::SLIDING_WINDOW, Algorithm::SlidingLog] {
        let limit = limit(2, 100, algorithm);
        let mut world = World::new(&[limit]);
        world.real_us = 1_000_000_000_000;
        world.check(0, 1, 1);
        world.real_us += 1;
        world.check(0, 1, 1);
        world.skew_us = -500_000_000_000;
        world.check(0, 1, 1);
        world.real_us += 99_999;
        assert!(matches!(world.check(0, 1, 1), Event::Checked { granted: 0, .. }));
        world.real_us += 1_000;
        assert!(matches!(world.check(0, 1, 1), Event::Checked { granted: 1, .. }));
    }
}

/// A clock that goes back to the very beginning of time takes the history along, and it does not wrap.
#[test]
fn a_clock_that_goes_back_to_zero_keeps_the_history() {
    for algorithm in [Algorithm::SLIDING_WINDOW, Algorithm::SlidingLog] {
        let limit = limit(3, 60_000, algorithm);
        let mut world = World::new(&[limit]);
        for _ in 0..3 {
            world.check(0, 1, 1);
            world.real_us += 10_000_000;
        }
        world.skew_us = -i64::try_from(world.real_us).unwrap();
        assert_eq!(world.now(), Now::from_micros(0));
        let Event::Checked { granted: 0, outcome, .. } = world.check(0, 1, 1) else {
            panic!("the history was dropped");
        };
        assert!(outcome.retry_after.unwrap() <= limit.window());
        world.real_us += 60_001_000;
        assert!(matches!(world.check(0, 3, 1), Event::Checked { granted: 1, .. }));
    }
}

/// Small steps stand still, large ones shift: W of 1 s clamps up to 1 s, W of 1 h up to 10 s.
#[test]
fn the_rule_is_the_same_for_every_window() {
    for (window, step_ms, waits) in [
        (1_000, 900, 1_900),
        (1_000, 1_100, 1_000),
        (3_600_000, 9_000, 3_609_000),
        (3_600_000, 11_000, 3_600_000),
    ] {
        let limit = sliding(1, window);
        let mut world = World::new(&[limit]);
        world.real_us = 1_000_000_000_000;
        world.check(0, 1, 1);
        world.skew_us = -step_ms * 1000;
        let Event::Checked { outcome, .. } = world.check(0, 1, 1) else { unreachable!() };
        assert_eq!(outcome.retry_after, Some(Millis(waits)));
    }
}
