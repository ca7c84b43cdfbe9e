//! Limits that change while their counters live, and counters that are emptied.

use slidegate::Policy;
use slidegate::core::limit::Algorithm;
use slidegate::core::time::Millis;
use slidegate::store::Store;

use crate::subject::Subject;
use crate::world::World;

pub(crate) async fn a_raised_limit_admits_at_once<W: World>() {
    // R098: denied tries had been counted, so a raised limit did not help. F12: the denial stuck. R105: the
    // limit was a part of the key, so each limit counted for itself.
    let world = W::fresh().await;
    assert_eq!(Subject::new("10/h").count_allowed(world.store(), 50).await, 10);
    let raised = Subject::new("20/h");
    assert_eq!(raised.used(world.store()).await, [10]);
    assert_eq!(raised.count_allowed(world.store(), 50).await, 10);
}

pub(crate) async fn a_lowered_limit_denies_until_enough_has_slid_out<W: World>() {
    // R104: no wait was told, and the reset came too early. F8: remaining wrapped to 1.8e19.
    let world = W::fresh().await;
    let subject = Subject::new("10/60s");
    for _ in 0..10 {
        assert!(subject.allows(world.store()).await);
        world.advance_ms(1000);
    }
    let lowered = Subject::new("3/60s");
    let denied = lowered.check(world.store(), 1).await;
    let outcome = denied.outcomes[0];
    assert_eq!((denied.granted, outcome.limit, outcome.used, outcome.remaining), (0, 3, 3, 0));
    // The eighth of the ten has to leave: it came at 7 s and leaves at 67 s; now is 10 s.
    assert_eq!(outcome.retry_after, Some(Millis(57_000)));
    assert_eq!(outcome.reset_after, Millis(57_000));
    world.advance_ms(56_999);
    assert!(!lowered.allows(world.store()).await);
    world.advance_ms(1);
    assert!(lowered.allows(world.store()).await);
    assert!(!lowered.allows(world.store()).await);
}

pub(crate) async fn a_limit_that_was_zero_for_a_while_remembers<W: World>() {
    // R101: the limit was stored with the counter, and kept for ever.
    let world = W::fresh().await;
    assert_eq!(Subject::new("30/m").count_allowed(world.store(), 30).await, 30);
    let denied = Subject::new("0/m").check(world.store(), 1).await;
    assert_eq!((denied.granted, denied.outcomes[0].retry_after), (0, None));
    assert_eq!(Subject::new("150/m").count_allowed(world.store(), 500).await, 120);
}

pub(crate) async fn a_changed_window_acts_on_the_same_history<W: World>() {
    // R102: keys that were there kept their window.
    let world = W::fresh().await;
    let (minute, second) = (Subject::new("5/60s"), Subject::new("5/1s"));
    assert_eq!(minute.count_allowed(world.store(), 9).await, 5);
    world.advance_ms(999);
    assert!(!second.allows(world.store()).await);
    world.advance_ms(1);
    assert_eq!(second.count_allowed(world.store(), 9).await, 5);
    // Those five now count for a minute. Keeping them until then is up to the store, not to chance.
    assert_eq!(minute.used(world.store()).await, [5]);
    world.advance_ms(59_999);
    world.tidy().await;
    assert!(!minute.allows(world.store()).await);
    world.advance_ms(1);
    assert_eq!(minute.count_allowed(world.store(), 9).await, 5);
}

pub(crate) async fn two_limits_on_one_history_stay_below_the_larger<W: World>() {
    // Two instances in the middle of a rollout, each with its own N for the same window.
    let world = W::fresh().await;
    let (old, new) = (Subject::new("10/10s"), Subject::new("14/10s"));
    let mut allowed_at = Vec::new();
    for step in 0..400u64 {
        let subject = if step % 3 == 0 { &new } else { &old };
        if subject.allows(world.store()).await {
            allowed_at.push(step * 100);
        }
        let in_window = allowed_at.iter().filter(|at| **at + 10_000 > step * 100).count();
        assert!(in_window <= 14);
        world.advance_ms(100);
    }
    assert!(allowed_at.len() > 40);
}

pub(crate) async fn a_changed_algorithm_starts_from_the_old_count<W: World>() {
    let algorithms = [
        Algorithm::SLIDING_WINDOW,
        Algorithm::SlidingLog,
        Algorithm::FixedWindow,
        Algorithm::TokenBucket { burst: 10 },
    ];
    for before in algorithms {
        for after in algorithms {
            let world = W::fresh().await;
            let limit = "10/60s";
            assert_eq!(Subject::under(before, limit).check(world.store(), 7).await.granted, 1);
            let changed = Subject::under(after, limit);
            assert_eq!(changed.used(world.store()).await, [7], "{before:?} -> {after:?}");
            assert_eq!(changed.count_allowed(world.store(), 10).await, 3, "{before:?} -> {after:?}");
        }
    }
}

pub(crate) async fn a_reset_empties_one_counter_and_no_other<W: World>() {
    // F16: reset was FLUSHDB, or a glob that took `*` in a key by its word.
    let world = W::fresh().await;
    let subject = Subject::new("2/m; 3/h");
    let star = subject.keyed(&[("client_ip", b"*")]);
    let other = Subject::of(Policy::builder("other").limits("2/m"));
    for each in [&subject, &star, &other] {
        each.count_allowed(world.store(), 2).await;
    }
    world.store().reset(&star.counter(0)).await.unwrap();
    assert_eq!(star.used(world.store()).await, [0, 2]);
    assert_eq!(subject.used(world.store()).await, [2, 2]);
    assert_eq!(other.used(world.store()).await, [2]);
    assert!(star.allows(world.store()).await);
    assert!(!star.allows(world.store()).await);
    // Of a counter that is not there: nothing happens.
    world.store().reset(&subject.keyed(&[]).counter(1)).await.unwrap();
    assert_eq!(subject.keyed(&[]).used(world.store()).await, [0, 0]);
}
