//! What callers are told comes true, for every algorithm; and a refusal leaves no trace.

use proptest::prelude::*;

use super::world::{CASES, Event, Mix, World, any_sliding, limit, sliding, small, trace};
use crate::algorithm::State;
use crate::check::{Charge, Terms, decide};
use crate::decision::Outcome;
use crate::limit::{Algorithm, Limit};
use crate::time::{Millis, Now};

const ANY_CLOCK: Mix = Mix { refunds: true, batches: true, back: true, forward: true };

/// A limit under any algorithm. Rates reach from one permit in 60 ms to thousands in one, since a
/// millisecond that holds many permits is where rounding shows.
pub(crate) fn any_limit() -> impl Strategy<Value = Limit> {
    let numbers = prop_oneof![
        3 => small(),
        1 => (1u64..5000, 1u64..60),
        1 => (1u64..9, 1u64..100_000),
    ];
    let token = (numbers.clone(), 1u32..20).prop_map(|((permits, window), burst)| {
        sliding(permits, window).with_algorithm(Algorithm::TokenBucket { burst }).unwrap()
    });
    let leaky = (numbers.clone(), 0u64..200).prop_map(|((permits, window), max_delay)| {
        limit(permits, window, Algorithm::LeakyBucket { max_delay: Millis(max_delay) })
    });
    let fixed = numbers.prop_map(|(permits, window)| limit(permits, window, Algorithm::FixedWindow));
    prop_oneof![2 => any_sliding(), 1 => fixed, 2 => token, 2 => leaky]
}

/// What a check of `cost` comes to at `now`, and leaves, on a copy.
fn tried(state: &State, now: Now, limit: &Limit, cost: u32) -> (u32, Outcome, State) {
    let mut state = state.clone();
    let mut charges = [Charge::new(&mut state, limit, cost, 0, Terms::default())];
    let granted = decide(now, 1, &mut charges);
    let outcome = charges[0].outcome;
    (granted, outcome, state)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// A denied check is told the exact time until this cost fits, at least 1 ms: one microsecond before it,
    /// it is denied, at it, it is allowed. It is told no time if and only if it never fits.
    #[test]
    fn retry_after_is_exact(limit in any_limit(), ops in trace(ANY_CLOCK), cost in 1u32..10) {
        let mut world = World::new(&[limit]);
        for op in &ops {
            world.apply(op);
            let now = world.now();
            let (granted, outcome, state) = tried(&world.state, now, &limit, cost);
            prop_assert_eq!(outcome.violated, granted == 0);
            if granted == 1 {
                prop_assert_eq!(outcome.retry_after, None);
            } else if let Some(retry) = outcome.retry_after {
                prop_assert!(retry > Millis::ZERO);
                let at_us = (now.floor_ms() + retry.get()) * 1000;
                prop_assert_eq!(tried(&state, Now::from_micros(at_us - 1), &limit, cost).0, 0);
                prop_assert_eq!(tried(&state, Now::from_micros(at_us), &limit, cost).0, 1);
            } else {
                prop_assert!(cost > limit.capacity());
            }
        }
    }

    /// `remaining` is what would pass now, one by one. It does not grow before `reset_after` is over, and
    /// then it does; where reset_after is zero it never grows.
    #[test]
    fn remaining_grows_exactly_when_reset_after_is_over(limit in any_limit(), ops in trace(ANY_CLOCK)) {
        let mut world = World::new(&[limit]);
        ops.iter().for_each(|op| { world.apply(op); });
        let now = world.now();
        let (_, outcome, state) = tried(&world.state, now, &limit, 0);
        let peek = |at: Now| tried(&state, at, &limit, 0).1;

        let mut one_by_one = state.clone();
        for passed in 0..=outcome.remaining.min(100) {
            let (granted, _, after) = tried(&one_by_one, now, &limit, 1);
            let capped = passed == limit.capacity();
            prop_assert!(granted == u32::from(passed < outcome.remaining) || capped || passed == 100);
            one_by_one = after;
        }

        let reset = outcome.reset_after;
        if reset > Millis::ZERO {
            prop_assert!(peek(now.after(Millis(reset.get() - 1))).remaining <= outcome.remaining);
            prop_assert!(peek(now.after(reset)).remaining > outcome.remaining);
        } else {
            prop_assert!(peek(now.after(Millis(10_000_000))).remaining <= outcome.remaining);
        }
    }

    /// A denied check changes nothing, and neither does a peek: the state is that of a counter that never saw
    /// it, brought up to the same instant.
    #[test]
    fn denied_changes_nothing(limit in any_limit(), ops in trace(ANY_CLOCK), cost in 0u32..12) {
        let mut world = World::new(&[limit]);
        for op in &ops {
            world.apply(op);
            let (granted, _, after) = tried(&world.state, world.now(), &limit, cost);
            if granted == 0 || cost == 0 {
                let mut settled = world.state.clone();
                settled.settle(world.now(), &limit);
                prop_assert_eq!(&after, &settled);
            }
        }
    }

    /// While time goes forward, not even being looked at makes a difference: with all denied checks and peeks
    /// left out, everything else is decided as it was.
    #[test]
    fn nobody_can_tell_that_others_were_denied(limit in any_limit(), ops in trace(Mix { batches: true, ..Mix::default() })) {
        let (mut all, mut granted_only) = (World::new(&[limit]), World::new(&[limit]));
        for op in &ops {
            let event = all.apply(op);
            granted_only.real_us = all.real_us;
            if let Event::Checked { granted: 1.., cost: 1.., .. } = event {
                prop_assert_eq!(granted_only.apply(op), event);
            }
        }
    }

    /// From `expires_at` on, a state says no more than a new one: whoever drops it then loses nothing.
    #[test]
    fn an_expired_state_can_be_dropped(limit in any_limit(), ops in trace(ANY_CLOCK), cost in 0u32..10) {
        if limit.permits() == 0 {
            return Ok(());
        }
        let mut world = World::new(&[limit]);
        ops.iter().for_each(|op| { world.apply(op); });
        world.check(0, 0, 1);
        let at = Now::from_millis(world.state.expires_at_ms(&limit)).max(world.now());
        let (kept, new) = (tried(&world.state, at, &limit, cost), tried(&State::new(&limit, 9), at, &limit, cost));
        prop_assert_eq!((kept.0, kept.1), (new.0, new.1));
    }
}

/// A million of them are held in memory, each beside its fingerprint, and each check reads one.
#[test]
fn a_state_leaves_room_in_two_cache_lines() {
    let size = size_of::<State>();
    assert!(size <= 80, "{size}");
}
