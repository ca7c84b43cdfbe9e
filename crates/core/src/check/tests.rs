use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::algorithm::tests::world::{CASES, MIDNIGHT_MS};
use crate::limit::Algorithm;

const ENFORCED: Terms = Terms { shadow: false, count_denied: false };
const SHADOW: Terms = Terms { shadow: true, count_denied: false };
const PENAL: Terms = Terms { shadow: false, count_denied: true };

fn per_minute(permits: u64) -> Limit {
    Limit::new(permits, Millis(60_000)).unwrap()
}

/// Counters that are decided on together, again and again.
struct Desk {
    counters: Vec<(State, Limit, Cost, u16, Terms)>,
    now: Now,
}

impl Desk {
    /// Counters of cost 1, each a policy of its own.
    fn new(limits: &[(Limit, Terms)]) -> Self {
        Self::of((0..).zip(limits).map(|(group, (limit, terms))| (*limit, 1, group, *terms)))
    }

    fn of(counters: impl IntoIterator<Item = (Limit, Cost, u16, Terms)>) -> Self {
        let counter = |(limit, cost, group, terms)| (State::new(&limit, 1), limit, cost, group, terms);
        Self { counters: counters.into_iter().map(counter).collect(), now: Now::from_millis(MIDNIGHT_MS) }
    }

    fn check(&mut self, times: u32) -> (u32, Vec<Outcome>) {
        let mut charges: Vec<Charge<'_>> = self
            .counters
            .iter_mut()
            .map(|(state, limit, cost, group, terms)| Charge::new(state, limit, *cost, *group, *terms))
            .collect();
        let granted = decide(self.now, times, &mut charges);
        (granted, charges.iter().map(|charge| charge.outcome).collect())
    }

    fn used(&self) -> Vec<u32> {
        self.counters.iter().map(|(state, ..)| state.used()).collect()
    }
}

/// What one counter is to the oracle: numbers.
#[derive(Clone, Debug)]
struct Plain {
    permits: u32,
    used: u32,
    cost: u32,
    group: u16,
    terms: Terms,
    violated: bool,
    refused_before: bool,
}

impl Plain {
    fn fits(&self) -> bool {
        self.used + self.cost <= self.permits || self.cost == 0
    }

    fn never(&self) -> bool {
        self.permits > 0 && self.cost > self.permits
    }
}

/// The oracle: single checks at one instant, one after another, by the words of the specification.
fn one_after_another(counters: &mut [Plain], times: u32) -> u32 {
    let all = |counters: &[Plain], chosen: &dyn Fn(&Plain) -> bool| {
        counters.iter().filter(|one| chosen(one)).all(Plain::fits)
    };
    let mut granted = 0;
    for _ in 0..times {
        let passes = all(counters, &|one| !one.terms.shadow);
        granted += u32::from(passes);
        let before = counters.to_vec();
        for counter in counters.iter_mut() {
            let group_passes = all(&before, &|one| one.group == counter.group);
            let mistake =
                before.iter().any(|one| one.never() && (one.group == counter.group || !one.terms.shadow));
            let fits = counter.fits();
            let counts = if group_passes { passes } else { counter.terms.count_denied && !mistake };
            // Penalties may fill further counters; what is named is what refused first.
            counter.violated |= !group_passes && !fits && !counter.refused_before;
            counter.refused_before |= !group_passes;
            counter.used += if counts { counter.cost } else { 0 };
        }
    }
    granted
}

fn plain() -> impl Strategy<Value = Plain> {
    (
        prop_oneof![1 => Just(0u32), 9 => 1u32..12],
        0u32..14,
        prop_oneof![1 => Just(0u32), 6 => 1u32..4, 1 => 4u32..14],
    )
        .prop_map(|(permits, used, cost)| Plain {
            permits,
            used,
            cost,
            group: 0,
            terms: Terms::default(),
            violated: false,
            refused_before: false,
        })
}

/// Policies of one to three counters each.
fn policies() -> impl Strategy<Value = Vec<Plain>> {
    let policy = (proptest::collection::vec(plain(), 1..4), any::<bool>(), any::<bool>());
    proptest::collection::vec(policy, 1..5).prop_map(|policies| {
        (0..)
            .zip(policies)
            .flat_map(|(group, (counters, shadow, count_denied))| {
                let terms = Terms { shadow, count_denied };
                counters.into_iter().map(move |counter| Plain { group, terms, ..counter })
            })
            .collect()
    })
}

