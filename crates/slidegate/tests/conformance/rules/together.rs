//! Several counters, several checks, several callers at once.

use std::sync::Arc;

use slidegate::Policy;
use slidegate::core::key::KEY_LEN_MAX;
use slidegate::store::{Check, Store};

use crate::subject::{Subject, ask, check_all};
use crate::world::World;

fn named(name: &'static str, limits: &str) -> Subject {
    Subject::of(Policy::builder(name).limits(limits))
}

fn shadow(name: &'static str, limits: &str) -> Subject {
    Subject::of(Policy::builder(name).limits(limits).shadow(true))
}

pub(crate) async fn keys_policies_and_limits_have_counters_of_their_own<W: World>() {
    // R089: two rules that match one request shared a counter. F15: so did keys whose parts, joined, read alike.
    let world = W::fresh().await;
    let (one, other) = (named("one", "5/m; 7/h"), named("other", "5/m"));
    assert_eq!(one.check(world.store(), 3).await.granted, 1);
    assert_eq!(other.used(world.store()).await, [0]);
    assert_eq!(one.used(world.store()).await, [3, 3]);
    let lists: [&[(&str, &[u8])]; 6] = [
        &[("a", b"b_c")],
        &[("a_b", b"c")],
        &[("a", b"b_c"), ("d", b"e")],
        &[("a", b"b"), ("c_d", b"e")],
        &[],
        &[("a", b"")],
    ];
    for list in lists {
        assert_eq!(other.keyed(list).used(world.store()).await, [0], "{list:?}");
        assert_eq!(other.keyed(list).check(world.store(), 5).await.granted, 1, "{list:?}");
    }
}

pub(crate) async fn any_key_is_an_ordinary_key<W: World>() {
    // R064: the empty key was never evicted; R088: long ones filled the store; a NUL, a brace, a `%` are text.
    let world = W::fresh().await;
    let subject = Subject::new("1/m");
    let long = vec![b'v'; 65_536];
    let longer = [long.as_slice(), b"a"].concat();
    let longer_still = [long.as_slice(), b"b"].concat();
    let edge = vec![b'v'; KEY_LEN_MAX];
    let values: [&[u8]; 12] = [
        b"",
        b"\0",
        b"a\0",
        b"a",
        b"{a}",
        b"}",
        b"%00",
        b"\xff\xfe",
        b"a b\r\n",
        &edge,
        &longer,
        &longer_still,
    ];
    for value in values {
        let keyed = subject.keyed(&[("client_ip", value)]);
        assert!(keyed.allows(world.store()).await, "{:?}", value.get(..8));
        assert!(!keyed.allows(world.store()).await, "{:?}", value.get(..8));
    }
}

pub(crate) async fn a_check_charges_all_its_counters_or_none<W: World>() {
    // F21, R121: what the throttled user tried drained the quota that all users share.
    let world = W::fresh().await;
    let (user, global) = (named("user", "1/m"), named("global", "10/m"));
    let mut allowed = 0;
    for _ in 0..20 {
        allowed += check_all(world.store(), &[(&user, 1), (&global, 1)]).await.granted;
    }
    assert_eq!(allowed, 1);
    assert_eq!(global.peek(world.store()).await[0].remaining, 9);
    for n in 0u8..9 {
        let other = user.keyed(&[("user", &[n])]);
        assert_eq!(check_all(world.store(), &[(&other, 1), (&global, 1)]).await.granted, 1);
    }
    let last = user.keyed(&[("user", b"last")]);
    let denied = check_all(world.store(), &[(&last, 1), (&global, 1)]).await;
    assert_eq!((denied.granted, denied.outcomes[0].violated, denied.outcomes[1].violated), (0, false, true));
    assert_eq!(last.used(world.store()).await, [0]);

    // Both limits of one policy: 10 of 200 pass, and the hour has lost 10.
    let both = named("both", "10/s; 100/h");
    assert_eq!(both.count_allowed(world.store(), 200).await, 10);
    assert_eq!(both.peek(world.store()).await[1].remaining, 90);
}

pub(crate) async fn the_order_of_policies_does_not_matter<W: World>() {
    // R120, R123: a limit that was charged before another one refused kept the charge.
    for user_first in [true, false] {
        let world = W::fresh().await;
        let (user, account) = (named("user", "10/m"), named("account", "5/m"));
        let mut allowed = 0;
        for _ in 0..30 {
            let mut asked = [(&user, 1), (&account, 1)];
            if !user_first {
                asked.reverse();
            }
            allowed += check_all(world.store(), &asked).await.granted;
        }
        assert_eq!(allowed, 5);
        assert_eq!((user.used(world.store()).await, account.used(world.store()).await), (vec![5], vec![5]));
    }
}

