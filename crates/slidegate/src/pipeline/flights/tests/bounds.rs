//! Nothing grows without end, and nobody is forgotten.

use super::lane::{CHARGES_PER_CALL, FLIGHTS_PER_LANE, QUEUE_MAX};
use super::*;
use crate::pipeline::model::{Course, charge, check, key};

#[tokio::test(start_paused = true)]
async fn who_finds_the_queue_full_is_told_at_once() {
    let model = Model::new(Course { there_ms: 50, ..ROUND_TRIP });
    let flights = flights(&model);
    let hot = || check([charge("hot", 0, 1_000_000, 60_000)]);
    let first = tokio::spawn({
        let flights = flights.clone();
        async move { flights.decide(hot(), 1).await }
    });
    pass(1).await;
    let mut waiting = Vec::new();
    for _ in 0..QUEUE_MAX {
        let mut asking = Box::pin(flights.decide(hot(), 1));
        assert!(ask(&mut asking).await.is_pending());
        waiting.push(asking);
    }
    let refused = ask(&mut Box::pin(flights.decide(hot(), 1))).await;
    assert!(matches!(
        refused,
        std::task::Poll::Ready(Err(StoreError::Unavailable { fault: Fault::QueueFull }))
    ));
    assert_eq!(flights.figures().queue_full, 1);
    // One leaves, and there is room for one.
    waiting.pop();
    let mut asking = Box::pin(flights.decide(hot(), 1));
    assert!(ask(&mut asking).await.is_pending());
    // Other lanes have queues of their own.
    let other = flights.decide(check([charge("other", 16, 1, 60_000)]), 1);
    assert_eq!(other.await.unwrap().answer.granted, 1);
    drop((waiting, asking));
    assert_eq!(first.await.unwrap().unwrap().answer.granted, 1);
    settle_down().await;
    assert_eq!(model.used(&key("hot", 0)), 1);
}

/// 512 callers of a store that could serve 200 of them in time: each was granted, too late, what then had to be
/// given back, and the store did nothing else any more. 4,000 of 380,000 checks came through.
#[tokio::test(start_paused = true)]
async fn who_would_be_answered_too_late_is_told_so_instead_of_being_sent() {
    const IN_TIME: usize = CHARGES_PER_CALL * FLIGHTS_PER_LANE;
    let model = Model::new(Course { there_ms: 3, back_ms: 3, fails: None });
    let patience = Duration::from_millis(10);
    let flights = Arc::new(Flights::new(model.clone(), Handle::current(), true, patience));
    let start = Instant::now();
    let tasks: Vec<_> = (0..3 * IN_TIME)
        .map(|at| {
            let flights = flights.clone();
            let one = check([charge(&format!("k{at}"), 0, 1, 60_000)]);
            tokio::spawn(async move { flights.decide(one, 1).await })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    let served = answers.iter().filter(|answer| answer.is_ok()).count();
    let refused = answers
        .iter()
        .filter(|answer| matches!(answer, Err(StoreError::Unavailable { fault: Fault::QueueFull })))
        .count();
    assert_eq!((served, refused), (IN_TIME, 2 * IN_TIME));
    assert!(start.elapsed() < patience);
    assert_eq!(model.world(|world| (world.executed.len(), world.returned.len())), (FLIGHTS_PER_LANE, 0));
    // Who comes next is asked for again, however slow the store was.
    assert!(flights.decide(check([charge("next", 0, 1, 60_000)]), 1).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn calls_are_small_and_few_at_a_time_however_many_ask() {
    let model = Model::new(ROUND_TRIP);
    let flights = flights(&model);
    let tasks: Vec<_> = (0..3_000)
        .map(|at| {
            let flights = flights.clone();
            let charges = [charge(&format!("k{at}"), 0, 1, 60_000), charge(&format!("l{at}"), 0, 1, 60_000)];
            tokio::spawn(async move { flights.decide(check(charges), 1).await.unwrap() })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap().answer.granted, 1);
    }
    let largest = model.world(|world| {
        let charges = |call: &crate::pipeline::model::Executed| {
            call.checks.iter().map(|counted| counted.check.charges.len()).sum::<usize>()
        };
        world.executed.iter().map(charges).max()
    });
    assert_eq!(largest, Some(CHARGES_PER_CALL));
    assert_eq!(model.most_under_way(), FLIGHTS_PER_LANE);
}

#[tokio::test(start_paused = true)]
async fn a_check_of_more_counters_than_a_call_holds_travels_alone() {
    let model = Model::new(ROUND_TRIP);
    let flights = flights(&model);
    let large = check((0..300).map(|at| charge(&format!("k{at}"), 0, 1, 60_000)));
    assert_eq!(flights.decide(large, 1).await.unwrap().answer.outcomes.len(), 300);
}

/// The next number of a little generator (splitmix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Real threads, since on one nothing ever happens between two steps: callers that ask again and again, and
/// some that lose patience. One wake-up lost, and somebody would wait for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_threads_nobody_is_forgotten_and_nothing_is_spent_twice() {
    let seed = u64::try_from(crate::random::u128() >> 64).unwrap();
    println!("seed {seed:#x}");
    let model = Model::new(Course::default());
    let flights = flights(&model);
    let tasks: Vec<_> = (0..64_u64)
        .map(|caller| {
            let (flights, mut state) = (flights.clone(), seed ^ caller.wrapping_mul(0x9e37_79b9));
            tokio::spawn(async move {
                let mut granted = 0;
                for _ in 0..400 {
                    let (at, lane) = (next(&mut state) % 3, u16::from(next(&mut state).is_multiple_of(4)));
                    let shared = charge(&format!("all{lane}"), lane, 4_000, 3_600_000);
                    let own = charge(&format!("k{at}{lane}"), lane, 3_000, 3_600_000);
                    let mut asking = Box::pin(flights.decide(check([own, shared]), 1));
                    if next(&mut state).is_multiple_of(8) {
                        for _ in 0..next(&mut state) % 4 {
                            if let std::task::Poll::Ready(decided) = ask(&mut asking).await {
                                granted += decided.unwrap().answer.granted;
                                break;
                            }
                            tokio::task::yield_now().await;
                        }
                        continue;
                    }
                    let told = tokio::time::timeout(Duration::from_secs(30), asking).await;
                    granted += told.expect("nobody is forgotten").unwrap().answer.granted;
                }
                granted
            })
        })
        .collect();
    let mut granted = 0;
    for task in tasks {
        granted += task.await.unwrap();
    }
    let charged = || model.used(&key("all0", 0)) + model.used(&key("all1", 1));
    let all_back = async {
        while charged() != granted {
            tokio::task::yield_now().await;
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(30), all_back).await;
    assert!(done.is_ok(), "{granted} were told, {} are charged", charged());
    assert!(granted > 4_000 && model.faults() == 0);
}