fn desk(counters: &[Plain]) -> Desk {
    let mut desk = Desk::of(
        counters.iter().map(|one| (per_minute(u64::from(one.permits)), one.cost, one.group, one.terms)),
    );
    for ((state, limit, ..), plain) in desk.counters.iter_mut().zip(counters) {
        state.settle(desk.now, limit);
        state.charge(desk.now, limit, plain.used);
    }
    desk
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// Several policies of several limits, some shadow, some counting what they deny, with costs of 0, of the
    /// ordinary kind and of the impossible kind: n checks at once grant what n single ones, decided one after
    /// another, are granted, leave the same counts, and name the same limits as violated.
    #[test]
    fn n_checks_at_once_are_n_checks_one_after_another(mut counters in policies(), times in 0u32..9) {
        let mut at_once = desk(&counters);
        let mut singly = desk(&counters);
        let expected = one_after_another(&mut counters, times);
        let (granted, outcomes) = at_once.check(times);
        prop_assert_eq!(granted, expected);
        prop_assert_eq!(at_once.used(), counters.iter().map(|one| one.used).collect::<Vec<_>>());
        prop_assert_eq!(
            outcomes.iter().map(|outcome| outcome.violated).collect::<Vec<_>>(),
            counters.iter().map(|one| one.violated).collect::<Vec<_>>()
        );
        let one_by_one: u32 = (0..times).map(|_| singly.check(1).0).sum();
        prop_assert_eq!(one_by_one, expected);
        prop_assert!(singly.counters.iter().zip(&at_once.counters).all(|(left, right)| left.0 == right.0));
    }

    /// All or nothing: a check that is denied leaves every counter of every policy exactly as it was, unless
    /// a policy that refused counts what it denies.
    #[test]
    fn a_denied_check_leaves_no_trace_in_any_limit(counters in policies()) {
        let mut desk = desk(&counters);
        let before = desk.used();
        let (granted, outcomes) = desk.check(1);
        for (index, counter) in counters.iter().enumerate() {
            let refused = counters.iter().zip(&outcomes).any(|(one, outcome)| one.group == counter.group && outcome.violated);
            let taken = desk.used()[index] - before[index];
            if refused {
                prop_assert!(taken == 0 || counter.terms.count_denied && taken == counter.cost);
            } else {
                prop_assert_eq!(taken, granted * counter.cost);
            }
        }
    }

    /// Shadow policies hold nobody back: without them, the same is granted and the others come to the same.
    #[test]
    fn shadow_policies_change_nothing_for_the_others(counters in policies(), times in 0u32..9) {
        let enforced: Vec<_> = counters.iter().filter(|one| !one.terms.shadow).cloned().collect();
        let (mut all, mut without) = (desk(&counters), desk(&enforced));
        prop_assert_eq!(all.check(times).0, without.check(times).0);
        let kept = counters.iter().zip(all.used()).filter(|(one, _)| !one.terms.shadow).map(|(_, used)| used);
        prop_assert_eq!(kept.collect::<Vec<_>>(), without.used());
    }

    /// A shadow policy counts and says what the same policy says when it is enforced alone, and grants all.
    #[test]
    fn a_shadow_policy_counts_as_if_it_were_enforced_alone(counters in proptest::collection::vec(plain(), 1..4), count_denied in any::<bool>(), batches in proptest::collection::vec(0u32..5, 1..10)) {
        let with = |shadow| counters.iter().map(|one| Plain { terms: Terms { shadow, count_denied }, ..one.clone() }).collect::<Vec<_>>();
        let (mut shadow, mut enforced) = (desk(&with(true)), desk(&with(false)));
        for times in batches {
            let (passed, said) = shadow.check(times);
            prop_assert_eq!(passed, times);
            prop_assert_eq!(said, enforced.check(times).1);
            prop_assert_eq!(shadow.used(), enforced.used());
        }
    }

    /// A batch at any time, under any algorithm, is as many single checks: granted, and what follows.
    #[test]
    fn a_batch_of_any_algorithm_is_its_single_checks(
        limits in proptest::collection::vec((crate::algorithm::tests::promises::any_limit(), 0u32..4), 1..4),
        steps in proptest::collection::vec((0u64..30_000, 1u32..6), 1..40),
    ) {
        let counters = || (0..).zip(&limits).map(|(group, (limit, cost))| (*limit, *cost, group, ENFORCED));
        let (mut batch, mut single) = (Desk::of(counters()), Desk::of(counters()));
        for (wait_us, times) in steps {
            batch.now = Now::from_micros(batch.now.as_micros() + wait_us);
            single.now = batch.now;
            let one_by_one: u32 = (0..times).map(|_| single.check(1).0).sum();
            prop_assert_eq!(batch.check(times).0, one_by_one);
            for ((left, limit, cost, ..), (right, ..)) in batch.counters.iter().zip(&single.counters) {
                prop_assert_eq!(left.outcome(batch.now, limit, *cost, false), right.outcome(batch.now, limit, *cost, false));
                // A leaky bucket has given out more receipts, each of its own epoch.
                let leaky = matches!(limit.algorithm(), Algorithm::LeakyBucket { .. });
                prop_assert!(left == right || leaky);
            }
        }
    }
}

