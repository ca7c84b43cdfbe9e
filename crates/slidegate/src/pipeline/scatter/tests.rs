use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use slidegate_core::check::Terms;

use super::*;
use crate::pipeline::model::{
    Course, Fails, Model, PATIENCE, ROUND_TRIP, any_limit, ask, charge, check, decide_in, key,
    on_paused_clock, pass, settle_down,
};
use crate::{Ask, Limiter, Policy};

const LOST: Course = Course { fails: Some(Fails::Lost), ..ROUND_TRIP };
const UNAVAILABLE: Course = Course { fails: Some(Fails::Unavailable), ..ROUND_TRIP };

fn scatter(model: &Model) -> Arc<Scatter<Model>> {
    let flights = Flights::new(model.clone(), Handle::current(), true, PATIENCE);
    Arc::new(Scatter::new(flights, Handle::current()))
}

/// A check of somebody's own counter, in a lane of its own, and of one that all share, in lane 0.
fn own_and_shared(own: u16, permits: u64, shared_permits: u64) -> (OwnedCheck, Vec<bool>) {
    let shared = charge("all", 0, shared_permits, 60_000);
    (check([shared, charge(&format!("own{own}"), own, permits, 60_000)]), vec![true, false])
}

async fn gather(
    scatter: &Scatter<Model>,
    (check, is_shared): (OwnedCheck, Vec<bool>),
) -> Result<Answer, StoreError> {
    scatter.gather(check, is_shared).await
}

#[tokio::test(start_paused = true)]
async fn all_counters_are_charged_those_that_all_share_last() {
    let model = Model::new(ROUND_TRIP);
    let scatter = scatter(&model);
    let start = tokio::time::Instant::now();
    let answer = gather(&scatter, own_and_shared(7, 3, 9)).await.unwrap();
    assert_eq!((answer.granted, answer.certainty), (1, Certainty::Exact));
    // In the order of the question, not of the charging.
    assert_eq!(answer.outcomes.iter().map(|outcome| outcome.remaining).collect::<Vec<_>>(), [8, 2]);
    let lanes: Vec<(u16, bool)> = model.world(|world| {
        world.executed.iter().map(|call| (call.checks[0].check.lane(), call.checks[0].check.probe)).collect()
    });
    assert_eq!(lanes[2..], [(7, false), (0, false)]);
    assert!(lanes[..2].iter().all(|(_, probe)| *probe));
    // The probes at once, the charges one after the other.
    assert_eq!(start.elapsed(), Duration::from_millis(12));
    assert_eq!(scatter.figures(), ScatterFigures { scattered: 1, ..Default::default() });
}

#[tokio::test(start_paused = true)]
async fn what_one_lane_refuses_costs_nothing_in_the_others() {
    let model = Model::new(ROUND_TRIP);
    let scatter = scatter(&model);
    assert_eq!(gather(&scatter, own_and_shared(7, 1, 9)).await.unwrap().granted, 1);
    let answer = gather(&scatter, own_and_shared(7, 1, 9)).await.unwrap();
    assert_eq!((answer.granted, answer.certainty), (0, Certainty::Passing));
    assert_eq!(answer.outcomes.iter().map(|outcome| outcome.violated).collect::<Vec<_>>(), [false, true]);
    assert_eq!((answer.outcomes[0].used, model.used(&key("all", 0))), (1, 1));
    assert_eq!(model.world(|world| world.executed.len()), 2 + 2 + 2);
}

#[tokio::test(start_paused = true)]
async fn who_is_refused_late_gives_back_what_they_took() {
    let model = Model::new(ROUND_TRIP);
    let scatter = scatter(&model);
    let ask = |own| {
        let scatter = scatter.clone();
        tokio::spawn(async move { gather(&scatter, own_and_shared(own, 5, 1)).await.unwrap() })
    };
    // Both fit when they are probed.
    let (one, other) = (ask(3), ask(4));
    let (one, other) = (one.await.unwrap(), other.await.unwrap());
    assert_eq!((one.granted, other.granted, other.certainty), (1, 0, Certainty::Passing));
    assert!(other.outcomes[0].violated && other.outcomes[0].retry_after.is_some());
    assert_eq!((other.outcomes[1].violated, other.outcomes[1].used), (false, 0));
    let used = [("all", 0), ("own3", 3), ("own4", 4)].map(|(name, lane)| model.used(&key(name, lane)));
    assert_eq!(used, [1, 1, 0]);
    assert_eq!(scatter.figures(), ScatterFigures { scattered: 2, returned: 1, unconfirmed: 0 });
}

