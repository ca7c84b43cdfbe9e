//! Leases on virtual time, in front of a model of the store.

use std::time::Duration;

use proptest::prelude::*;
use slidegate_core::decision::Mode;
use tokio::task::JoinHandle;

use super::*;
use crate::pipeline::flights::Flights;
use crate::pipeline::model::{
    Course, Fails, Model, PATIENCE, ROUND_TRIP, ask, on_paused_clock, pass, settle_down,
};
use crate::policy::{Lease, Policy, PolicyBuilder};
use crate::{Ask, Decision, Limiter};

type Subject = Arc<Leases<Model>>;

fn leases(model: &Model) -> Subject {
    let runtime = Handle::current();
    let flights = Flights::new(model.clone(), runtime.clone(), true, PATIENCE);
    let scatter = Scatter::new(flights, runtime.clone());
    Arc::new(Leases::by(Clock::Runtime(Instant::now()), scatter, runtime))
}

fn policy(limits: &str) -> PolicyBuilder {
    Policy::builder("p").limits(limits)
}

fn leased(limits: &str) -> PolicyBuilder {
    policy(limits).lease(Lease::For(Millis(20)))
}

/// An instance: a limiter of one policy over stages of its own.
fn instance(model: &Model, policy: PolicyBuilder) -> (Limiter<Subject>, Subject) {
    let stage = leases(model);
    let limiter = Limiter::builder().policy(policy.build().unwrap()).store(stage.clone()).build().unwrap();
    (limiter, stage)
}

async fn check(limiter: &Limiter<Subject>) -> Decision {
    limiter.check("p", &[]).await.unwrap()
}

fn checks(limiter: &Limiter<Subject>, count: usize) -> Vec<JoinHandle<Decision>> {
    let one = || {
        let limiter = limiter.clone();
        tokio::spawn(async move { check(&limiter).await })
    };
    (0..count).map(|_| one()).collect()
}

async fn allowed(checks: Vec<JoinHandle<Decision>>) -> usize {
    let mut allowed = 0;
    for check in checks {
        allowed += usize::from(check.await.unwrap().is_allowed());
    }
    allowed
}

fn calls(model: &Model) -> usize {
    model.world(|world| world.executed.len())
}

/// Permits in use, over all counters.
fn used(model: &Model) -> u32 {
    model.world(|world| world.states.values().map(slidegate_core::algorithm::State::used).sum())
}

