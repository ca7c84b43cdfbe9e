//! `sliding_window` and `sliding_log`: never above N, in continuous time.

use std::vec::Vec;

use proptest::collection::vec as vec_of;
use proptest::prelude::*;

use super::world::{CASES, Event, Mix, World, any_sliding, trace, worst_window};

const EVERYTHING_BUT_CLOCKS: Mix = Mix { refunds: true, batches: true, back: false, forward: false };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// For random arrivals in microseconds, costs, batches and refunds: whenever something is admitted, what
    /// was admitted in the last (t - W, t] of continuous time, and not given back since, is at most N.
    #[test]
    fn never_above_n_in_any_window_of_continuous_time(limit in any_sliding(), ops in trace(EVERYTHING_BUT_CLOCKS)) {
        let mut world = World::new(&[limit]);
        for op in &ops {
            if let Event::Checked { granted: 1.., .. } = world.apply(op) {
                prop_assert!(world.held(limit.window()) <= u64::from(limit.permits()));
            }
        }
        // The same, counted another way: by every window of the whole trace.
        let spent: Vec<_> = world.grants.iter().map(|grant| (grant.at_us, grant.units)).collect();
        prop_assert!(worst_window(&spent, limit.window()) <= u64::from(limit.permits()));
    }

    /// The same when N, W, r and even the algorithm change with every call. What had already become a window
    /// old at some call, by the W of that call, is gone; everything else is held to the N and W of the call
    /// that admits, so a raised N admits at once and a lowered one denies until enough has slid out.
    #[test]
    fn never_above_n_while_limits_change(limits in vec_of(any_sliding(), 2..5), ops in trace(EVERYTHING_BUT_CLOCKS)) {
        let mut world = World::new(&limits);
        for op in &ops {
            if let Event::Checked { limit, granted: 1.., cost: 1.., .. } = world.apply(op) {
                prop_assert!(world.held(limit.window()) <= u64::from(limit.permits()));
            }
        }
    }

    /// At ticks of 1 ms nothing is denied without need: a denied check of a possible cost would have put more
    /// than N charges into the last W of whole milliseconds. Under a changing N, too, in both directions.
    #[test]
    fn never_denied_without_need(permits in vec_of(1u64..12, 1..4), window in 1u64..60, ops in trace(Mix { batches: true, refunds: true, ..Mix::default() })) {
        let limits: Vec<_> = permits.iter().map(|&permits| super::world::sliding(permits, window)).collect();
        let mut world = World::new(&limits);
        for op in &ops {
            let event = world.apply(op);
            let Event::Checked { limit, cost, times, granted, .. } = event else { continue };
            if granted < times && cost <= limit.permits() {
                let floor = world.now().floor_ms();
                let used: u32 = world.grants.iter().filter(|grant| grant.at_ms + window > floor).map(|grant| grant.units).sum();
                prop_assert!(used + cost > limit.permits());
            }
        }
    }
}
