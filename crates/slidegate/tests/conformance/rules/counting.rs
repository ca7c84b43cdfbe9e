//! One counter: how much, until when, and what leaves no trace.

use std::time::Duration;

use slidegate::Policy;
use slidegate::core::limit::{Algorithm, PERMITS_MAX};
use slidegate::core::time::Millis;

use crate::subject::{Subject, ask};
use crate::world::World;

/// Every algorithm, for a limit of `permits`: none of them admits more than that at one instant.
fn algorithms(permits: u32) -> [Algorithm; 6] {
    [
        Algorithm::SLIDING_WINDOW,
        Algorithm::SlidingWindow { resolution: Some(Millis(1)) },
        Algorithm::SlidingLog,
        Algorithm::FixedWindow,
        Algorithm::TokenBucket { burst: permits },
        Algorithm::LeakyBucket { max_delay: Millis(0) },
    ]
}

pub(crate) async fn a_counter_admits_its_limit_and_no_more<W: World>() {
    // R001: one entry for all requests of an instant admits everything.
    for algorithm in algorithms(5) {
        let world = W::fresh().await;
        let subject = Subject::under(algorithm, "5/20s");
        // A leaky bucket lets one out at a time.
        let admits = if matches!(algorithm, Algorithm::LeakyBucket { .. }) { 1 } else { 5 };
        assert_eq!(subject.count_allowed(world.store(), 100).await, admits, "{algorithm:?}");
        assert_eq!(subject.peek(world.store()).await[0].remaining, 0, "{algorithm:?}");
        world.advance_ms(20_000);
        assert_eq!(subject.count_allowed(world.store(), 100).await, admits, "{algorithm:?}");
    }
}

pub(crate) async fn a_limit_of_one_holds_in_any_window<W: World>() {
    // F1, F23: the lifetime of an entry was rounded down to 0, and nothing was limited.
    for window in ["1ms", "300ms", "1s", "1d", "366d"] {
        for algorithm in algorithms(1) {
            let world = W::fresh().await;
            let subject = Subject::under(algorithm, &format!("1/{window}"));
            assert!(subject.allows(world.store()).await, "{window} {algorithm:?}");
            assert!(!subject.allows(world.store()).await, "{window} {algorithm:?}");
        }
    }
}

pub(crate) async fn the_promised_wait_is_exact<W: World>() {
    // F4: waits cut to whole seconds told the denied to come back at once, or in vain.
    for algorithm in algorithms(5) {
        let world = W::fresh().await;
        let subject = Subject::under(algorithm, "5/7s");
        world.advance(Duration::from_micros(1_234_567));
        for step_us in [0, 1, 999, 400_000, 700_001, 333, 0, 0, 0] {
            world.advance(Duration::from_micros(step_us));
            subject.check(world.store(), 1).await;
        }
        for cost in [1, 2, 5] {
            let denied = subject.check(world.store(), cost).await;
            if denied.granted == 1 {
                continue;
            }
            let wait = denied.outcomes[0].retry_after.unwrap();
            assert!(denied.outcomes[0].violated && wait > Millis::ZERO, "{algorithm:?}");
            world.advance_ms(wait.get() - 1);
            assert_eq!(subject.check(world.store(), cost).await.granted, 0, "{algorithm:?} {cost} early");
            world.advance_ms(1);
            assert_eq!(subject.check(world.store(), cost).await.granted, 1, "{algorithm:?} {cost} on time");
        }
    }
}

pub(crate) async fn quota_comes_back_when_it_is_a_whole_window_old_in_continuous_time<W: World>() {
    // Both ends cut to milliseconds would let two pass that are 1 µs less than a window apart.
    let world = W::fresh().await;
    let subject = Subject::new("1/10ms");
    world.advance(Duration::from_micros(500));
    assert!(subject.allows(world.store()).await);
    for _ in 0..9_999 / 33 {
        world.advance(Duration::from_micros(33));
        assert!(!subject.allows(world.store()).await);
    }
    world.advance(Duration::from_micros(9_999 % 33));
    assert!(!subject.allows(world.store()).await, "1 µs early");
    // At the latest a millisecond after it was due.
    world.advance(Duration::from_micros(1_000));
    assert!(subject.allows(world.store()).await);
}

pub(crate) async fn a_peek_takes_nothing<W: World>() {
    // R026: reading made keys.
    for algorithm in algorithms(2) {
        let world = W::fresh().await;
        let subject = Subject::under(algorithm, "2/s");
        for _ in 0..100 {
            let peek = subject.check(world.store(), 0).await;
            // A leaky bucket that nobody may wait for has room for one of its two.
            assert!(peek.granted == 1 && peek.outcomes[0].remaining > 0, "{algorithm:?}");
        }
        assert!(subject.allows(world.store()).await);
    }
    let world = W::fresh().await;
    let subject = Subject::new("2/s");
    subject.count_allowed(world.store(), 5).await;
    let full = subject.check(world.store(), 0).await;
    assert_eq!((full.granted, full.outcomes[0].used, full.outcomes[0].violated), (1, 2, false));
}

