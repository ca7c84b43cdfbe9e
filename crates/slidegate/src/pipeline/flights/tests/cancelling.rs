//! Callers that go away: in the queue, in flight, and with the answer at the door.

use std::task::Poll;

use proptest::prelude::*;

use super::*;
use crate::pipeline::batch::OwnedCheck;
use crate::pipeline::model::{Course, charge, check, key};

fn one(permits: u64) -> OwnedCheck {
    check([charge("k", 0, permits, 60_000)])
}

/// Who asked, and how it ended.
type Asking<'a> = std::pin::Pin<Box<dyn Future<Output = Result<Decided, StoreError>> + 'a>>;

/// Asks, and is in flight or waits.
async fn asked(flights: &Flights<Model>, check: OwnedCheck) -> Asking<'_> {
    let mut asking: Asking<'_> = Box::pin(flights.decide(check, 1));
    assert!(ask(&mut asking).await.is_pending());
    asking
}

/// A moment at which what was asked just now is in flight.
async fn let_it_leave() {
    pass(1).await;
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_queue_is_never_sent() {
    let model = Model::new(ROUND_TRIP);
    let flights = flights(&model);
    let first = asked(&flights, one(9)).await;
    let_it_leave().await;
    let (second, third) = (asked(&flights, one(9)).await, asked(&flights, one(9)).await);
    drop(second);
    assert_eq!(first.await.unwrap().answer.outcomes[0].used, 1);
    assert_eq!(third.await.unwrap().answer.outcomes[0].used, 2);
    settle_down().await;
    assert_eq!((model.used(&key("k", 0)), model.world(|world| world.returned.len())), (2, 0));
    assert_eq!((flights.figures().cancelled, flights.figures().given_back), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_permit_of_one_who_is_gone_goes_to_the_next_of_the_same_flight() {
    let model = Model::new(ROUND_TRIP);
    let flights = flights(&model);
    let gone = asked(&flights, one(1)).await;
    let next = asked(&flights, one(1)).await;
    let_it_leave().await;
    drop(gone);
    assert_eq!(next.await.unwrap().answer.granted, 1);
    settle_down().await;
    assert_eq!((model.used(&key("k", 0)), model.world(|world| world.returned.len())), (1, 0));
}

// A permit is dated when the call is decided. Who was queued later could spend it a window later than that.
#[tokio::test(start_paused = true)]
async fn a_permit_of_one_who_is_gone_never_goes_to_one_who_was_queued_after_the_call_was_sent() {
    let model = Model::new(ROUND_TRIP);
    let flights = flights(&model);
    let gone = asked(&flights, one(1)).await;
    let_it_leave().await;
    let later = asked(&flights, one(1)).await;
    drop(gone);
    // Given back first, and then charged anew.
    assert_eq!(later.await.unwrap().answer.granted, 1);
    settle_down().await;
    let (returned, executed) = model.world(|world| (world.returned.len(), world.executed.clone()));
    assert_eq!((returned, executed.len(), model.used(&key("k", 0))), (1, 2, 1));
    assert!(executed[0].now < executed[1].now);
}

#[tokio::test(start_paused = true)]
async fn what_several_who_are_gone_were_granted_is_given_back_together() {
    let model = Model::new(ROUND_TRIP);
    let flights = flights(&model);
    let mut asking = Vec::new();
    for _ in 0..6 {
        asking.push(asked(&flights, one(9)).await);
    }
    let_it_leave().await;
    asking.drain(..4);
    for (one, used) in asking.into_iter().zip([1, 2]) {
        assert_eq!(one.await.unwrap().answer.outcomes[0].used, used);
    }
    settle_down().await;
    let returned: Vec<u32> =
        model.world(|world| world.returned.iter().map(|taken| taken.receipt.units).collect());
    assert_eq!((returned, model.used(&key("k", 0))), (vec![4], 2));
    assert_eq!((flights.figures().cancelled, flights.figures().given_back), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn who_leaves_with_the_answer_at_the_door_gives_it_back() {
    let model = Model::new(ROUND_TRIP);
    let flights = flights(&model);
    let asking = asked(&flights, one(1)).await;
    settle_down().await;
    assert_eq!(model.used(&key("k", 0)), 1);
    drop(asking);
    settle_down().await;
    assert_eq!(model.used(&key("k", 0)), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_whose_owner_is_gone_is_settled() {
    let model = Model::new(ROUND_TRIP);
    let flights = flights(&model);
    let reserving = || OwnedCheck { reserve: Some(ReservationId::random()), ..one(2) };
    let in_flight = asked(&flights, reserving()).await;
    let answered = asked(&flights, reserving()).await;
    let_it_leave().await;
    drop(in_flight);
    settle_down().await;
    drop(answered);
    settle_down().await;
    assert_eq!((model.used(&key("k", 0)), model.world(|world| world.reserved.len())), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_queue_lets_those_go_who_waited_for_it() {
    let model = Model::new(ROUND_TRIP);
    let flights = flights(&model);
    let (a, b) = (|| charge("a", 0, 9, 60_000), || charge("b", 0, 9, 60_000));
    let slow = asked(&flights, check([a()])).await;
    let_it_leave().await;
    let both = asked(&flights, check([a(), b()])).await;
    let behind = asked(&flights, check([b()])).await;
    let start = Instant::now();
    drop(both);
    assert_eq!(behind.await.unwrap().answer.granted, 1);
    // Sent at once, it did not wait for the slow one.
    assert_eq!(start.elapsed(), Duration::from_millis(4));
    slow.await.unwrap();
}

/// Drops a check after it was polled `polls` times, a step of time between; the other one in the same party
/// stays. Whether the check was told its answer.
async fn dropped_after(polls: usize, course: Course) -> bool {
    let model = Model::new(course);
    let flights = flights(&model);
    let stays = asked(&flights, one(9)).await;
    let mut asking: Asking<'_> = Box::pin(flights.decide(one(9), 1));
    let mut told = false;
    for _ in 0..polls {
        if let Poll::Ready(decided) = ask(&mut asking).await {
            told = decided.unwrap().answer.granted == 1;
            break;
        }
        pass(1).await;
    }
    drop(asking);
    assert_eq!(stays.await.unwrap().answer.granted, 1);
    settle_down().await;
    let spent = 1 + u32::from(told);
    assert_eq!(model.used(&key("k", 0)), spent, "dropped after {polls} polls");
    assert_eq!(model.faults(), 0);
    told
}

#[test]
fn wherever_a_check_is_dropped_nothing_stays_charged_that_nobody_has() {
    let told: Vec<bool> = (0..12).map(|polls| on_paused_clock(dropped_after(polls, ROUND_TRIP))).collect();
    assert!(told.contains(&false) && told.contains(&true), "both ways were taken: {told:?}");
}

/// One who asks for one of three counters, and how long they have patience.
type Visit = (u64, usize, Option<u64>);

/// Lets them all come and go: units that were told, and what is charged.
async fn come_and_go(visits: Vec<Visit>, courses: Vec<Course>) -> ([u32; 3], [u32; 3], usize) {
    let model = Model::new(ROUND_TRIP);
    model.world(|world| world.courses.extend(courses));
    let flights = flights(&model);
    let mut tasks = Vec::new();
    for (after_ms, at, patience_ms) in visits {
        pass(after_ms).await;
        let flights = flights.clone();
        let check = check([charge(["a", "b", "c"][at], 0, 7, 60_000), charge("all", 0, 25, 60_000)]);
        tasks.push(tokio::spawn(async move {
            let asking = flights.decide(check, 1);
            let patience = Duration::from_millis(patience_ms.unwrap_or(10_000));
            let told = tokio::time::timeout(patience, asking).await;
            assert!(patience_ms.is_some() || told.is_ok(), "everybody is answered in the end");
            (at, told.map_or(0, |decided| decided.unwrap().answer.granted))
        }));
    }
    let mut told = [0; 3];
    for task in tasks {
        let (at, granted) = task.await.unwrap();
        told[at] += granted;
    }
    settle_down().await;
    let charged = ["a", "b", "c"].map(|name| model.used(&key(name, 0)));
    assert_eq!(model.used(&key("all", 0)), charged.iter().sum::<u32>());
    (told, charged, model.faults())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Callers come and lose patience at any time, calls take any time: in the end exactly what was told is
    /// charged, and nothing is charged at one counter of a check and not at the other.
    #[test]
    fn what_is_charged_in_the_end_is_what_was_told(
        visits in proptest::collection::vec(
            (0u64..3, 0usize..3, proptest::option::of(0u64..9)), 1..60),
        courses in proptest::collection::vec((0u64..5, 0u64..5), 0..30),
    ) {
        let course = |(there_ms, back_ms)| Course { there_ms, back_ms, fails: None };
        let courses = courses.into_iter().map(course).collect();
        let (told, charged, faults) = on_paused_clock(come_and_go(visits, courses));
        prop_assert_eq!(told, charged);
        prop_assert_eq!(faults, 0);
    }
}
