//! The property that all of it is for: no loss of precision.

use std::collections::HashMap;

use parking_lot::Mutex;
use proptest::prelude::*;
use slidegate_core::algorithm::State;
use slidegate_core::check::Terms;
use slidegate_core::limit::Limit;
use slidegate_core::time::Millis;

use super::*;
use crate::pipeline::batch::{CounterKey, OwnedCharge};
use crate::pipeline::model::{Course, Plain, any_limit, decide_in, key, plain};

/// One who asks.
#[derive(Clone, Debug)]
struct Arrival {
    after_ms: u64,
    check: usize,
    times: u32,
}

#[derive(Clone, Debug)]
struct Story {
    checks: Vec<OwnedCheck>,
    arrivals: Vec<Arrival>,
    courses: Vec<Course>,
}

const KEYS: usize = 4;

fn terms() -> impl Strategy<Value = Terms> {
    let terms = |shadow, count_denied| Terms { shadow, count_denied };
    prop_oneof![
        6 => Just(terms(false, false)),
        1 => Just(terms(true, false)),
        1 => Just(terms(false, true)),
        1 => Just(terms(true, true)),
    ]
}

/// Checks of one to three of the counters. Mostly a counter comes with one limit; now and then with
/// another, as while a configuration changes.
fn checks() -> impl Strategy<Value = Vec<OwnedCheck>> {
    let limits = proptest::collection::vec((any_limit(), any_limit()), KEYS);
    let charge = (0..KEYS, 0u32..4, terms(), proptest::bool::weighted(0.1));
    let charges = proptest::collection::vec(charge, 1..4);
    let check = (charges, proptest::bool::weighted(0.1));
    (limits, proptest::collection::vec(check, 1..6)).prop_map(|(limits, checks)| {
        checks.into_iter().map(|(charges, probe)| owned(&limits, charges, probe)).collect()
    })
}

fn owned(limits: &[(Limit, Limit)], charges: Vec<(usize, u32, Terms, bool)>, probe: bool) -> OwnedCheck {
    let mut owned = OwnedCheck { charges: SmallVec::new(), reserve: None, probe, lease: Millis::ZERO };
    for (group, (at, cost, terms, changed)) in (0..).zip(charges) {
        let key = key(&format!("k{at}"), 0);
        if owned.charges.iter().all(|charge| charge.key != key) {
            let limit = if changed { limits[at].1 } else { limits[at].0 };
            owned.charges.push(OwnedCharge { key, limit, cost, group, terms, exact: false });
        }
    }
    owned
}

fn stories() -> impl Strategy<Value = Story> {
    let after = prop_oneof![3 => Just(0u64), 3 => 1u64..4, 1 => 4u64..60];
    let times = prop_oneof![8 => Just(1u32), 1 => 2u32..5];
    let arrival = (after, any::<prop::sample::Index>(), times);
    let course = (0u64..5, 0u64..5).prop_map(|(there_ms, back_ms)| Course { there_ms, back_ms, fails: None });
    (checks(), proptest::collection::vec(arrival, 1..80), proptest::collection::vec(course, 1..40)).prop_map(
        |(checks, arrivals, courses)| {
            let arrivals = arrivals.into_iter().map(|(after_ms, check, times)| Arrival {
                after_ms,
                check: check.index(checks.len()),
                times,
            });
            Story { arrivals: arrivals.collect(), checks, courses }
        },
    )
}

/// What everybody was told, by arrival, and the model afterwards.
async fn play(story: &Story) -> (Vec<Plain>, Model) {
    let model = Model::new(Course { there_ms: 1, back_ms: 1, fails: None });
    model.world(|world| world.courses.extend(&story.courses));
    let flights = flights(&model);
    let told = Arc::new(Mutex::new(vec![None; story.arrivals.len()]));
    let mut tasks = Vec::new();
    for (at, arrival) in story.arrivals.iter().enumerate() {
        pass(arrival.after_ms).await;
        let (flights, told, times) = (flights.clone(), told.clone(), arrival.times);
        let check = story.checks[arrival.check].clone();
        let asking = async move {
            let decided = flights.decide(check, times).await.unwrap();
            told.lock()[at] = Some(plain(&decided));
        };
        // Polled here once, so that they come in this order.
        let mut asking = Box::pin(asking);
        if ask(&mut asking).await.is_pending() {
            tasks.push(tokio::spawn(asking));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let told = told.lock().iter().cloned().collect::<Option<Vec<_>>>().unwrap();
    (told, model)
}

/// The oracle: what the calls decided, decided again one check after another in the order of arrival.
/// Fails where a check went before one that came earlier to the same counter.
fn one_by_one(story: &Story, model: &Model) -> Vec<Plain> {
    let mut states: HashMap<CounterKey, State> = HashMap::new();
    let mut last_at: HashMap<CounterKey, usize> = HashMap::new();
    let mut told: Vec<Option<Plain>> = vec![None; story.arrivals.len()];
    for call in model.world(|world| world.executed.clone()) {
        for counted in call.checks {
            let mut left = counted.times;
            while left > 0 {
                let next = |at: &usize| {
                    told[*at].is_none() && story.checks[story.arrivals[*at].check] == *counted.check
                };
                let at = (0..told.len()).find(next).expect("somebody asked for it");
                for charge in &counted.check.charges {
                    let before = last_at.insert(charge.key.clone(), at);
                    assert!(before.is_none_or(|before| before < at), "{at} overtook {before:?}");
                }
                let times = story.arrivals[at].times;
                told[at] = Some(plain(&decide_in(&mut states, call.now, &counted.check, times)));
                left = left.checked_sub(times).expect("all of one arrival travel together");
            }
        }
    }
    told.into_iter().collect::<Option<Vec<_>>>().expect("everybody was asked for")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Under all algorithms, for checks of several counters, some shadow, some counting what they deny, some
    /// only looking, and calls that take any time: everybody is told exactly what decisions one by one, in
    /// the order in which they came, tell them; and no counter is ever in two calls at once.
    #[test]
    fn everybody_is_told_what_they_would_be_told_alone(story in stories()) {
        let (told, model) = on_paused_clock(play(&story));
        prop_assert_eq!(told, one_by_one(&story, &model));
        prop_assert_eq!(model.faults(), 0);
    }
}
