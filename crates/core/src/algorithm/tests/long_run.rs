//! Keys that are busy for months.

use super::world::{BEGIN_US, Event, World, limit, sliding};
use crate::algorithm::State;
use crate::limit::{Algorithm, Limit};
use crate::time::{Millis, Now};

const DAY_MS: u64 = 86_400_000;

/// Charges one permit every `step_ms` for 60 days, never letting the key fall idle, and holds it against
/// what must be in the window by arithmetic. Ticks of 1 ms are kept in 32 bits, which wrap after 49.7 days.
fn busy_for_60_days(limit: Limit, step_ms: u64) {
    let mut state = State::new(&limit, 1);
    let begin_ms = BEGIN_US.div_ceil(1000);
    let full = u64::from(limit.permits()).min(limit.window().get().div_ceil(step_ms));
    for step in 0..60 * DAY_MS / step_ms {
        let now = Now::from_millis(begin_ms + step * step_ms);
        state.settle(now, &limit);
        let held = u64::from(state.used());
        assert_eq!(held, full.min(step) - u64::from(step >= full), "{now:?}");
        assert_eq!(state.room(&limit, 1), limit.permits() - state.used());
        state.charge(now, &limit, 1);
    }
}

#[test]
fn a_key_that_is_busy_for_60_days_never_forgets_and_never_locks_out() {
    // An hour and a day, at 1 ms ticks, with a hundred admissions in the window.
    busy_for_60_days(sliding(101, 3_600_000), 36_000);
    busy_for_60_days(sliding(101, DAY_MS), DAY_MS / 100);
    // And denser, where almost every millisecond of the wrap itself is met.
    let around_the_wrap = sliding(10, 1_000);
    let mut state = State::new(&around_the_wrap, 1);
    let wrap_ms = (BEGIN_US / 1000 / (1 << 32) + 1) << 32;
    for ms in wrap_ms - 5_000..wrap_ms + 5_000 {
        let now = Now::from_millis(ms);
        state.settle(now, &around_the_wrap);
        let allowed = state.room(&around_the_wrap, 1) > 0;
        assert_eq!(allowed, (ms - (wrap_ms - 5_000)) % 1_000 < 10);
        if allowed {
            state.charge(now, &around_the_wrap, 1);
        }
    }
}

/// A window longer than 2^31 ms has ticks so long that the age of an entry still fits.
#[test]
fn a_window_of_a_year_counts_for_a_year() {
    let year = sliding(3, 366 * DAY_MS);
    let mut world = World::new(&[year]);
    for _ in 0..3 {
        assert!(matches!(world.check(0, 1, 1), Event::Checked { granted: 1, .. }));
        world.real_us += 100 * DAY_MS * 1000;
    }
    let Event::Checked { granted: 0, outcome, .. } = world.check(0, 1, 1) else { panic!("forgotten") };
    let retry = outcome.retry_after.unwrap().get();
    assert!((66 * DAY_MS..=66 * DAY_MS + 16).contains(&retry), "{retry}");
}

/// Two instances with different configurations take turns on one key: r stays where the coarser one raised
/// it, and neither admits more than its own N.
#[test]
fn two_configurations_that_take_turns_do_not_push_r_back_and_forth() {
    let limits = [
        sliding(5_000, 60_000),
        limit(5_000, 60_000, Algorithm::SlidingWindow { resolution: Some(Millis(100)) }),
        sliding(100, 60_000),
    ];
    let mut world = World::new(&limits);
    let mut resolutions = std::collections::BTreeSet::new();
    for turn in 0..100_000 {
        world.real_us += 7_300;
        if let Event::Checked { limit, granted: 1, .. } = world.check(turn % 3, 1, 1) {
            let State::TickLog(log) = &world.state else { unreachable!() };
            assert!(log.used() <= limit.permits());
            resolutions.insert(log.resolution().get());
            world.grants.clear();
        }
    }
    // From the 8 ms of the first, to the first multiple that is coarse enough for the second.
    assert_eq!(resolutions.into_iter().collect::<std::vec::Vec<_>>(), [8, 104]);
}

/// Penalties for denied checks could make a log of few permits as long as they like.
#[test]
fn a_log_that_is_filled_by_penalties_stays_short() {
    let limit = sliding(10, DAY_MS);
    let mut state = State::new(&limit, 1);
    for ms in 0..200_000 {
        let now = Now::from_micros(BEGIN_US + ms * 1000);
        state.settle(now, &limit);
        state.charge(now, &limit, 1);
    }
    let State::TickLog(log) = &state else { unreachable!() };
    assert!(log.entries() <= 8193, "{}", log.entries());
    assert_eq!(log.used(), 200_000);
    assert_eq!(log.resolution(), Millis(32));
}
