//! Reservations: charged now, settled later, once.

use std::sync::Arc;
use std::time::Duration;

use slidegate::Policy;
use slidegate::store::{ReservationId, Settled, Store};

use crate::subject::{Subject, reserve_all};
use crate::world::World;

const fn done(given_back: u32, charged: u32) -> Settled {
    Settled::Done { given_back, charged }
}

pub(crate) async fn what_is_committed_below_the_reserve_is_given_back<W: World>() {
    let world = W::fresh().await;
    let subject = Subject::new("10/m");
    let id = subject.reserve(world.store(), 8).await.unwrap();
    assert_eq!(subject.used(world.store()).await, [8]);
    assert!(subject.reserve(world.store(), 3).await.is_none());
    assert_eq!(world.store().settle(id, 3).await.unwrap(), done(5, 0));
    assert_eq!(subject.used(world.store()).await, [3]);
    assert_eq!(subject.count_allowed(world.store(), 20).await, 7);
}

pub(crate) async fn what_is_committed_above_the_reserve_is_charged_past_the_limit<W: World>() {
    let world = W::fresh().await;
    let subject = Subject::new("10/m");
    let id = subject.reserve(world.store(), 8).await.unwrap();
    assert_eq!(world.store().settle(id, 25).await.unwrap(), done(0, 17));
    let shown = subject.peek(world.store()).await[0];
    assert_eq!((shown.limit, shown.used, shown.remaining), (10, 10, 0), "clamped");
    assert!(!subject.allows(world.store()).await);
    // All 25 count: a limit of 25 is full, a limit of 26 has one left.
    assert_eq!(Subject::new("25/m").peek(world.store()).await[0].remaining, 0);
    assert_eq!(Subject::new("26/m").peek(world.store()).await[0].remaining, 1);
    world.advance_ms(60_000);
    assert_eq!(subject.count_allowed(world.store(), 20).await, 10);
}

pub(crate) async fn a_refund_gives_everything_back<W: World>() {
    let world = W::fresh().await;
    let subject = Subject::new("10/m");
    assert_eq!(subject.check(world.store(), 2).await.granted, 1);
    let id = subject.reserve(world.store(), 8).await.unwrap();
    world.advance_ms(30_000);
    assert_eq!(world.store().settle(id, 0).await.unwrap(), done(8, 0));
    assert_eq!(subject.used(world.store()).await, [2]);
    assert_eq!(subject.count_allowed(world.store(), 20).await, 8, "never above the limit");
}

pub(crate) async fn a_reservation_is_settled_once<W: World>() {
    let world = W::fresh().await;
    let subject = Subject::new("10/m");
    for (first, second) in [(3, 0), (0, 0), (5, 5), (7, 0)] {
        world.store().reset(&subject.counter(0)).await.unwrap();
        let id = subject.reserve(world.store(), 5).await.unwrap();
        assert_ne!(world.store().settle(id, first).await.unwrap(), Settled::Unknown);
        assert_eq!(world.store().settle(id, second).await.unwrap(), Settled::Unknown);
        assert_eq!(subject.used(world.store()).await, [first]);
    }
}

pub(crate) async fn a_reservation_that_never_was_is_unknown<W: World>() {
    let world = W::fresh().await;
    let subject = Subject::new("10/m");
    subject.check(world.store(), 5).await;
    let id = ReservationId::random();
    assert_eq!(world.store().settle(id, 0).await.unwrap(), Settled::Unknown);
    assert_eq!(world.store().settle(id, 9).await.unwrap(), Settled::Unknown);
    assert_eq!(subject.used(world.store()).await, [5]);
}

pub(crate) async fn a_denied_reservation_is_none<W: World>() {
    let world = W::fresh().await;
    let subject = Subject::new("10/m");
    subject.check(world.store(), 5).await;
    let id = ReservationId::random();
    let answer = crate::subject::ask(world.store(), &[(&subject, 6)], 1, Some(id)).await;
    assert_eq!(answer.granted, 0);
    assert_eq!(world.store().settle(id, 0).await.unwrap(), Settled::Unknown);
    assert_eq!(subject.used(world.store()).await, [5]);
}

pub(crate) async fn a_reservation_ends_with_its_window<W: World>() {
    for (wait_ms, expected) in [(59_999, done(5, 0)), (60_000, Settled::Unknown)] {
        let world = W::fresh().await;
        let subject = Subject::new("10/m");
        let id = subject.reserve(world.store(), 5).await.unwrap();
        world.advance_ms(wait_ms);
        world.tidy().await;
        subject.check(world.store(), 4).await;
        assert_eq!(world.store().settle(id, 0).await.unwrap(), expected);
        assert_eq!(subject.used(world.store()).await, [4]);
    }
}

