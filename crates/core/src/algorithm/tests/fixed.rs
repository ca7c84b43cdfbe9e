//! Fixed windows, aligned to the store's clock.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::world::{CASES, Event, Mix, World, limit, small, trace, worst_window};
use crate::limit::Algorithm;
use crate::time::Millis;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// No aligned window [kW, (k + 1)W) of the store's clock is ever charged more than N; and no window of
    /// real time holds more than 2N, which is what this algorithm is known for.
    #[test]
    fn never_above_n_in_an_aligned_window((permits, window) in small(), ops in trace(Mix { refunds: true, batches: true, ..Mix::default() })) {
        let limit = limit(permits, window, Algorithm::FixedWindow);
        let mut world = World::new(&[limit]);
        for op in &ops {
            if let Event::Checked { granted: 1.., .. } = world.apply(op) {
                let mut windows = BTreeMap::new();
                for grant in &world.grants {
                    *windows.entry(grant.at_us / (window * 1000)).or_insert(0) += u64::from(grant.units);
                }
                prop_assert!(windows.values().all(|units| *units <= permits));
            }
        }
        let spent: std::vec::Vec<_> = world.grants.iter().map(|grant| (grant.at_us, grant.units)).collect();
        prop_assert!(worst_window(&spent, Millis(window)) <= 2 * permits);
    }

    /// A clock that steps back by at most min(W, 10 s) opens no window twice, so real time holds 2N in any W
    /// at most. A larger step starts the windows elsewhere, which may let N more through, each time.
    #[test]
    fn a_clock_that_steps_back_opens_no_window_twice((permits, window) in small(), ops in trace(Mix { refunds: true, batches: true, back: true, ..Mix::default() })) {
        let limit = limit(permits, window, Algorithm::FixedWindow);
        let mut world = World::new(&[limit]);
        let (mut latest_ms, mut large_steps) = (0u64, 0);
        for op in &ops {
            world.apply(op);
            let now_ms = world.now().floor_ms();
            if latest_ms.saturating_sub(now_ms) > window {
                large_steps += 1;
                latest_ms = 0;
            }
            latest_ms = latest_ms.max(now_ms);
        }
        let spent: std::vec::Vec<_> = world.grants.iter().map(|grant| (grant.at_us, grant.units)).collect();
        prop_assert!(worst_window(&spent, Millis(window)) <= (2 + large_steps) * permits);
    }

    /// Within a window nothing is denied that fits.
    #[test]
    fn never_denied_without_need((permits, window) in small(), ops in trace(Mix { refunds: true, batches: true, ..Mix::default() })) {
        let limit = limit(permits, window, Algorithm::FixedWindow);
        let mut world = World::new(&[limit]);
        for op in &ops {
            let Event::Checked { cost, times, granted, .. } = world.apply(op) else { continue };
            if granted < times {
                let current = world.real_us / (window * 1000);
                let used: u64 = world.grants.iter().filter(|grant| grant.at_us / (window * 1000) == current).map(|grant| u64::from(grant.units)).sum();
                prop_assert!(used + u64::from(cost) > permits);
            }
        }
    }
}

/// W goes from 1 s to 1 h: the old count stands until the hour that holds the last charge is over.
#[test]
fn a_longer_window_keeps_the_count() {
    let limits = [limit(5, 1_000, Algorithm::FixedWindow), limit(5, 3_600_000, Algorithm::FixedWindow)];
    let mut world = World::new(&limits);
    world.real_us = 3_600_000_000 * 100 + 500_000;
    world.check(0, 5, 1);
    let Event::Checked { granted: 0, outcome, .. } = world.check(1, 1, 1) else {
        panic!("the count was lost")
    };
    assert_eq!(outcome.retry_after, Some(Millis(3_599_500)));
}