pub(crate) async fn a_denied_check_takes_nothing<W: World>() {
    // F19: a costly request was rejected, and its cost was gone. Used 8 of 10, 5 does not fit, 2 does.
    let world = W::fresh().await;
    let subject = Subject::new("10/m");
    assert_eq!(subject.check(world.store(), 8).await.granted, 1);
    let before = subject.peek(world.store()).await;
    for _ in 0..50 {
        assert_eq!(subject.check(world.store(), 5).await.granted, 0);
    }
    assert_eq!(subject.peek(world.store()).await, before);
    let last = subject.check(world.store(), 2).await;
    assert_eq!((last.granted, last.outcomes[0].remaining), (1, 0));
    // Hammering does not put the end off either.
    world.advance_ms(59_999);
    assert!(!subject.allows(world.store()).await);
    world.advance_ms(1);
    assert!(subject.allows(world.store()).await);
}

pub(crate) async fn a_denied_cost_stands_in_the_way_of_no_smaller_one<W: World>() {
    // F20: once a cost was denied, a cache denied all others too, until a fixed time had passed.
    let world = W::fresh().await;
    let subject = Subject::new("10/h");
    assert_eq!(subject.check(world.store(), 8).await.granted, 1);
    for _ in 0..3 {
        assert_eq!(subject.check(world.store(), 5).await.granted, 0);
        assert_eq!(subject.check(world.store(), 6).await.granted, 0);
    }
    let last = subject.check(world.store(), 2).await;
    assert_eq!((last.granted, last.outcomes[0].used, last.outcomes[0].remaining), (1, 10, 0));
    assert!(!subject.allows(world.store()).await);
    assert_eq!(subject.used(world.store()).await, [10]);
}

pub(crate) async fn denied_checks_count_where_the_policy_says_so<W: World>() {
    let world = W::fresh().await;
    let subject = Subject::of(Policy::builder("p").limits("2/s").count_denied(true));
    assert_eq!(subject.count_allowed(world.store(), 2).await, 2);
    // Whoever keeps trying stays out...
    for _ in 0..10 {
        world.advance_ms(600);
        assert!(!subject.allows(world.store()).await || subject.used(world.store()).await[0] <= 2);
        subject.check(world.store(), 2).await;
    }
    let denied = subject.check(world.store(), 1).await;
    assert_eq!(denied.granted, 0);
    // ...and who waits as long as they were told gets in.
    world.advance_ms(denied.outcomes[0].retry_after.unwrap().get());
    assert!(subject.allows(world.store()).await);
}

pub(crate) async fn a_limit_of_zero_denies_and_promises_no_wait<W: World>() {
    for algorithm in algorithms(0) {
        let world = W::fresh().await;
        let subject = Subject::under(algorithm, "0/m");
        for _ in 0..3 {
            let denied = subject.check(world.store(), 1).await;
            let outcome = denied.outcomes[0];
            assert_eq!((denied.granted, outcome.violated, outcome.retry_after), (0, true, None));
            assert_eq!((outcome.limit, outcome.remaining, outcome.reset_after), (0, 0, Millis::ZERO));
            world.advance_ms(60_000);
        }
    }
}

pub(crate) async fn the_largest_limits_and_costs_are_counted<W: World>() {
    // F3: extremes overflowed, or rounded to "unlimited".
    let world = W::fresh().await;
    let subject = Subject::new("4294967295/366d");
    assert_eq!(subject.check(world.store(), PERMITS_MAX - 1).await.granted, 1);
    assert_eq!(subject.check(world.store(), PERMITS_MAX).await.granted, 0);
    let rest = ask(world.store(), &[(&subject, 1)], u32::MAX, None).await;
    assert_eq!((rest.granted, rest.outcomes[0].used, rest.outcomes[0].remaining), (1, PERMITS_MAX, 0));
    let denied = subject.check(world.store(), PERMITS_MAX).await;
    // So long a window has long ticks, of at most 1/4096 of it.
    let (wait, window) = (denied.outcomes[0].retry_after.unwrap().get(), 366 * 86_400_000);
    assert!(wait >= window && wait <= window + window / 4096, "{wait}");
    // A cost above the limit never fits, and no wait is promised.
    let small = Subject::of(Policy::builder("small").limits("3/ms"));
    let never = small.check(world.store(), 4).await;
    assert_eq!((never.granted, never.outcomes[0].retry_after), (0, None));
    assert_eq!(small.used(world.store()).await, [0]);
}

pub(crate) async fn a_busy_key_is_held_to_its_limit_for_years<W: World>() {
    // 32 bits of milliseconds wrap after 49.7 days.
    let world = W::fresh().await;
    let subject = Subject::new("3/20h");
    for _ in 0..365 {
        world.advance(Duration::from_secs(10 * 3600));
        // Two from the checks 10 h ago still count.
        subject.check(world.store(), 2).await;
        assert!(subject.used(world.store()).await[0] <= 3);
    }
    world.advance(Duration::from_secs(20 * 3600));
    assert_eq!(subject.count_allowed(world.store(), 10).await, 3);
}

pub(crate) async fn waits_that_must_not_exceed_the_longest_delay_are_told<W: World>() {
    // A leaky bucket lets one out each 100 ms; what comes sooner is told to wait, up to 250 ms.
    let world = W::fresh().await;
    let subject = Subject::under(Algorithm::LeakyBucket { max_delay: Millis(250) }, "10/s");
    let mut delays = Vec::new();
    loop {
        let answer = subject.check(world.store(), 1).await;
        if answer.granted == 0 {
            assert_eq!(answer.outcomes[0].delay, Millis::ZERO);
            assert_eq!(answer.outcomes[0].retry_after, Some(Millis(50)));
            break;
        }
        delays.push(answer.outcomes[0].delay.get());
    }
    assert_eq!(delays, [0, 100, 200]);
}
