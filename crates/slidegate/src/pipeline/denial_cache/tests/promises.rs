//! The cache beside the model on virtual time, in microseconds, with latencies on the way to the store and
//! back, and other instances that take and give.

use proptest::prelude::*;
use slidegate_core::algorithm::State;
use slidegate_core::check::{self, decide};
use slidegate_core::decision::Outcome;
use slidegate_core::key::Key;
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_core::time::Now;

use super::super::*;
use crate::policy::Policy;
use crate::store::Charge;

/// The store's clock when that of the cache shows 0: not a whole millisecond.
const STORE_US: u64 = 1_767_225_600_000_137;

/// What happens.
#[derive(Clone, Debug)]
enum Step {
    /// Time passes.
    Wait { us: u64 },
    /// Time passes until shortly before the last denial ends, as it was told.
    WaitAsTold { less_us: u64 },
    /// A check through this instance, that takes so long to the store and back.
    Check { costs: [u32; 3], to_us: u64, back_us: u64, alone: bool },
    /// A check through another instance.
    Elsewhere { costs: [u32; 3] },
    /// A counter is emptied through another instance.
    ResetElsewhere { counter: usize },
    /// A counter is emptied through this instance.
    ResetHere { counter: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let us = || prop_oneof![0..3_000_u64, 0..80_000_u64];
    let latency = || prop_oneof![2 => Just(0), 1 => 0..1_500_u64, 1 => us()];
    let costs = || [1..5_u32, 1..5_u32, 1..5_u32];
    let step = prop_oneof![
        3 => prop_oneof![us(), 0..1_500_000_u64].prop_map(|us| Step::Wait { us }),
        3 => (0..1_500_u64).prop_map(|less_us| Step::WaitAsTold { less_us }),
        8 => (costs(), latency(), latency(), any::<bool>())
            .prop_map(|(costs, to_us, back_us, alone)| Step::Check { costs, to_us, back_us, alone }),
        2 => costs().prop_map(|costs| Step::Elsewhere { costs }),
        1 => (0..3_usize).prop_map(|counter| Step::ResetElsewhere { counter }),
        1 => (0..3_usize).prop_map(|counter| Step::ResetHere { counter }),
    ];
    prop::collection::vec(step, 1..120)
}

fn limit() -> impl Strategy<Value = Limit> {
    let window = prop_oneof![1..40_u64, 40..900_u64, Just(5_000_u64)];
    let algorithm = prop_oneof![
        3 => Just(Algorithm::SLIDING_WINDOW),
        1 => Just(Algorithm::SlidingLog),
        1 => Just(Algorithm::FixedWindow),
        1 => Just(Algorithm::TokenBucket { burst: 5 }),
        1 => Just(Algorithm::LeakyBucket { max_delay: Millis(40) }),
    ];
    (0..9_u64, window, algorithm).prop_map(|(permits, window, algorithm)| {
        let limit = Limit::new(permits, Millis(window)).unwrap();
        limit.with_algorithm(algorithm).unwrap_or(limit)
    })
}

/// The model: counters in one place, and the cache of one of the instances that ask it.
struct World {
    memory: Memory,
    /// Two limits in the first, one in the second.
    policies: [Policy; 2],
    key: Key,
    states: Vec<State>,
    now_us: u64,
    /// When the last denial ends, as it was told.
    told_us: u64,
    /// When a counter was last emptied without this instance hearing of it.
    given_back_us: Option<u64>,
    /// When permits were last taken: by others, by checks of one policy here, by checks of both.
    taken_us: [Option<u64>; 3],
    hits: u32,
}

impl World {
    fn new(limits: &[Limit; 3], shadow: bool) -> Self {
        let first = Policy::builder("first").limit(None, limits[0]).limit(None, limits[1]);
        let second = Policy::builder("second").limit(None, limits[2]).shadow(shadow);
        Self {
            memory: Memory::new(),
            policies: [first.build().unwrap(), second.build().unwrap()],
            key: Key::from_parts([("user", &b"1001"[..])]),
            states: limits.iter().map(|limit| State::new(limit, 0)).collect(),
            now_us: 1,
            told_us: 0,
            given_back_us: None,
            taken_us: [None; 3],
            hits: 0,
        }
    }