// F5: a shadow policy over its limit stopped the increments of the enforced ones, which then never tripped.
#[test]
fn a_shadow_policy_over_its_limit_does_not_stop_the_others() {
    let mut desk = Desk::new(&[(per_minute(1), SHADOW), (per_minute(5), ENFORCED)]);
    let granted: u32 = (0..100).map(|_| desk.check(1).0).sum();
    assert_eq!(granted, 5);
    assert_eq!(desk.used(), [1, 5]);
}

// R120: the comment promised a roll-back that was not there: denied calls left a trace in the other limit.
#[test]
fn a_call_that_one_limit_denies_leaves_the_other_alone() {
    let mut desk = Desk::of([(per_minute(10), 1, 0, ENFORCED), (per_minute(5), 1, 0, ENFORCED)]);
    let granted: u32 = (0..10).map(|_| desk.check(1).0).sum();
    assert_eq!(granted, 5);
    assert_eq!(desk.used(), [5, 5]);
}

// R121, F21: a throttled user drained the quota that everybody shares.
#[test]
fn a_throttled_user_does_not_drain_the_shared_quota() {
    let mut global = Desk::new(&[(per_minute(10), ENFORCED)]);
    let mut as_user = |times: u32| {
        let mut desk = Desk::new(&[(per_minute(1), ENFORCED)]);
        desk.counters.push(global.counters.pop().unwrap());
        desk.counters[1].3 = 1;
        let granted: u32 = (0..times).map(|_| desk.check(1).0).sum();
        global.counters.push(desk.counters.pop().unwrap());
        granted
    };
    assert_eq!(as_user(20), 1);
    for _ in 0..9 {
        assert_eq!(as_user(1), 1);
    }
    assert_eq!(as_user(1), 0);
    assert_eq!(global.used(), [10]);
}

// R123: a user's budget was burned by an endpoint that was full; the order of the limits must not matter.
#[test]
fn a_full_endpoint_burns_no_user_s_budget_in_either_order() {
    for endpoint_first in [true, false] {
        let (endpoint, user) = ((per_minute(3), ENFORCED), (per_minute(100), ENFORCED));
        let mut desk = Desk::new(&if endpoint_first { [endpoint, user] } else { [user, endpoint] });
        let place = usize::from(!endpoint_first);
        let (state, limit, ..) = &mut desk.counters[place];
        state.settle(desk.now, limit);
        state.charge(desk.now, limit, 3);
        assert_eq!((0..30).map(|_| desk.check(1).0).sum::<u32>(), 0);
        assert_eq!(desk.used()[1 - place], 0);
    }
}

// R127: 5/s and 20/min, a hundred at once.
#[test]
fn a_hundred_at_once_charge_both_limits_alike() {
    let second = Limit::new(5, Millis(1_000)).unwrap();
    let mut desk = Desk::of([(second, 1, 0, ENFORCED), (per_minute(20), 1, 0, ENFORCED)]);
    assert_eq!(desk.check(100).0, 5);
    assert_eq!(desk.used(), [5, 5]);
}

// R131: the yearly reset was reported when the minute had denied.
#[test]
fn the_limit_that_denied_is_the_one_that_says_when() {
    let year = Limit::new(100_000, Millis(365 * 86_400_000)).unwrap();
    let mut desk = Desk::of([(per_minute(5), 1, 0, ENFORCED), (year, 1, 0, ENFORCED)]);
    assert_eq!(desk.check(6).0, 5);
    let (_, outcomes) = desk.check(1);
    assert!(outcomes[0].violated && outcomes[0].retry_after.unwrap() <= Millis(60_000));
    assert!(!outcomes[1].violated && outcomes[1].retry_after.is_none());
}

#[test]
fn a_policy_that_counts_what_it_denies_keeps_a_retrier_out() {
    let mut desk = Desk::new(&[(per_minute(2), PENAL)]);
    for _ in 0..30 {
        desk.check(1);
        desk.now = desk.now.after(Millis(10_000));
    }
    // Two passed at first; after that six denied ones a minute were always too many.
    assert_eq!(desk.used(), [6]);
    desk.now = desk.now.after(Millis(50_000));
    assert_eq!(desk.check(1).0, 1);
}

#[test]
fn a_cost_that_never_fits_is_not_counted_as_a_penalty() {
    let mut desk = Desk::of([(per_minute(10), 11, 0, PENAL), (per_minute(100), 11, 0, PENAL)]);
    let (granted, outcomes) = desk.check(3);
    assert_eq!((granted, desk.used()), (0, vec![0, 0]));
    assert_eq!(outcomes[0].retry_after, None);
}

#[test]
fn a_check_of_no_limits_passes() {
    assert_eq!(decide(Now::from_micros(0), 7, &mut []), 7);
}
