//! Calls that fail, and runtimes that end.

use super::*;
use crate::pipeline::batch::OwnedCheck;
use crate::pipeline::model::{Course, Fails, PATIENCE, charge, check, key};

fn one() -> OwnedCheck {
    check([charge("k", 0, 5, 60_000)])
}

/// Three checks aboard a call that goes this way, and a fourth that waits for the counter meanwhile.
async fn four_checks(fails: Fails) -> (Vec<Result<u32, StoreError>>, Model) {
    let model = Model::new(ROUND_TRIP);
    model.world(|world| world.courses.push_back(Course { fails: Some(fails), ..ROUND_TRIP }));
    let flights = flights(&model);
    let ask = || {
        let flights = flights.clone();
        tokio::spawn(async move { flights.decide(one(), 1).await.map(|decided| decided.answer.granted) })
    };
    let mut tasks: Vec<_> = (0..3).map(|_| ask()).collect();
    pass(1).await;
    tasks.push(ask());
    let mut told = Vec::new();
    for task in tasks {
        told.push(task.await.unwrap());
    }
    (told, model)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_executed_is_told_to_all_aboard_and_to_nobody_else() {
    let (told, model) = four_checks(Fails::Unavailable).await;
    let unavailable = |told: &Result<u32, StoreError>| matches!(told, Err(StoreError::Unavailable { .. }));
    assert!(told[..3].iter().all(unavailable), "{told:?}");
    assert!(matches!(told[3], Ok(1)));
    assert_eq!(model.used(&key("k", 0)), 1);
}

// R060: a reply was lost, the call was repeated, and all were counted twice.
#[tokio::test(start_paused = true)]
async fn a_call_whose_reply_was_lost_is_not_repeated() {
    let (told, model) = four_checks(Fails::Lost).await;
    let lost = |told: &Result<u32, StoreError>| matches!(told, Err(StoreError::Lost { .. }));
    assert!(told[..3].iter().all(lost), "{told:?}");
    assert!(matches!(told[3], Ok(1)));
    let times: Vec<u32> =
        model.world(|world| world.executed.iter().map(|call| call.checks[0].times).collect());
    assert_eq!((times, model.used(&key("k", 0))), (vec![3, 1], 4));
}

// Nobody may wait for ever because of a bug in a store, and no counter stay in flight.
#[tokio::test(start_paused = true)]
async fn a_store_that_panics_holds_nobody_up() {
    let (told, model) = four_checks(Fails::Panics).await;
    let lost = |told: &Result<u32, StoreError>| matches!(told, Err(StoreError::Lost { .. }));
    assert!(told[..3].iter().all(lost), "{told:?}");
    assert!(matches!(told[3], Err(StoreError::Unavailable { fault: Fault::Disconnected })));
    let flights = flights(&model);
    assert_eq!(flights.decide(one(), 1).await.unwrap().answer.granted, 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_panic_the_same_lane_goes_on() {
    let model = Model::new(ROUND_TRIP);
    model.world(|world| world.courses.push_back(Course { fails: Some(Fails::Panics), ..ROUND_TRIP }));
    let flights = flights(&model);
    assert!(matches!(flights.decide(one(), 1).await, Err(StoreError::Lost { .. })));
    assert_eq!(flights.decide(one(), 1).await.unwrap().answer.granted, 1);
}

#[test]
fn a_runtime_that_has_ended_leaves_nobody_waiting() {
    let other = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let model = other.block_on(async { Model::new(ROUND_TRIP) });
    let flights = Arc::new(Flights::new(model, other.handle().clone(), true, PATIENCE));
    drop(other);
    let told = on_paused_clock(async { tokio::spawn(async move { flights.decide(one(), 1).await }).await });
    assert!(matches!(told.unwrap(), Err(StoreError::Unavailable { fault: Fault::Disconnected })));
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_given_back_is_counted_and_not_tried_again() {
    let model = Model::new(ROUND_TRIP);
    let flights = flights(&model);
    let decided = flights.decide(one(), 1).await.unwrap();
    model.world(|world| world.courses.push_back(Course { fails: Some(Fails::Lost), ..ROUND_TRIP }));
    let told = flights.give_back(one().taken(&decided.receipts)).confirmed().await;
    assert!(matches!(told, Err(StoreError::Lost { .. })));
    settle_down().await;
    assert_eq!(model.world(|world| world.returned.len()), 1);
    assert_eq!((flights.figures().given_back, flights.figures().unconfirmed), (0, 1));
}