    /// The charges of a check, `alone` without the second policy. No cost is above what can ever fit.
    fn charges(&self, costs: [u32; 3], alone: bool) -> Vec<Charge<'_>> {
        let counters = self
            .policies
            .iter()
            .enumerate()
            .flat_map(|(group, policy)| policy.limits().iter().map(move |limit| (group, policy, limit)));
        let charges = counters.zip(costs).map(|((group, policy, limit), cost)| Charge {
            counter: Counter { policy, key: &self.key, limit },
            cost: cost.min(limit.limit().capacity()).max(1),
            group: u16::try_from(group).unwrap(),
            terms: policy.terms(),
        });
        charges.take(if alone { 2 } else { 3 }).collect()
    }

    /// What the store decides at this time, on counters that it leaves as they come out.
    fn decide(&self, at_us: u64, states: &mut [State], charges: &[Charge<'_>]) -> Answer {
        let mut asked: Vec<_> = charges
            .iter()
            .zip(states)
            .map(|(charge, state)| {
                let limit = charge.counter.limit.limit();
                check::Charge::new(state, limit, charge.cost, charge.group, charge.terms)
            })
            .collect();
        let granted = decide(Now::from_micros(STORE_US + at_us), 1, &mut asked);
        let outcomes = asked.iter().map(|charge| charge.outcome).collect();
        Answer { granted, outcomes, mode: Mode::Normal, certainty: Certainty::Exact }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Wait { us } => self.now_us += us,
            Step::WaitAsTold { less_us } => {
                self.now_us = self.now_us.max(self.told_us.saturating_sub(less_us));
            }
            Step::Check { costs, to_us, back_us, alone } => self.check(costs, to_us, back_us, alone)?,
            Step::Elsewhere { costs } => {
                let mut states = self.states.clone();
                let answer = self.decide(self.now_us, &mut states, &self.charges(costs, false));
                if answer.granted > 0 {
                    self.taken_us[0] = Some(self.now_us);
                }
                self.states = states;
            }
            Step::ResetElsewhere { counter } => {
                self.empty(counter);
                self.given_back_us = Some(self.now_us);
            }
            Step::ResetHere { counter } => {
                self.empty(counter);
                let charges = self.charges([1; 3], false);
                let place = self.memory.naming.of_counter(&charges[counter].counter).place;
                self.memory.returns.reset(place, self.now_us);
            }
        }
        Ok(())
    }

    fn empty(&mut self, counter: usize) {
        let limit = self.charges([1; 3], false)[counter].counter.limit.limit();
        self.states[counter] = State::new(limit, self.states[counter].epoch() + 7);
    }

    fn check(&mut self, costs: [u32; 3], to_us: u64, back_us: u64, alone: bool) -> Result<(), TestCaseError> {
        let charges = self.charges(costs, alone);
        let name = self.memory.naming.of_check(&charges);
        let question = Question { name, charges: &charges, asked_us: self.now_us };
        let others = match self.memory.find(&question) {
            Found::Denied(outcomes) => {
                self.verify(&charges, &outcomes)?;
                self.told_us = self.now_us + longest(&outcomes);
                self.hits += 1;
                return Ok(());
            }
            Found::Others => true,
            Found::Nothing => false,
        };
        let (decided_us, answered_us) = (self.now_us + to_us, self.now_us + to_us + back_us);
        let mut states = self.states.clone();
        let answer = self.decide(decided_us, &mut states, &charges);
        self.memory.learn(&question, others, &answer, answered_us);
        if answer.granted == 0 {
            self.told_us = answered_us + longest(&answer.outcomes);
        } else {
            self.taken_us[if alone { 1 } else { 2 }] = Some(decided_us);
        }
        self.states = states;
        self.now_us = answered_us;
        Ok(())
    }