pub(crate) async fn a_shadow_policy_counts_and_never_denies<W: World>() {
    // F5: a shadow rule over its limit stopped the increments of the enforced ones, which then never tripped.
    let world = W::fresh().await;
    let (watched, enforced) = (shadow("watched", "1/m"), named("enforced", "5/m"));
    let (mut allowed, mut watched_denied) = (0, 0);
    for _ in 0..100 {
        let answer = check_all(world.store(), &[(&watched, 1), (&enforced, 1)]).await;
        allowed += answer.granted;
        watched_denied += u32::from(answer.outcomes[0].violated);
    }
    assert_eq!((allowed, watched_denied), (5, 99));
    assert_eq!(watched.used(world.store()).await, [1], "counted as if it were enforced");
    let alone = watched.keyed(&[]);
    assert_eq!(alone.count_allowed(world.store(), 10).await, 10);
    assert_eq!(alone.used(world.store()).await, [1]);
    // One of its limits refuses: none of them is charged.
    let two = shadow("two", "1/m; 5/h");
    assert_eq!(two.count_allowed(world.store(), 10).await, 10);
    assert_eq!(two.used(world.store()).await, [1, 1]);
}

pub(crate) async fn equal_checks_at_once_are_granted_as_if_one_after_another<W: World>() {
    for (cost, times, first) in [(1, 20, 3), (2, 20, 1), (3, 2, 0), (7, 3, 0), (1, 1, 9)] {
        let (at_once, in_turn) = (W::fresh().await, W::fresh().await);
        // Of one key: several slots of a cluster grant one at a time.
        let key: &[(&str, &[u8])] = &[("client_ip", b"203.0.113.7")];
        let (a, b) = (named("a", "10/m").keyed(key), named("b", "13/m; 40/h").keyed(key));
        for world in [&at_once, &in_turn] {
            ask(world.store(), &[(&a, 1)], first, None).await;
        }
        let granted = ask(at_once.store(), &[(&a, cost), (&b, cost)], times, None).await.granted;
        let mut expected = 0;
        for _ in 0..times {
            expected += check_all(in_turn.store(), &[(&a, cost), (&b, cost)]).await.granted;
        }
        assert_eq!(granted, expected, "{cost} x {times}");
        for subject in [&a, &b] {
            assert_eq!(subject.peek(at_once.store()).await, subject.peek(in_turn.store()).await);
        }
    }
}

pub(crate) async fn checks_at_the_same_time_never_pass_the_limit<W: World>() {
    // F18, R126: check and increment were two steps, and floods passed between them.
    let world = Arc::new(W::fresh().await);
    let subject = Arc::new(Subject::new("1000/m"));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (world, subject) = (world.clone(), subject.clone());
            tokio::spawn(async move { subject.count_allowed(world.store(), 100).await })
        })
        .collect();
    let mut allowed = 0;
    for task in tasks {
        allowed += task.await.unwrap();
    }
    assert_eq!(allowed, 1000);
}

pub(crate) async fn checks_of_several_counters_at_the_same_time_stay_all_or_nothing<W: World>() {
    // R127: stacked limits raced. Three policies in every order, from many tasks: the smallest decides, and
    // all of them have counted the same.
    let world = Arc::new(W::fresh().await);
    let subjects = Arc::new([named("a", "300/m"), named("b", "250/m; 900/h"), named("c", "280/m")]);
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let tasks: Vec<_> = (0..30)
        .map(|task| {
            let (world, subjects) = (world.clone(), subjects.clone());
            tokio::spawn(async move {
                let order = orders[task % orders.len()];
                let mut allowed = 0;
                for _ in 0..50 {
                    let asked = order.map(|at| (&subjects[at], 1));
                    allowed += check_all(world.store(), &asked).await.granted;
                }
                allowed
            })
        })
        .collect();
    let mut allowed = 0;
    for task in tasks {
        allowed += task.await.unwrap();
    }
    if W::SCATTERS {
        // Those who lost held permits for a moment, for which others were refused: they are free now.
        assert!(allowed <= 250);
        while check_all(world.store(), &[0, 1, 2].map(|at| (&subjects[at], 1))).await.granted == 1 {
            allowed += 1;
        }
    }
    assert_eq!(allowed, 250);
    assert_eq!(subjects[0].used(world.store()).await, [250]);
    assert_eq!(subjects[1].used(world.store()).await, [250, 250]);
    assert_eq!(subjects[2].used(world.store()).await, [250]);
}

pub(crate) async fn a_check_that_was_never_polled_has_charged_nothing<W: World>() {
    let world = W::fresh().await;
    let subject = Subject::new("5/m");
    let charges: Vec<_> = subject.charges(1, 0).collect();
    drop(world.store().check(&Check { times: 1, charges: &charges, reserve: None }));
    assert_eq!(subject.used(world.store()).await, [0]);
}
