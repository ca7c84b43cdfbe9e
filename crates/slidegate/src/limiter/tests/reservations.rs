//! The guard: whatever becomes of it, a reservation is settled exactly once.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use super::*;

const DONE_5: Settled = Settled::Done { given_back: 5, charged: 0 };

async fn reserve(limiter: &FakeLimiter, cost: Cost) -> Reservation<FakeStore> {
    let (decision, reservation) = limiter.reserve(&[Ask::new("p", &["a"]).cost(cost)]).await.unwrap();
    assert!(decision.is_allowed());
    reservation.unwrap()
}

fn ten_a_minute() -> (Arc<FakeClock>, FakeLimiter) {
    limiter([policy("p", "10/m")])
}

#[tokio::test]
async fn what_was_not_needed_is_given_back() {
    let (_clock, limiter) = ten_a_minute();
    let reservation = reserve(&limiter, 8).await;
    assert_eq!(used(&limiter, "p", "a").await, [(8, 2)]);
    assert_eq!(reservation.commit(3).await.unwrap(), DONE_5);
    assert_eq!(used(&limiter, "p", "a").await, [(3, 7)]);
}

#[tokio::test]
async fn what_was_needed_beyond_is_charged_past_the_limit_and_shown_clamped() {
    let (clock, limiter) = ten_a_minute();
    let settled = reserve(&limiter, 8).await.commit(30).await.unwrap();
    assert_eq!(settled, Settled::Done { given_back: 0, charged: 22 });
    assert_eq!(used(&limiter, "p", "a").await, [(10, 0)]);
    let denied = limiter.check("p", &["a"]).await.unwrap();
    assert_eq!(denied.retry_after(), Some(Millis(60_000)));
    clock.advance(Millis(60_000));
    assert_eq!(used(&limiter, "p", "a").await, [(0, 10)]);
}

#[tokio::test]
async fn a_dropped_reservation_is_given_back() {
    let (_clock, limiter) = ten_a_minute();
    drop(reserve(&limiter, 5).await);
    assert_eq!(reserve(&limiter, 5).await.refund().await.unwrap(), DONE_5);
    assert_eq!(used(&limiter, "p", "a").await, [(0, 10)]);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _reservation = futures_now(reserve(&limiter, 5));
        assert!(limiter.store().figures().reservations == 0, "made to panic with a reservation in hand");
    }));
    assert!(panicked.is_err());
    assert_eq!(used(&limiter, "p", "a").await, [(0, 10)]);
    assert_eq!(limiter.store().figures().reservations, 0);
}

/// The memory store answers at the first poll.
fn futures_now<T>(future: impl Future<Output = T>) -> T {
    let Poll::Ready(answer) = pin!(future).poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("the memory store never waits");
    };
    answer
}

#[tokio::test]
async fn a_reservation_that_was_handed_on_is_settled_by_its_id_alone() {
    let (_clock, limiter) = ten_a_minute();
    let id = reserve(&limiter, 5).await.into_id().unwrap();
    assert_eq!(used(&limiter, "p", "a").await, [(5, 5)]);
    // As a text, over HTTP and back.
    let id: ReservationId = id.to_string().parse().unwrap();
    assert_eq!(limiter.refund(id).await.unwrap(), DONE_5);
    assert_eq!(limiter.refund(id).await.unwrap(), Settled::Unknown);
    assert_eq!(limiter.commit(id, 9).await.unwrap(), Settled::Unknown);
    assert_eq!(used(&limiter, "p", "a").await, [(0, 10)]);
}

#[tokio::test]
async fn a_denied_reservation_is_none_and_charges_nothing() {
    let (_clock, limiter) = ten_a_minute();
    let held = reserve(&limiter, 8).await;
    let (decision, reservation) = limiter.reserve(&[Ask::new("p", &["a"]).cost(3)]).await.unwrap();
    assert!(!decision.is_allowed() && reservation.is_none());
    assert_eq!(limiter.store().figures().reservations, 1);
    assert_eq!(used(&limiter, "p", "a").await, [(8, 2)]);
    assert_eq!(held.commit(8).await.unwrap(), Settled::Done { given_back: 0, charged: 0 });
    let never = limiter.reserve(&[Ask::new("p", &["a"]).cost(11)]).await.unwrap_err();
    assert!(matches!(never, CheckError::Never { .. }));
}

