//! Shards on virtual time, in front of a model of the store.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::*;
use crate::pipeline::flights::Flights;
use crate::pipeline::leases::Leases;
use crate::pipeline::model::{Model, PATIENCE, ROUND_TRIP, settle_down};
use crate::pipeline::scatter::Scatter;
use crate::policy::PolicyBuilder;
use crate::{Ask, CheckError, Limiter, Policy};

type Subject = Arc<Shards<Leases<Model>, Model>>;

fn subject(model: &Model) -> Subject {
    let runtime = Handle::current();
    let flights = Flights::new(model.clone(), runtime.clone(), true, PATIENCE);
    let scatter = Scatter::new(flights, runtime.clone());
    Arc::new(Shards::new(Leases::new(scatter, runtime), Arc::new(model.clone()), true))
}

fn limiter(model: &Model, policy: PolicyBuilder) -> Limiter<Subject> {
    Limiter::builder().policy(policy.build().unwrap()).store(subject(model)).build().unwrap()
}

fn used(model: &Model) -> Vec<u32> {
    let mut used: Vec<u32> =
        model.world(|world| world.states.values().map(slidegate_core::algorithm::State::used).collect());
    used.sort_unstable();
    used
}

/// Exactly N pass, however N is split, whoever asks: also the last one, for which six of seven shards are full.
#[tokio::test(start_paused = true)]
async fn shares_add_up_to_the_limit_and_all_of_it_is_found() {
    for (permits, shards) in [(10u32, 3u32), (7, 7), (64, 64), (1000, 7)] {
        let model = Model::new(ROUND_TRIP);
        let policy = || Policy::builder("p").limits(&format!("{permits}/1m")).shards(shards);
        let instances = [limiter(&model, policy()), limiter(&model, policy())];
        let mut passed = 0;
        for number in 0..permits + 20 {
            let decision = instances[number as usize % 2].check("p", &[]).await.unwrap();
            passed += u32::from(decision.is_allowed());
        }
        assert_eq!(passed, permits);
        let used = used(&model);
        assert_eq!((used.len(), used.iter().sum::<u32>()), (shards as usize, permits));
        assert!(used[used.len() - 1] - used[0] <= 1);
    }
}

#[tokio::test(start_paused = true)]
async fn peeks_and_refusals_tell_sums_and_what_is_allowed_tells_an_estimate() {
    let model = Model::new(ROUND_TRIP);
    let limiter = limiter(&model, Policy::builder("p").limits("8/1m").shards(4));
    let numbers = |decision: &crate::Decision| {
        let outcome = *decision.limits().next().unwrap().outcome;
        (outcome.limit, outcome.used, outcome.remaining)
    };
    assert_eq!(numbers(&limiter.peek("p", &[]).await.unwrap()), (8, 0, 8));
    assert_eq!(numbers(&limiter.check("p", &[]).await.unwrap()), (8, 4, 4), "half of its shard");
    assert_eq!(numbers(&limiter.peek("p", &[]).await.unwrap()), (8, 1, 7));
    for _ in 0..7 {
        assert!(limiter.check("p", &[]).await.unwrap().is_allowed());
    }
    let refused = limiter.check("p", &[]).await.unwrap();
    assert_eq!((refused.is_allowed(), numbers(&refused)), (false, (8, 8, 0)));
    let told = refused.retry_after().unwrap();
    // The first that was charged is the first to leave.
    assert!((Millis(59_000)..Millis(60_000)).contains(&told), "{told}");
    limiter.reset("p", &[]).await.unwrap();
    assert_eq!(numbers(&limiter.peek("p", &[]).await.unwrap()), (8, 0, 8));
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_fits_into_no_shard_never_passes() {
    let model = Model::new(ROUND_TRIP);
    let limiter = limiter(&model, Policy::builder("p").limits("10/1m").shards(3));
    let ask = |cost| [Ask::new("p", &[]).cost(cost)];
    assert!(matches!(limiter.check_all(&ask(4)).await, Err(CheckError::Never { capacity: 3, .. })));
    assert!(limiter.check_all(&ask(3)).await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_reservation_is_settled_where_it_was_made() {
    let model = Model::new(ROUND_TRIP);
    let limiter = limiter(&model, Policy::builder("p").limits("12/1m").shards(3));
    let (decision, reservation) = limiter.reserve(&[Ask::new("p", &[]).cost(3)]).await.unwrap();
    assert!(decision.is_allowed());
    reservation.unwrap().commit(1).await.unwrap();
    settle_down().await;
    assert_eq!(used(&model).iter().sum::<u32>(), 1);
}

/// Another policy refuses: no shard can help, and none is asked.
#[tokio::test(start_paused = true)]
async fn a_counter_that_is_not_split_refuses_for_all() {
    let model = Model::new(ROUND_TRIP);
    let policies = [
        Policy::builder("split").limits("100/1m").shards(5).build().unwrap(),
        Policy::builder("whole").limits("2/1m").build().unwrap(),
    ];
    let limiter = Limiter::builder().policies(policies).store(subject(&model)).build().unwrap();
    let asks = [Ask::new("split", &[]), Ask::new("whole", &[])];
    let mut passed = 0;
    for _ in 0..9 {
        passed += u32::from(limiter.check_all(&asks).await.unwrap().is_allowed());
    }
    settle_down().await;
    assert_eq!((passed, used(&model).iter().sum::<u32>()), (2, 4));
}

#[tokio::test(start_paused = true)]
async fn shards_of_policies_that_lease_add_up_as_well() {
    let model = Model::new(ROUND_TRIP);
    let policy = Policy::builder("p").limits("100/1m").shards(4).lease(Lease::Auto);
    let limiter = limiter(&model, policy);
    let one = |_| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.check("p", &[]).await.unwrap().is_allowed() })
    };
    let mut passed = 0;
    for check in (0..400).map(one).collect::<Vec<_>>() {
        passed += u32::from(check.await.unwrap());
    }
    assert_eq!(passed, 100);
    settle_down().await;
    assert_eq!(used(&model), [25; 4]);
}

/// Three of four shards lie on nodes that can't be asked: a quarter of the limit is left, and an error when that is
/// away, too.
#[tokio::test(start_paused = true)]
async fn shards_of_nodes_that_are_away_are_left_out() {
    let model = Model::new(ROUND_TRIP);
    let limiter = limiter(&model, Policy::builder("p").limits("8/1m").shards(4));
    model.world(|world| world.away.extend([0, 1, 3]));
    let mut passed = 0;
    for _ in 0..8 {
        passed += u32::from(limiter.check("p", &[]).await.unwrap().is_allowed());
    }
    assert_eq!((passed, used(&model)), (2, vec![2]));
    model.world(|world| world.away.extend([2]));
    assert!(limiter.check("p", &[]).await.is_err());
}
