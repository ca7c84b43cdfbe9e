//! Who travels with whom, and who is granted.

use tokio::time::Instant;

use super::*;
use crate::pipeline::batch::OwnedCheck;
use crate::pipeline::model::{Course, PATIENCE, charge, check, key};

fn hot(permits: u64) -> OwnedCheck {
    check([charge("hot", 0, permits, 60_000)])
}

/// Spawns as many equal checks, in this order; each tells whether it was granted.
fn spawn(
    flights: &Arc<Flights<Model>>,
    check: &OwnedCheck,
    times: usize,
) -> Vec<tokio::task::JoinHandle<Decided>> {
    let ask = || {
        let (flights, check) = (flights.clone(), check.clone());
        tokio::spawn(async move { flights.decide(check, 1).await.unwrap() })
    };
    (0..times).map(|_| ask()).collect()
}

async fn all(tasks: Vec<tokio::task::JoinHandle<Decided>>) -> Vec<Decided> {
    let mut decided = Vec::new();
    for task in tasks {
        decided.push(task.await.unwrap());
    }
    decided
}

// P3, R062: one hot key under many callers.
#[tokio::test(start_paused = true)]
async fn a_hot_key_costs_one_call_for_each_round_trip() {
    let model = Model::new(ROUND_TRIP);
    let flights = flights(&model);
    let first = spawn(&flights, &hot(700), 512);
    pass(1).await;
    let second = spawn(&flights, &hot(700), 512);
    let granted = |decided: &[Decided]| decided.iter().filter(|one| one.answer.granted == 1).count();
    assert_eq!(granted(&all(first).await), 512);
    assert_eq!(granted(&all(second).await), 188);
    assert_eq!(model.world(|world| world.executed.len()), 2);
    let figures = flights.figures();
    assert_eq!((figures.checks, figures.flights, figures.coalesced), (1024, 2, 1022));
    assert_eq!(figures.largest, 512);
}

#[tokio::test(start_paused = true)]
async fn who_came_first_is_granted_first_and_told_the_numbers_of_their_turn() {
    let model = Model::new(ROUND_TRIP);
    let flights = flights(&model);
    let decided = all(spawn(&flights, &hot(3), 5)).await;
    let told: Vec<(u32, u32, u32, bool)> = decided
        .iter()
        .map(|one| {
            let outcome = one.answer.outcomes[0];
            (one.answer.granted, outcome.used, outcome.remaining, outcome.violated)
        })
        .collect();
    assert_eq!(
        told,
        [(1, 1, 2, false), (1, 2, 1, false), (1, 3, 0, false), (0, 3, 0, true), (0, 3, 0, true)]
    );
    assert!(decided[..3].iter().all(|one| one.answer.outcomes[0].retry_after.is_none()));
    assert!(decided[3..].iter().all(|one| one.answer.outcomes[0].retry_after.is_some()));
}

#[tokio::test(start_paused = true)]
async fn a_check_that_waits_for_nobody_leaves_at_once() {
    let model = Model::new(ROUND_TRIP);
    let flights = flights(&model);
    let start = Instant::now();
    flights.decide(hot(1), 1).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(4));
}

#[tokio::test(start_paused = true)]
async fn other_counters_do_not_wait_for_a_slow_call() {
    let model = Model::new(ROUND_TRIP);
    model.world(|world| world.courses.push_back(Course { there_ms: 50, ..ROUND_TRIP }));
    let flights = flights(&model);
    let slow = spawn(&flights, &hot(9), 1);
    pass(1).await;
    let held_up = spawn(&flights, &hot(9), 1);
    let start = Instant::now();
    all(spawn(&flights, &check([charge("other", 0, 9, 60_000)]), 3)).await;
    assert_eq!(start.elapsed(), Duration::from_millis(4));
    all(slow).await;
    all(held_up).await;
    assert_eq!((start.elapsed(), model.faults()), (Duration::from_millis(55), 0));
}

#[tokio::test(start_paused = true)]
async fn checks_of_different_costs_share_a_call_and_are_decided_in_order() {
    let model = Model::new(ROUND_TRIP);
    let flights = flights(&model);
    let mut large = hot(10);
    large.charges[0].cost = 8;
    let small = spawn(&flights, &hot(10), 3);
    let large = spawn(&flights, &large, 1);
    let late = spawn(&flights, &hot(10), 3);
    assert!(all(small).await.iter().all(|one| one.answer.granted == 1));
    // Had the late ones joined the first, it would have been the same here; but not their numbers.
    assert_eq!(all(large).await[0].answer.granted, 0);
    assert_eq!(all(late).await[0].answer.outcomes[0].used, 4);
    assert_eq!(model.world(|world| world.executed.len()), 1);
    assert_eq!(model.used(&key("hot", 0)), 6);
}

#[tokio::test(start_paused = true)]
async fn lanes_do_not_wait_for_each_other() {
    let model = Model::new(ROUND_TRIP);
    let flights = flights(&model);
    let start = Instant::now();
    // More than there are locks.
    let tasks =
        (0..50).flat_map(|lane| spawn(&flights, &check([charge(&format!("k{lane}"), lane, 9, 60_000)]), 2));
    all(tasks.collect()).await;
    assert_eq!(start.elapsed(), Duration::from_millis(4));
    assert_eq!((model.world(|world| world.executed.len()), model.faults()), (50, 0));
}

#[tokio::test(start_paused = true)]
async fn switched_off_each_check_is_a_call_of_its_own() {
    let model = Model::new(ROUND_TRIP);
    let flights = Arc::new(Flights::new(model.clone(), Handle::current(), false, PATIENCE));
    let decided = all(spawn(&flights, &hot(3), 5)).await;
    assert_eq!(decided.iter().map(|one| one.answer.granted).sum::<u32>(), 3);
    assert_eq!(model.world(|world| world.executed.len()), 5);
    assert_eq!((flights.figures().checks, flights.figures().flights), (5, 5));
}