    /// A denial from the cache, beside what the store says now and after the wait that was told.
    fn verify(&self, charges: &[Charge<'_>], told: &[Outcome]) -> Result<(), TestCaseError> {
        let store = self.decide(self.now_us, &mut self.states.clone(), charges);
        let recent = |at: Option<u64>| at.is_some_and(|at| self.now_us < at + BOUND.get() * 1000);
        if store.granted > 0 {
            prop_assert!(recent(self.given_back_us), "denied what the store allows");
            return Ok(());
        }
        let denying = |outcomes: &[Outcome]| -> Vec<Outcome> {
            let enforced = charges.iter().zip(outcomes).filter(|(charge, _)| !charge.terms.shadow);
            enforced.map(|(_, outcome)| *outcome).filter(|outcome| outcome.violated).collect()
        };
        let told = denying(told);
        prop_assert!(!told.is_empty());
        prop_assert!(told.iter().all(|outcome| outcome.retry_after != Some(Millis::ZERO)));
        let waits: Option<Vec<Millis>> = told.iter().map(|outcome| outcome.retry_after).collect();
        let Some(wait) = waits.map(|waits| waits.into_iter().max().unwrap()) else {
            prop_assert!(denying(&store.outcomes).iter().any(|outcome| outcome.retry_after.is_none()));
            return Ok(());
        };
        // What this instance took by checks of the same counters, it knows of.
        let others = if charges.len() == 2 { 2 } else { 1 };
        if recent(self.given_back_us) || recent(self.taken_us[0]) || recent(self.taken_us[others]) {
            return Ok(());
        }
        let then_us = self.now_us + wait.get() * 1000;
        let then = self.decide(then_us, &mut self.states.clone(), charges);
        prop_assert_eq!(then.granted, 1, "the wait that was told is too short");
        Ok(())
    }
}

/// The longest of the waits, in microseconds.
fn longest(outcomes: &[Outcome]) -> u64 {
    outcomes.iter().filter_map(|outcome| outcome.retry_after).max().unwrap_or_default().get() * 1000
}

proptest! {
    // Denied from the cache is denied by the store, unless permits were given back elsewhere less than the
    // bound ago; and who waits as told passes, if nobody took anything.
    #[test]
    fn a_repeated_denial_is_what_the_store_would_say(
        limits in [limit(), limit(), limit()],
        shadow in any::<bool>(),
        steps in steps(),
    ) {
        let mut world = World::new(&limits, shadow);
        for step in &steps {
            world.step(step)?;
        }
        prop_assert_eq!(u64::from(world.hits), world.memory.figures().hits);
    }

    // One counter, one cost: the wait that is told is the store's own, and no longer than the call took.
    #[test]
    fn a_wait_that_is_told_is_exact(
        limit in limit(),
        cost in 1..4_u32,
        to_us in 0..3_000_u64,
        back_us in 0..3_000_u64,
        later_us in 0..200_000_u64,
    ) {
        let mut world = World::new(&[limit, limit, limit], false);
        // Both limits are charged alike, so the last check is denied if there is any limit.
        for _ in 0..9 {
            world.check([cost; 3], to_us, back_us, true)?;
        }
        world.now_us += later_us;
        let charges = world.charges([cost; 3], true);
        let question =
            Question { name: world.memory.naming.of_check(&charges), charges: &charges, asked_us: world.now_us };
        if let Found::Denied(told) = world.memory.find(&question) {
            let store = world.decide(world.now_us, &mut world.states.clone(), &charges);
            for (told, store) in told.iter().zip(&store.outcomes) {
                prop_assert_eq!(told.violated, store.violated);
                let (told, store) = (told.retry_after.unwrap_or_default(), store.retry_after.unwrap_or_default());
                let slack = (to_us + back_us) / 1000 + 2;
                prop_assert!(told >= store && told.get() <= store.get() + slack, "{told} {store}");
            }
        }
    }
}

#[test]
fn the_properties_are_not_about_nothing() {
    let limit = Limit::new(3, Millis(500)).unwrap();
    let mut world = World::new(&[limit; 3], false);
    for _ in 0..200 {
        world.check([1; 3], 300, 300, true).unwrap();
        world.now_us += 1_000;
    }
    assert!(world.hits > 150, "{}", world.hits);
}
