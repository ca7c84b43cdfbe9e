//! Two limiters over one store: what a reload of the configuration is. Limits come with every check, so they
//! act at once, on the history that is there.

use super::*;

type Shared = Arc<FakeStore>;

fn shared() -> (Arc<FakeClock>, Shared) {
    let (clock, store) = store();
    (clock, Arc::new(store))
}

/// The limiter after a reload that gave policy `p` these limits.
fn loaded(store: &Shared, limits: &str) -> Limiter<Shared> {
    let p = policy("p", limits).build().unwrap();
    Limiter::builder().policy(p).store(store.clone()).build().unwrap()
}

#[tokio::test]
async fn a_raised_limit_admits_at_once() {
    // R098: tries that had been denied were counted, so the raised limit was used up. R105: the limit was a
    // part of the key. F12: the denial stuck.
    let (_clock, store) = shared();
    assert_eq!(count_allowed(&loaded(&store, "10/h"), "p", "a", 50).await, 10);
    let raised = loaded(&store, "20/h");
    assert_eq!(count_allowed(&raised, "p", "a", 10).await, 10);
    assert!(!allows(&raised, "p", "a").await);
    assert_eq!(store.figures().keys, 1);
}

#[tokio::test]
async fn a_limit_taken_away_and_given_back_remembers() {
    // R101: the limit was kept with the counter.
    let (_clock, store) = shared();
    assert_eq!(count_allowed(&loaded(&store, "30/h"), "p", "a", 30).await, 30);
    assert!(!allows(&loaded(&store, "0/h"), "p", "a").await);
    assert_eq!(count_allowed(&loaded(&store, "150/h"), "p", "a", 200).await, 120);
}

#[tokio::test]
async fn a_changed_window_acts_on_keys_that_are_there() {
    // R102: only new keys had the new window.
    let (clock, store) = shared();
    assert_eq!(count_allowed(&loaded(&store, "5/60s"), "p", "a", 9).await, 5);
    let second = loaded(&store, "5/1s");
    assert!(!allows(&second, "p", "a").await);
    clock.advance(Millis(1000));
    assert_eq!(count_allowed(&second, "p", "a", 9).await, 5);
    let minute = loaded(&store, "5/60s");
    assert!(!allows(&minute, "p", "a").await);
    clock.advance(Millis(59_999));
    store.sweep();
    assert!(!allows(&minute, "p", "a").await);
    clock.advance(Millis(1));
    assert!(allows(&minute, "p", "a").await);
}

#[tokio::test]
async fn a_lowered_limit_tells_the_whole_wait() {
    // R104: a limit below what was in use told no wait, and its reset came too early. F8: remaining wrapped.
    let (clock, store) = shared();
    let before = loaded(&store, "10/60s");
    for _ in 0..10 {
        assert!(allows(&before, "p", "a").await);
        clock.advance(Millis(1000));
    }
    let denied = loaded(&store, "3/60s").check("p", &["a"]).await.unwrap();
    let outcome = *denied.limits().next().unwrap().outcome;
    assert_eq!((denied.is_allowed(), outcome.used, outcome.remaining), (false, 3, 0));
    assert_eq!(denied.retry_after(), Some(Millis(57_000)));
}

#[tokio::test]
async fn named_limits_keep_their_history_when_they_move() {
    let (_clock, store) = shared();
    let (hour, day): (Limit, Limit) = ("10/h".parse().unwrap(), "20/d".parse().unwrap());
    let load = |policy: PolicyBuilder| {
        let policy = policy.key("{client_ip}").build().unwrap();
        Limiter::builder().policy(policy).store(store.clone()).build().unwrap()
    };
    let before = load(Policy::builder("p").limit(Some("hour"), hour).limit(Some("day"), day));
    count_allowed(&before, "p", "a", 4).await;
    let policy = before.policy("p").unwrap();
    let key = Key::from_parts([("client_ip", b"a".as_slice())]);
    store.reset(&Counter { policy, key: &key, limit: &policy.limits()[0] }).await.unwrap();
    let after = load(Policy::builder("p").limit(Some("day"), day).limit(Some("hour"), hour));
    assert_eq!(used(&after, "p", "a").await, [(4, 16), (0, 10)]);
    // Unnamed ones go by their place.
    count_allowed(&loaded(&store, "10/h; 20/d"), "p", "b", 4).await;
    assert_eq!(used(&loaded(&store, "20/d"), "p", "b").await, [(4, 16)]);
}

#[tokio::test]
async fn a_reservation_made_before_a_reload_is_settled_after_it() {
    let (_clock, store) = shared();
    let (before, after) = (loaded(&store, "10/m"), loaded(&store, "20/m"));
    let (_, reservation) = before.reserve(&[Ask::new("p", &["a"]).cost(8)]).await.unwrap();
    let id = reservation.unwrap().into_id().unwrap();
    assert_eq!(used(&after, "p", "a").await, [(8, 12)]);
    drop(before);
    let settled = after.commit(id, 3).await.unwrap();
    assert_eq!(settled, Settled::Done { given_back: 5, charged: 0 });
    assert_eq!(used(&after, "p", "a").await, [(3, 17)]);
}

#[tokio::test]
async fn a_policy_that_was_dropped_and_comes_back_remembers() {
    let (_clock, store) = shared();
    count_allowed(&loaded(&store, "5/m"), "p", "a", 5).await;
    let without = Limiter::builder().store(store.clone()).build().unwrap();
    assert!(without.check("p", &["a"]).await.is_err());
    assert!(!allows(&loaded(&store, "5/m"), "p", "a").await);
}