#[tokio::test]
async fn a_reservation_covers_several_policies() {
    let (_clock, limiter) =
        limiter([policy("p", "10/m; 20/h"), policy("org", "100/m"), policy("seen", "1/m").shadow(true)]);
    let asks = ["p", "org", "seen"].map(|name| Ask::new(name, &["a"]).cost(6));
    let (decision, reservation) = limiter.reserve(&asks).await.unwrap();
    assert!(decision.is_allowed() && decision.is_shadow_denied());
    let (_, refused) = limiter.reserve(&asks).await.unwrap();
    assert!(refused.is_none());
    reservation.unwrap().commit(1).await.unwrap();
    assert_eq!(used(&limiter, "p", "a").await, [(1, 9), (1, 19)]);
    assert_eq!(used(&limiter, "org", "a").await, [(1, 99)]);
    // What a watching policy refused was not charged, so it is not settled either.
    assert_eq!(used(&limiter, "seen", "a").await, [(0, 1)]);
}

#[tokio::test]
async fn nothing_reserved_is_charged_when_it_is_known() {
    let (_clock, limiter) = ten_a_minute();
    let reservation = reserve(&limiter, 0).await;
    assert_eq!(used(&limiter, "p", "a").await, [(0, 10)]);
    assert_eq!(reservation.commit(4).await.unwrap(), Settled::Done { given_back: 0, charged: 4 });
    drop(reserve(&limiter, 0).await);
    assert_eq!(used(&limiter, "p", "a").await, [(4, 6)]);
}

#[tokio::test]
async fn a_reservation_that_outlived_its_window_is_unknown() {
    let (clock, limiter) = ten_a_minute();
    let (late, in_time) = (reserve(&limiter, 3).await, reserve(&limiter, 5).await);
    clock.advance(Millis(59_999));
    assert_eq!(in_time.refund().await.unwrap(), DONE_5);
    clock.advance(Millis(1));
    assert_eq!(late.commit(9).await.unwrap(), Settled::Unknown);
    assert_eq!(used(&limiter, "p", "a").await, [(0, 10)]);
}

#[tokio::test]
async fn a_reset_takes_reservations_with_it() {
    let (_clock, limiter) = ten_a_minute();
    let reservation = reserve(&limiter, 5).await;
    limiter.reset("p", &["a"]).await.unwrap();
    assert_eq!(count_allowed(&limiter, "p", "a", 4).await, 4);
    assert_eq!(reservation.refund().await.unwrap(), Settled::Done { given_back: 0, charged: 0 });
    assert_eq!(used(&limiter, "p", "a").await, [(4, 6)]);
}

#[tokio::test]
async fn a_guard_outlives_the_limiter_that_made_it() {
    let (_clock, store) = store();
    let store = Arc::new(store);
    let build = || {
        let p = policy("p", "10/m").build().unwrap();
        Limiter::builder().policy(p).store(store.clone()).build().unwrap()
    };
    let limiter = build();
    let (_, reservation) = limiter.reserve(&[Ask::new("p", &["a"]).cost(5)]).await.unwrap();
    drop(limiter);
    drop(reservation);
    assert_eq!(used(&build(), "p", "a").await, [(0, 10)]);
}

/// A store whose answer gets lost on the way back, as long as it is told to.
struct Losing {
    store: FakeStore,
    loses: AtomicBool,
}

impl Store for Losing {
    async fn check(&self, check: &store::Check<'_>) -> Result<Answer, StoreError> {
        let answer = self.store.check(check).await;
        if self.loses.load(Ordering::SeqCst) {
            pending::<()>().await;
        }
        answer
    }

    async fn settle(&self, id: ReservationId, actual: Cost) -> Result<Settled, StoreError> {
        self.store.settle(id, actual).await
    }

    async fn reset(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        self.store.reset(counter).await
    }
}

#[tokio::test]
async fn a_reserving_call_that_is_cancelled_midway_gives_back_what_it_charged() {
    let losing = Losing { store: store().1, loses: AtomicBool::new(true) };
    let p = policy("p", "10/m").build().unwrap();
    let limiter = Limiter::builder().policy(p).store(losing).build().unwrap();
    let asks = [Ask::new("p", &["a"]).cost(5)];
    {
        let mut call = pin!(limiter.reserve(&asks));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(limiter.store().store.figures().reservations, 1, "charged, and nobody knows");
    }
    assert_eq!(limiter.store().store.figures().reservations, 0);
    limiter.store().loses.store(false, Ordering::SeqCst);
    assert_eq!(used(&limiter, "p", "a").await, [(0, 10)]);
    // One that was never polled has asked nothing.
    drop(limiter.reserve(&asks));
    assert_eq!(used(&limiter, "p", "a").await, [(0, 10)]);
}