#[tokio::test(start_paused = true)]
async fn what_may_not_have_been_given_back_is_said_in_the_answer() {
    let model = Model::new(ROUND_TRIP);
    let scatter = scatter(&model);
    let first = tokio::spawn({
        let scatter = scatter.clone();
        async move { gather(&scatter, own_and_shared(3, 5, 1)).await.unwrap() }
    });
    let second = tokio::spawn({
        let scatter = scatter.clone();
        async move { gather(&scatter, own_and_shared(4, 5, 1)).await.unwrap() }
    });
    // The probes share no more than one lane, and the last charge is of both: six calls, and then this one.
    model.world(|world| world.courses.extend([ROUND_TRIP; 6].into_iter().chain([UNAVAILABLE])));
    assert_eq!(first.await.unwrap().granted, 1);
    let answer = second.await.unwrap();
    assert_eq!((answer.granted, answer.certainty), (0, Certainty::Unconfirmed));
    assert_eq!((model.used(&key("own4", 4)), scatter.figures().unconfirmed), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_was_lost_charged_nothing_and_says_so() {
    let model = Model::new(LOST);
    let scatter = scatter(&model);
    let told = gather(&scatter, own_and_shared(3, 5, 5)).await;
    assert!(matches!(told, Err(StoreError::Unavailable { fault: Fault::Timeout })));
}

#[tokio::test(start_paused = true)]
async fn a_charge_that_fails_gives_back_those_before_it() {
    let model = Model::new(ROUND_TRIP);
    let scatter = scatter(&model);
    model.world(|world| world.courses.extend([ROUND_TRIP, ROUND_TRIP, ROUND_TRIP, UNAVAILABLE]));
    let told = gather(&scatter, own_and_shared(3, 5, 5)).await;
    assert!(matches!(told, Err(StoreError::Unavailable { .. })));
    assert_eq!((model.used(&key("all", 0)), model.used(&key("own3", 3))), (0, 0));
}

/// Drops a check after some polls, a millisecond between them; whether it was told that it is granted.
async fn dropped_after(polls: usize, reserve: bool) -> bool {
    let model = Model::new(ROUND_TRIP);
    let scatter = scatter(&model);
    let (mut check, is_shared) = own_and_shared(3, 5, 5);
    check.reserve = reserve.then(ReservationId::random);
    let mut asking = Box::pin(scatter.gather(check, is_shared));
    let mut told = false;
    for _ in 0..polls {
        if let std::task::Poll::Ready(answer) = ask(&mut asking).await {
            told = answer.unwrap().granted == 1;
            break;
        }
        pass(1).await;
    }
    drop(asking);
    settle_down().await;
    let used = (model.used(&key("all", 0)), model.used(&key("own3", 3)));
    assert_eq!(used, (u32::from(told), u32::from(told)), "dropped after {polls} polls");
    assert_eq!(model.world(|world| world.reserved.len()), usize::from(told && reserve));
    told
}

#[test]
fn wherever_a_check_is_dropped_no_half_of_it_stays() {
    for reserve in [false, true] {
        let told: Vec<bool> = (0..24).map(|polls| on_paused_clock(dropped_after(polls, reserve))).collect();
        assert!(told.contains(&false) && told.contains(&true), "both ways were taken: {told:?}");
    }
}

fn limiter(model: &Model) -> Limiter<Scatter<Model>> {
    let scatter =
        Scatter::new(Flights::new(model.clone(), Handle::current(), true, PATIENCE), Handle::current());
    Limiter::builder()
        .policy(Policy::builder("user").limits("10/m").key("{header:x-user}").build().unwrap())
        .policy(Policy::builder("all").limits("15/m").build().unwrap())
        .store(scatter)
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_reservation_over_several_lanes_is_settled_as_one() {
    let limiter = limiter(&Model::new(ROUND_TRIP));
    let asks = [Ask::new("user", &["u3"]).cost(8), Ask::new("all", &[]).cost(8)];
    let (_, reservation) = limiter.reserve(&asks).await.unwrap();
    assert!(!limiter.check_all(&asks).await.unwrap().is_allowed());
    let settled = reservation.unwrap().commit(2).await.unwrap();
    assert_eq!(settled, Settled::Done { given_back: 6, charged: 0 });
    assert!(limiter.check_all(&asks).await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_dropped_is_given_back_although_that_takes_a_while() {
    let model = Model::new(ROUND_TRIP);
    let limiter = limiter(&model);
    let asks = [Ask::new("user", &["u3"]).cost(8)];
    let (_, reservation) = limiter.reserve(&asks).await.unwrap();
    drop(reservation);
    settle_down().await;
    assert_eq!(model.world(|world| world.reserved.len()), 0);
    assert!(limiter.check_all(&asks).await.unwrap().is_allowed());
    // So is one that is dropped while it is being made: by whichever comes later, its owner or its call.
    for polls in 0..8 {
        let asks = [Ask::new("user", &["u5"]).cost(8)];
        let mut reserving = Box::pin(limiter.reserve(&asks));
        for _ in 0..polls {
            if ask(&mut reserving).await.is_ready() {
                break;
            }
            pass(1).await;
        }
        drop(reserving);
        settle_down().await;
        assert_eq!(model.world(|world| world.reserved.len()), 0, "dropped after {polls} polls");
    }
    assert_eq!(limiter.peek("user", &["u5"]).await.unwrap().limits().next().unwrap().outcome.used, 0);
}

/// Dropped on a thread that no runtime knows.
#[test]
fn a_reservation_that_is_dropped_elsewhere_is_given_back_in_its_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (model, reservation) = runtime.block_on(async {
        let model = Model::new(Course { there_ms: 1, back_ms: 0, fails: None });
        let (_, reservation) = limiter(&model).reserve(&[Ask::new("user", &["u3"])]).await.unwrap();
        (model, reservation)
    });
    std::thread::spawn(move || drop(reservation)).join().unwrap();
    runtime.block_on(async {
        let given_back = async {
            while model.world(|world| world.reserved.len()) > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), given_back).await.unwrap();
    });
    assert_eq!(model.world(|world| world.states.values().map(|state| state.used()).sum::<u32>()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_can_t_be_remembered_is_given_back_unless_it_may_have_been() {
    for (course, left) in [(UNAVAILABLE, 0), (LOST, 1)] {
        let model = Model::new(ROUND_TRIP);
        let scatter = scatter(&model);
        model.world(|world| world.courses.extend([ROUND_TRIP; 4].into_iter().chain([course])));
        let (mut check, is_shared) = own_and_shared(3, 5, 5);
        let id = ReservationId::random();
        check.reserve = Some(id);
        assert!(scatter.gather(check, is_shared).await.is_err());
        settle_down().await;
        let used = || (model.used(&key("all", 0)), model.used(&key("own3", 3)));
        assert_eq!(used(), (left, left));
        // Who asked knows the id, and refunds what may be there: once.
        scatter.settle(id, 0).await.unwrap();
        assert_eq!(used(), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn checks_of_one_lane_go_straight_on() {
    let model = Model::new(ROUND_TRIP);
    let limiter = limiter(&model);
    assert!(limiter.check("user", &["u3"]).await.unwrap().is_allowed());
    assert!(
        limiter.check_all(&[Ask::new("user", &["u0"]), Ask::new("all", &[])]).await.unwrap().is_allowed()
    );
    assert_eq!(limiter.store().figures().scattered, 0);
    assert_eq!(model.world(|world| world.executed.len()), 2);
}

/// Under a deadline, as all stages stand together: whoever is given up leaves nothing behind.
#[tokio::test(start_paused = true)]
async fn what_is_given_up_at_the_deadline_does_not_stay_charged() {
    let model = Model::new(ROUND_TRIP);
    let stages =
        crate::pipeline::Stages { timeout: Duration::from_millis(10), flights: true, denial_cache: true };
    let stack = crate::pipeline::stack(model.clone(), stages, Handle::current());
    let policy = Policy::builder("user").limits("2/m").key("{header:x-user}").build().unwrap();
    let limiter = Limiter::builder().policy(policy).store(stack).build().unwrap();
    let slow = Course { there_ms: 20, ..ROUND_TRIP };
    model.world(|world| world.courses.push_back(slow));
    let start = tokio::time::Instant::now();
    assert_eq!(limiter.check("user", &["u3"]).await.unwrap().mode(), Mode::DenyAll);
    // This one waits for the counter, and is never sent.
    assert_eq!(limiter.check("user", &["u3"]).await.unwrap().mode(), Mode::DenyAll);
    assert_eq!(start.elapsed(), Duration::from_millis(20));
    settle_down().await;
    assert_eq!(model.world(|world| (world.executed.len(), world.returned.len())), (1, 1));
    assert_eq!(limiter.peek("user", &["u3"]).await.unwrap().limits().next().unwrap().outcome.used, 0);
}

/// Checks of up to four counters in four lanes; two counters of a lane may be of one policy.
fn checks() -> impl Strategy<Value = Vec<OwnedCheck>> {
    let limits = proptest::collection::vec(any_limit(), 8);
    let charge =
        (0usize..8, 0u32..4, any::<bool>(), proptest::bool::weighted(0.3), proptest::bool::weighted(0.3));
    let asked = proptest::collection::vec(proptest::collection::vec(charge, 1..5), 1..40);
    (limits, asked).prop_map(|(limits, asked)| {
        asked
            .into_iter()
            .map(|charges| {
                let mut whole = check([]);
                for (at, cost, of_lane, shadow, count_denied) in charges {
                    let lane = u16::try_from(at % 4).unwrap();
                    let key = key(&format!("k{at}"), lane);
                    let group = if of_lane { lane } else { 10 + u16::try_from(at).unwrap() };
                    // The limiter refuses costs that never fit.
                    let cost = if cost > limits[at].capacity() { 1 } else { cost };
                    let terms = Terms { shadow: shadow && !of_lane, count_denied: count_denied && !of_lane };
                    if whole.charges.iter().all(|charge| charge.key != key) {
                        let limit = limits[at];
                        whole.charges.push(OwnedCharge { key, limit, cost, group, terms, exact: false });
                    }
                }
                whole
            })
            .collect()
    })
}

async fn one_at_a_time(checks: Vec<OwnedCheck>) -> Result<(), TestCaseError> {
    let model = Model::new(Course::default());
    let scatter = scatter(&model);
    let mut states = HashMap::new();
    for (at, check) in (0_u64..).zip(checks) {
        pass(at % 4).await;
        let expected = decide_in(&mut states, model.now(), &check, 1).answer;
        let shared = vec![false; check.charges.len()];
        let answer = scatter.gather(check, shared).await.unwrap();
        prop_assert_eq!(answer.granted, expected.granted);
        prop_assert_eq!(answer.outcomes.to_vec(), expected.outcomes.to_vec());
    }
    prop_assert_eq!(model.faults(), 0);
    Ok(())
}

async fn all_at_once(asked: Vec<(u16, u64, Option<u64>)>) -> Result<(), TestCaseError> {
    let model = Model::new(ROUND_TRIP);
    let scatter = scatter(&model);
    let mut tasks = Vec::new();
    for (own, after_ms, patience_ms) in asked {
        pass(after_ms).await;
        let scatter = scatter.clone();
        tasks.push(tokio::spawn(async move {
            let patience = Duration::from_millis(patience_ms.unwrap_or(10_000));
            let told = tokio::time::timeout(patience, gather(&scatter, own_and_shared(own, 4, 9))).await;
            assert!(patience_ms.is_some() || told.is_ok(), "everybody is answered in the end");
            (own, told.map_or(0, |answer| answer.unwrap().granted))
        }));
    }
    let mut told = [0; 4];
    for task in tasks {
        let (own, granted) = task.await.unwrap();
        told[usize::from(own)] += granted;
    }
    settle_down().await;
    for own in 1..4_u16 {
        let used = model.used(&key(&format!("own{own}"), own));
        prop_assert!(used == told[usize::from(own)] && used <= 4);
    }
    let used = model.used(&key("all", 0));
    prop_assert!(used == told.iter().sum::<u32>() && used <= 9);
    prop_assert_eq!(model.faults(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// While nobody else asks, a scattered check is told what one decision over all its counters tells it,
    /// shadow policies and penalties included, and leaves the same behind.
    #[test]
    fn alone_a_scattered_check_is_an_ordinary_one(checks in checks()) {
        on_paused_clock(one_at_a_time(checks))?;
    }

    /// However they compete and lose patience: what is charged in the end is what was told, at each counter,
    /// and never more than its limit.
    #[test]
    fn competing_checks_never_pass_a_limit_and_leave_no_halves(
        asked in proptest::collection::vec((1u16..4, 0u64..4, proptest::option::of(0u64..30)), 1..40),
    ) {
        on_paused_clock(all_at_once(asked))?;
    }
}