pub(crate) async fn a_reservation_may_cost_nothing_at_first<W: World>() {
    // "Count only what failed": nothing is charged until it is known.
    let world = W::fresh().await;
    let subject = Subject::new("10/m");
    let id = subject.reserve(world.store(), 0).await.unwrap();
    assert_eq!(subject.used(world.store()).await, [0]);
    assert_eq!(world.store().settle(id, 4).await.unwrap(), done(0, 4));
    assert_eq!(subject.used(world.store()).await, [4]);
    let id = subject.reserve(world.store(), 0).await.unwrap();
    assert_eq!(world.store().settle(id, 0).await.unwrap(), done(0, 0));
    assert_eq!(subject.used(world.store()).await, [4]);
}

pub(crate) async fn a_reservation_covers_all_its_counters<W: World>() {
    let world = W::fresh().await;
    let user = Subject::of(Policy::builder("user").limits("10/m; 20/h"));
    let global = Subject::of(Policy::builder("global").limits("100/m"));
    let id = reserve_all(world.store(), &[(&user, 6), (&global, 4)]).await.unwrap();
    assert_eq!(user.used(world.store()).await, [6, 6]);
    assert_eq!(global.used(world.store()).await, [4]);
    // Settled at 5: the user gets one back, the shared quota pays one more.
    assert_eq!(world.store().settle(id, 5).await.unwrap(), done(1, 1));
    assert_eq!(user.used(world.store()).await, [5, 5]);
    assert_eq!(global.used(world.store()).await, [5]);
    assert!(reserve_all(world.store(), &[(&user, 6), (&global, 6)]).await.is_none());
    assert_eq!(global.used(world.store()).await, [5]);
}

pub(crate) async fn limits_that_slid_out_sooner_give_back_less<W: World>() {
    let world = W::fresh().await;
    let subject = Subject::new("10/s; 20/m");
    let id = subject.reserve(world.store(), 6).await.unwrap();
    world.advance_ms(1000);
    assert_eq!(subject.check(world.store(), 3).await.granted, 1);
    assert_eq!(world.store().settle(id, 2).await.unwrap(), done(4, 0));
    assert_eq!(subject.used(world.store()).await, [3, 5]);
}

pub(crate) async fn a_reset_in_between_gives_nothing_back<W: World>() {
    let world = W::fresh().await;
    let subject = Subject::new("10/m");
    let id = subject.reserve(world.store(), 6).await.unwrap();
    world.store().reset(&subject.counter(0)).await.unwrap();
    assert_eq!(subject.check(world.store(), 5).await.granted, 1);
    assert_eq!(world.store().settle(id, 0).await.unwrap(), done(0, 0));
    assert_eq!(subject.used(world.store()).await, [5]);
    // An excess is charged all the same: it was used.
    let id = subject.reserve(world.store(), 1).await.unwrap();
    world.store().reset(&subject.counter(0)).await.unwrap();
    assert_eq!(world.store().settle(id, 4).await.unwrap(), done(0, 3));
    assert_eq!(subject.used(world.store()).await, [3]);
}

pub(crate) async fn a_history_that_moved_with_the_clock_gives_nothing_back<W: World>() {
    let world = W::fresh().await;
    let subject = Subject::new("10/m");
    let id = subject.reserve(world.store(), 6).await.unwrap();
    world.step_back(Duration::from_secs(3600));
    assert!(subject.allows(world.store()).await);
    assert_eq!(world.store().settle(id, 0).await.unwrap(), done(0, 0));
    assert_eq!(subject.used(world.store()).await, [7]);
}

pub(crate) async fn a_reservation_under_a_changed_window_forgets_nothing<W: World>() {
    // A reload made 3/10s into 3/60s. Settling an older reservation under its own window dropped what only
    // the new one still counted: 6 passed within a minute.
    for actual in [0, 1, 2] {
        let world = W::fresh().await;
        let (short, long) = (Subject::new("3/10s"), Subject::new("3/60s"));
        assert_eq!(short.count_allowed(world.store(), 2).await, 2);
        world.advance_ms(9_000);
        let id = short.reserve(world.store(), 1).await.unwrap();
        assert_eq!(long.used(world.store()).await, [3]);
        world.advance_ms(9_000);
        world.store().settle(id, actual).await.unwrap();
        world.advance_ms(20_000);
        world.tidy().await;
        let used = long.used(world.store()).await[0];
        assert!(used >= 2 + actual.min(1), "settled at {actual}: {used} in use");
    }
}

pub(crate) async fn a_reservation_is_settled_once_however_many_try<W: World>() {
    let world = Arc::new(W::fresh().await);
    let subject = Subject::new("100/m");
    for _ in 0..50 {
        let id = subject.reserve(world.store(), 2).await.unwrap();
        let tries: Vec<_> = (0..4)
            .map(|_| {
                let world = world.clone();
                tokio::spawn(async move { world.store().settle(id, 1).await.unwrap() })
            })
            .collect();
        let mut settled = 0;
        for attempt in tries {
            settled += u32::from(attempt.await.unwrap() == done(1, 0));
        }
        assert_eq!(settled, 1);
    }
    assert_eq!(subject.used(world.store()).await, [50]);
}