#[tokio::test(start_paused = true)]
async fn a_busy_key_costs_a_call_in_the_time_of_a_lease() {
    let model = Model::new(ROUND_TRIP);
    let (limiter, stage) = instance(&model, leased("1000000/10s"));
    let mut spawned = Vec::new();
    for _ in 0..500 {
        spawned.extend(checks(&limiter, 50));
        pass(1).await;
    }
    assert_eq!(allowed(spawned).await, 25_000);
    settle_down().await;
    // Half a second is 25 leases; the first ones had yet to learn how busy it is.
    assert!(calls(&model) <= 25 + 10, "{} calls", calls(&model));
    assert_eq!(used(&model), 25_000, "what was not spent is given back");
    assert!(stage.figures().spent > 24_000);
    assert_eq!(model.faults(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_told_is_told_as_leased_with_what_was_spent_since() {
    let model = Model::new(ROUND_TRIP);
    let (limiter, _) = instance(&model, leased("100/10s"));
    let first = checks(&limiter, 10);
    pass(6).await;
    assert_eq!(allowed(first).await, 10);
    let mut told = Vec::new();
    for _ in 0..2 {
        let decision = check(&limiter).await;
        assert_eq!(decision.mode(), Mode::Leased);
        let outcome = *decision.limits().next().unwrap().outcome;
        told.push((outcome.limit, outcome.used, outcome.remaining));
    }
    assert_eq!(told, [(100, 11, 89), (100, 12, 88)]);
}

#[tokio::test(start_paused = true)]
async fn who_asks_seldom_asks_for_themselves() {
    let model = Model::new(ROUND_TRIP);
    let (limiter, stage) = instance(&model, leased("10/10s"));
    for _ in 0..5 {
        assert_eq!(check(&limiter).await.mode(), Mode::Normal);
        pass(200).await;
    }
    assert_eq!((calls(&model), stage.figures()), (5, LeaseFigures::default()));
}

/// Everybody is at the limit, and nobody asks again before half a lease has passed: or one free permit after another
/// would cost a call.
#[tokio::test(start_paused = true)]
async fn a_limit_that_is_reached_is_left_alone_for_half_a_lease() {
    let model = Model::new(Course::default());
    let (limiter, stage) = instance(&model, leased("20/1s"));
    assert_eq!(allowed(checks(&limiter, 100)).await, 20);
    let before = calls(&model);
    for _ in 0..9 {
        let decision = check(&limiter).await;
        assert_eq!((decision.is_allowed(), decision.mode()), (false, Mode::Leased));
        assert!(decision.retry_after().unwrap() >= Millis(1));
        pass(1).await;
    }
    assert_eq!(calls(&model), before);
    assert!(stage.figures().denied >= 9);
    // The store said when: longer than a pause, and asked at 50 ms, as others may have given back.
    let told = check(&limiter).await.retry_after().unwrap();
    assert!((Millis(900)..=Millis(1020)).contains(&told), "{told}");
    pass(50).await;
    assert!(!check(&limiter).await.is_allowed());
    assert_eq!(calls(&model), before + 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_meant_for_one_who_is_gone_stays_in_the_purse() {
    let model = Model::new(ROUND_TRIP);
    let (limiter, stage) = instance(&model, leased("8/10s"));
    let warm = checks(&limiter, 7);
    pass(1).await;
    let mut gone = Box::pin(check(&limiter));
    assert!(ask(&mut gone).await.is_pending());
    // The answer is at the door, and nobody opens.
    pass(8).await;
    drop(gone);
    assert_eq!(allowed(warm).await, 7);
    // The last permit there is.
    let decision = check(&limiter).await;
    assert_eq!((decision.is_allowed(), decision.mode()), (true, Mode::Leased));
    settle_down().await;
    assert_eq!((used(&model), stage.figures().given_back), (8, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_is_told_to_all_and_leases_nothing() {
    for fails in [Fails::Unavailable, Fails::Lost, Fails::Panics] {
        let model = Model::new(Course { fails: Some(fails), ..ROUND_TRIP });
        let (limiter, stage) = instance(&model, leased("1000/10s"));
        let ten = (0..10).map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check("p", &[]).await })
        });
        for check in ten.collect::<Vec<_>>() {
            assert!(check.await.unwrap().is_err());
        }
        assert_eq!(stage.figures().spent, 0);
        model.world(|world| world.usual = ROUND_TRIP);
        assert!(check(&limiter).await.is_allowed());
        settle_down().await;
        assert_eq!(model.faults(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_end_the_store_holds_what_was_spent_and_nothing_more() {
    let model = Model::new(ROUND_TRIP);
    let (limiter, stage) = instance(&model, leased("1000/10s"));
    let spawned = checks(&limiter, 40);
    pass(5).await;
    let closed = tokio::time::timeout(Duration::from_millis(10), stage.close()).await;
    assert!(closed.is_ok(), "long before the lease ends");
    let spent = u32::try_from(allowed(spawned).await).unwrap();
    assert_eq!((spent, used(&model)), (40, 40));
    // Who comes all the same is decided, and nothing is leased for them.
    let late = checks(&limiter, 10);
    for check in late {
        assert_eq!(check.await.unwrap().mode(), Mode::Normal);
    }
    assert_eq!(used(&model), 50);
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_what_was_leased_before() {
    let model = Model::new(Course::default());
    let (limiter, _) = instance(&model, leased("30/10s"));
    assert_eq!(allowed(checks(&limiter, 15)).await, 15);
    limiter.reset("p", &[]).await.unwrap();
    let mut passed = 0;
    for _ in 0..100 {
        passed += u32::from(check(&limiter).await.is_allowed());
    }
    assert_eq!(passed, 30);
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_leased_goes_straight_on() {
    let model = Model::new(Course::default());
    let (limiter, stage) = instance(&model, leased("1000/10s").shadow(true));
    let _ = allowed(checks(&limiter, 50)).await;
    assert_eq!(stage.figures().calls, 0);
    let (limiter, stage) = instance(&model, policy("1000/10s"));
    let _ = allowed(checks(&limiter, 50)).await;
    assert_eq!(stage.figures().calls, 0);
    // Several lanes.
    let policies = ["p1", "p2"].map(|name| {
        Policy::builder(name).limits("100/10s").lease(Lease::Auto).key("{header:x-user}").build().unwrap()
    });
    let stage = leases(&model);
    let limiter = Limiter::builder().policies(policies).store(stage.clone()).build().unwrap();
    for _ in 0..50 {
        let asks = [Ask::new("p1", &["1"]), Ask::new("p2", &["2"])];
        assert!(limiter.check_all(&asks).await.unwrap().is_allowed());
    }
    assert_eq!((stage.figures().calls, stage.scatter().figures().scattered), (0, 50));
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_slow_all_lease_and_then_no_more() {
    let model = Model::new(Course { there_ms: 5, back_ms: 5, fails: None });
    let stage = leases(&model);
    let policy = policy("100000/10s").build().unwrap();
    let limiter = Limiter::builder().policy(policy).store(stage.clone()).build().unwrap();
    assert_eq!(allowed(checks(&limiter, 50)).await, 50);
    assert_eq!(stage.figures().calls, 0);
    model.world(|world| world.slow = Some(Duration::from_millis(10)));
    for _ in 0..100 {
        assert_eq!(allowed(checks(&limiter, 5)).await, 5);
        pass(1).await;
    }
    let during = stage.figures().calls;
    assert!((1..20).contains(&during), "{during}");
    model.world(|world| world.slow = None);
    assert_eq!(allowed(checks(&limiter, 50)).await, 50);
    assert_eq!(stage.figures().calls, during);
}

/// What happens in a trace.
#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    /// So many checks of an instance, of which some go away after so many milliseconds.
    Ask {
        instance: usize,
        count: usize,
        patience: Option<u64>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u64..30).prop_map(Step::Wait),
        1 => (50u64..300).prop_map(Step::Wait),
        5 => (0usize..3, 1usize..30, prop_oneof![3 => Just(None), 1 => (0u64..6).prop_map(Some)])
            .prop_map(|(instance, count, patience)| Step::Ask { instance, count, patience }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Three instances over one store, two that lease and one that asks for each check; calls that take any time to
    /// arrive, some of which fail or whose reply is lost; callers that go away; resets of nothing. In no window
    /// are more checks allowed than the limit, and when all is over the store holds no less than was allowed.
    #[test]
    fn no_window_holds_more_than_the_limit(
        permits in 1u64..60,
        trips in proptest::collection::vec((0u64..12, prop_oneof![6 => Just(None), 1 => Just(Some(Fails::Lost)), 1 => Just(Some(Fails::Unavailable))]), 0..60),
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut times = on_paused_clock(run(permits, trips, steps));
        times.sort_unstable();
        for (at, end) in times.iter().enumerate() {
            let within = times[..=at].iter().filter(|time| **time + 1_000_000 > *end).count();
            prop_assert!(within as u64 <= permits, "{within} of {permits} up to {end} us");
        }
    }
}

/// When checks were allowed, in microseconds since the beginning. An answer takes no time back, so that is when the
/// store decided, or when a permit was spent.
async fn run(permits: u64, trips: Vec<(u64, Option<Fails>)>, steps: Vec<Step>) -> Vec<u64> {
    let model = Model::new(Course { there_ms: 1, back_ms: 0, fails: None });
    let courses = trips.into_iter().map(|(there_ms, fails)| Course { there_ms, back_ms: 0, fails });
    model.world(|world| world.courses.extend(courses));
    let started = Instant::now();
    let limits = format!("{permits}/1s");
    let instances = [leased(&limits), policy(&limits).lease(Lease::Auto), policy(&limits)]
        .map(|policy| instance(&model, policy).0);
    let mut asked = Vec::new();
    for step in steps {
        match step {
            Step::Wait(ms) => pass(ms).await,
            Step::Ask { instance, count, patience } => {
                for number in 0..count {
                    let limiter = instances[instance].clone();
                    let patience =
                        patience.filter(|_| number % 2 == 0).map_or(PATIENCE, Duration::from_millis);
                    asked.push(tokio::spawn(async move {
                        let told = tokio::time::timeout(patience, limiter.check("p", &[])).await;
                        let allowed = told.is_ok_and(|told| told.is_ok_and(|decision| decision.is_allowed()));
                        allowed.then(|| u64::try_from(started.elapsed().as_micros()).unwrap())
                    }));
                }
            }
        }
    }
    let mut times = Vec::new();
    for one in asked {
        times.extend(one.await.unwrap());
    }
    times
}
