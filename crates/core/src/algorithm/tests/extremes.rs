//! Any numbers, in any order: nothing panics, wraps or lies about N. (Overflow checks are on in tests.)

use proptest::prelude::*;

use super::world::CASES;
use crate::algorithm::State;
use crate::check::{Charge, Terms, decide};
use crate::limit::{Algorithm, Limit};
use crate::time::{Millis, Now};

fn any_u64() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => any::<u64>(),
        2 => (0u32..64).prop_flat_map(|bits| (0u64..3).prop_map(move |more| (1u64 << bits).wrapping_add(more).wrapping_sub(1))),
        1 => Just(u64::MAX),
        1 => 0u64..100_000,
    ]
}

fn any_u32() -> impl Strategy<Value = u32> {
    prop_oneof![1 => any::<u32>(), 1 => 0u32..5, 1 => Just(u32::MAX)]
}

/// Whatever a door may let in: the constructors refuse, or the limit works.
fn any_limit() -> impl Strategy<Value = Limit> {
    let algorithm = prop_oneof![
        2 => Just(Algorithm::SLIDING_WINDOW),
        1 => any_u64().prop_map(|resolution| Algorithm::SlidingWindow { resolution: Some(Millis(resolution)) }),
        1 => Just(Algorithm::SlidingLog),
        1 => Just(Algorithm::FixedWindow),
        1 => any_u32().prop_map(|burst| Algorithm::TokenBucket { burst }),
        1 => any_u64().prop_map(|max_delay| Algorithm::LeakyBucket { max_delay: Millis(max_delay) }),
    ];
    let window = prop_oneof![any_u64(), 1u64..=366 * 86_400_000];
    (any_u64(), any_u32(), window, algorithm).prop_map(|(wild, tame, window, algorithm)| {
        // What the constructors refuse is tamed, one number after the other.
        let tame = u64::from(tame);
        let limit = Limit::new(wild, Millis(window))
            .or_else(|_| Limit::new(tame, Millis(window)))
            .or_else(|_| Limit::new(tame, Millis(1)))
            .unwrap();
        limit.with_algorithm(algorithm).unwrap_or(limit)
    })
}

#[derive(Clone, Debug)]
struct Step {
    now: u64,
    limit: usize,
    cost: u32,
    times: u32,
    count_denied: bool,
    refund: u32,
    lease: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let now = prop_oneof![any_u64(), 1_700_000_000_000_000u64..1_700_000_000_100_000];
    (now, 0usize..3, any_u32(), any_u32(), any::<bool>(), any_u32(), any_u64()).prop_map(
        |(now, limit, cost, times, count_denied, refund, lease)| Step {
            now,
            limit,
            cost,
            times,
            count_denied,
            refund,
            lease,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2 * CASES))]

    /// Any sequence of checks, refunds, leases and peeks under any limits, at any times: every call comes
    /// back, and what it says is within the limit.
    #[test]
    fn nothing_panics_and_nothing_wraps(
        limits in proptest::collection::vec(any_limit(), 3),
        epoch in any_u32(),
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let mut state = State::new(&limits[0], epoch);
        for step in steps {
            let (now, limit) = (Now::from_micros(step.now), limits[step.limit]);
            let terms = Terms { count_denied: step.count_denied, shadow: false };
            let mut charges = [Charge::new(&mut state, &limit, step.cost, 0, terms)];
            let granted = decide(now, step.times, &mut charges);
            let [charge] = charges;
            let (outcome, receipt) = (charge.outcome, charge.receipt);
            prop_assert!(granted <= step.times);
            prop_assert!(outcome.used <= outcome.limit && outcome.remaining <= outcome.limit);
            prop_assert_eq!(outcome.violated, granted < step.times);
            prop_assert!(outcome.retry_after != Some(Millis::ZERO));
            if step.cost > 0 && !matches!(limit.algorithm(), Algorithm::LeakyBucket { .. }) {
                prop_assert!(u64::from(granted) * u64::from(step.cost) <= u64::from(limit.capacity()));
            }
            if let Some(receipt) = receipt {
                prop_assert!(state.refund(now, &limit, &receipt, step.refund) <= receipt.units.min(step.refund));
            }
            if let State::TickLog(log) = &mut state {
                log.lease(now, &limit, step.refund, Millis(step.lease));
            }
            state.outcome(now, &limit, step.cost, true);
            state.delay(now, &limit);
            state.expires_at_ms(&limit);
        }
    }
}
