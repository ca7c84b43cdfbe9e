//! Checks by hand: what decisions say, and what they leave behind.

use super::*;

#[tokio::test]
async fn admits_the_limit_and_tells_the_exact_wait() {
    let (clock, limiter) = limiter([policy("p", "2/10s")]);
    assert_eq!(count_allowed(&limiter, "p", "a", 2).await, 2);
    let denied = limiter.check("p", &["a"]).await.unwrap();
    assert!(!denied.is_allowed());
    assert_eq!(denied.retry_after(), Some(Millis(10_000)));
    assert!(allows(&limiter, "p", "b").await);
    clock.advance(Millis(9_999));
    assert!(!allows(&limiter, "p", "a").await);
    clock.advance(Millis(1));
    assert!(allows(&limiter, "p", "a").await);
}

#[tokio::test]
async fn two_limits_are_charged_together_or_not_at_all() {
    let (clock, limiter) = limiter([policy("p", "10/s; 100/h")]);
    assert_eq!(count_allowed(&limiter, "p", "a", 200).await, 10);
    assert_eq!(used(&limiter, "p", "a").await, [(10, 0), (10, 90)]);
    for _ in 0..20 {
        clock.advance(Millis(1000));
        count_allowed(&limiter, "p", "a", 20).await;
    }
    assert_eq!(used(&limiter, "p", "a").await, [(0, 10), (100, 0)]);
    let denied = limiter.check("p", &["a"]).await.unwrap();
    assert_eq!(names(denied.violated()), ["p-2"]);
    assert_eq!(denied.retry_after(), Some(Millis(3_600_000 - 20_000)));
}

#[tokio::test]
async fn one_throttled_user_leaves_the_shared_quota_to_the_others() {
    // F21, R121: denied tries of one user drained the global limit.
    let (_clock, limiter) = limiter([policy("user", "1/m"), Policy::builder("global").limits("10/m")]);
    let mut allowed = 0;
    for _ in 0..20 {
        let asks = [Ask::new("user", &["a"]), Ask::new("global", &[])];
        allowed += u32::from(limiter.check_all(&asks).await.unwrap().is_allowed());
    }
    assert_eq!(allowed, 1);
    let global = limiter.peek("global", &[]).await.unwrap();
    assert_eq!(global.limits().next().unwrap().outcome.remaining, 9);
    for user in 0..10 {
        let name = user.to_string();
        let key = [name.as_str()];
        let asks = [Ask::new("user", &key), Ask::new("global", &[])];
        assert_eq!(limiter.check_all(&asks).await.unwrap().is_allowed(), user < 9);
    }
}

#[tokio::test]
async fn a_check_that_one_policy_refuses_leaves_no_trace_in_the_others() {
    // R120: the promised roll-back was not there. R123: a busy endpoint burned the users' budgets.
    let (_clock, limiter) = limiter([policy("key", "10/m"), policy("account", "5/m"), policy("full", "0/m")]);
    let mut allowed = 0;
    for _ in 0..10 {
        let asks = [Ask::new("key", &["k"]), Ask::new("account", &["a"])];
        allowed += u32::from(limiter.check_all(&asks).await.unwrap().is_allowed());
    }
    assert_eq!((allowed, used(&limiter, "key", "k").await), (5, vec![(5, 5)]));
    for _ in 0..30 {
        let asks = [Ask::new("full", &["endpoint"]), Ask::new("key", &["user"])];
        let denied = limiter.check_all(&asks).await.unwrap();
        assert!(!denied.is_allowed());
        assert_eq!(names(denied.violated()), ["full"]);
    }
    assert_eq!(used(&limiter, "key", "user").await, [(0, 10)]);
}

#[tokio::test]
async fn policies_that_match_the_same_request_count_apart() {
    // R089: two rules for one request shared a counter, and tripped at half their limits.
    let (_clock, limiter) = limiter([policy("any", "1000/m"), policy("eth_call", "10/m")]);
    for n in 1..=11 {
        let asks = [Ask::new("any", &["a"]), Ask::new("eth_call", &["a"])];
        assert_eq!(limiter.check_all(&asks).await.unwrap().is_allowed(), n <= 10);
    }
    assert_eq!(used(&limiter, "any", "a").await, [(10, 990)]);
}

#[tokio::test]
async fn a_policy_that_watches_tells_and_never_denies() {
    // F5: a shadow rule over its limit stopped the increments of the enforced ones.
    let (_clock, limiter) = limiter([policy("watching", "1/m").shadow(true), policy("enforced", "5/m")]);
    let (mut denied, mut shadow_denied) = (0, 0);
    for _ in 0..100 {
        let asks = [Ask::new("watching", &["a"]), Ask::new("enforced", &["a"])];
        let decision = limiter.check_all(&asks).await.unwrap();
        denied += u32::from(!decision.is_allowed());
        shadow_denied += u32::from(decision.is_shadow_denied());
        assert!(decision.violated().all(|state| state.name == "enforced"));
    }
    assert_eq!((denied, shadow_denied), (95, 99));
    let alone = limiter.check("watching", &["a"]).await.unwrap();
    assert!(alone.is_allowed() && alone.is_shadow_denied());
    assert_eq!((alone.violated().count(), alone.retry_after()), (0, None));
}

#[tokio::test]
async fn denied_tries_count_where_the_policy_says_so() {
    let (clock, limiter) = limiter([policy("p", "2/10s").count_denied(true)]);
    assert_eq!(count_allowed(&limiter, "p", "a", 5).await, 2);
    for _ in 0..5 {
        clock.advance(Millis(9_000));
        assert!(!allows(&limiter, "p", "a").await);
        assert!(!allows(&limiter, "p", "a").await);
    }
    let wait = limiter.check_all(&[Ask::new("p", &["a"]).cost(2)]).await.unwrap().retry_after().unwrap();
    clock.advance(wait);
    assert!(allows(&limiter, "p", "a").await);
}

#[tokio::test]
async fn the_longest_wait_of_the_violated_limits_is_told() {
    let (clock, limiter) =
        limiter([policy("short", "1/10s"), policy("long", "1/60s"), policy("seen", "1/h").shadow(true)]);
    let asks = ["short", "long", "seen"].map(|name| Ask::new(name, &["a"]));
    assert!(limiter.check_all(&asks).await.unwrap().is_allowed());
    clock.advance(Millis(1_000));
    let denied = limiter.check_all(&asks).await.unwrap();
    assert_eq!(
        (names(denied.violated()), denied.retry_after()),
        (vec!["short", "long"], Some(Millis(59_000)))
    );
    clock.advance(Millis(58_999));
    assert!(!limiter.check_all(&asks).await.unwrap().is_allowed());
    clock.advance(Millis(1));
    assert!(limiter.check_all(&asks).await.unwrap().is_allowed());
}

#[tokio::test]
async fn no_wait_is_told_when_one_violated_limit_has_none() {
    let (_clock, limiter) = limiter([policy("p", "1/10s"), policy("nobody", "0/s")]);
    assert!(allows(&limiter, "p", "a").await);
    let denied = limiter.check_all(&[Ask::new("p", &["a"]), Ask::new("nobody", &["a"])]).await.unwrap();
    assert_eq!((names(denied.violated()), denied.retry_after()), (vec!["p", "nobody"], None));
}

#[tokio::test]
async fn an_allowed_check_waits_for_the_slowest_leaky_bucket() {
    let leaky = |limit: &str| {
        let limit: Limit = limit.parse().unwrap();
        limit.with_algorithm(Algorithm::LeakyBucket { max_delay: Millis(5_000) }).unwrap()
    };
    let bucket = |name: &str, limit: &str| Policy::builder(name).limit(None, leaky(limit));
    let (_clock, limiter) =
        limiter([bucket("fast", "10/s"), bucket("slow", "2/s"), bucket("seen", "1/s").shadow(true)]);
    let asks = ["fast", "slow", "seen"].map(|name| Ask::new(name, &[]));
    let mut delays = Vec::new();
    for _ in 0..4 {
        let decision = limiter.check_all(&asks).await.unwrap();
        delays.push((decision.is_allowed(), decision.delay().get()));
    }
    assert_eq!(delays, [(true, 0), (true, 500), (true, 1000), (true, 1500)]);
}

#[tokio::test]
async fn reading_charges_nothing_and_says_what_is_there() {
    let (_clock, limiter) = limiter([policy("p", "5/m")]);
    assert_eq!(used(&limiter, "p", "a").await, [(0, 5)]);
    assert_eq!(limiter.store().figures().keys, 0);
    count_allowed(&limiter, "p", "a", 9).await;
    for _ in 0..10 {
        let peek = limiter.peek("p", &["a"]).await.unwrap();
        assert!(peek.is_allowed());
        assert_eq!((peek.violated().count(), peek.retry_after()), (0, None));
        assert_eq!(used(&limiter, "p", "a").await, [(5, 0)]);
    }
}

#[tokio::test]
async fn a_reset_empties_every_limit_of_one_key() {
    let (_clock, limiter) = limiter([policy("p", "5/m; 9/h"), policy("q", "5/m")]);
    for (policy, key) in [("p", "a"), ("p", "b"), ("q", "a")] {
        count_allowed(&limiter, policy, key, 3).await;
    }
    limiter.reset("p", &["a"]).await.unwrap();
    assert_eq!(used(&limiter, "p", "a").await, [(0, 5), (0, 9)]);
    assert_eq!(used(&limiter, "p", "b").await, [(3, 2), (3, 6)]);
    assert_eq!(used(&limiter, "q", "a").await, [(3, 2)]);
}

#[tokio::test]
async fn decisions_name_policies_and_limits_in_the_order_in_which_they_were_asked() {
    let own_name = Policy::builder("r").limit(Some("mine"), "7/m".parse().unwrap());
    let (_clock, limiter) = limiter([policy("p", "5/m; 9/h"), policy("q", "6/m"), own_name]);
    let asks = [Ask::new("r", &[]), Ask::new("q", &["a"]).cost(2), Ask::new("p", &["a"])];
    let decision = limiter.check_all(&asks).await.unwrap();
    let policies: Vec<_> = decision.policies().map(|policy| &**policy.name()).collect();
    assert_eq!(policies, ["r", "q", "p"]);
    assert_eq!(names(decision.limits()), ["mine", "q", "p-1", "p-2"]);
    let used: Vec<_> = decision.limits().map(|state| (state.outcome.limit, state.outcome.used)).collect();
    assert_eq!(used, [(7, 1), (6, 2), (5, 1), (9, 1)]);
    assert_eq!(decision.mode(), Mode::Normal);
    let configured: Vec<_> = limiter.policies().map(|policy| &**policy.name()).collect();
    assert_eq!(configured, ["p", "q", "r"]);
}

#[tokio::test]
async fn a_check_of_nothing_is_allowed() {
    let (_clock, limiter) = limiter([]);
    let decision = limiter.check_all(&[]).await.unwrap();
    assert!(decision.is_allowed());
    assert_eq!((decision.limits().count(), decision.policies().count()), (0, 0));
}

#[tokio::test]
async fn clones_share_counters_and_metrics() {
    let (_clock, limiter) = limiter([policy("p", "5/m")]);
    let clone = limiter.clone();
    assert_eq!(count_allowed(&clone, "p", "a", 3).await + count_allowed(&limiter, "p", "a", 3).await, 5);
    assert_eq!(limiter.metrics().next().unwrap().decisions(Verdict::Denied, Mode::Normal), 1);
}

#[tokio::test]
async fn metrics_count_by_policy_verdict_and_mode() {
    let (_clock, limiter) =
        limiter([policy("p", "2/m"), policy("q", "9/m"), policy("seen", "1/m").shadow(true)]);
    for _ in 0..5 {
        let asks = ["p", "q", "seen"].map(|name| Ask::new(name, &["a"]));
        drop(limiter.check_all(&asks).await.unwrap());
    }
    // A peek decides nothing.
    drop(limiter.peek("p", &["a"]).await.unwrap());
    let counts = |name: &str| {
        let metrics = limiter.metrics().find(|metrics| **metrics.policy().name() == *name).unwrap();
        Verdict::ALL.map(|verdict| metrics.decisions(verdict, Mode::Normal))
    };
    // Allowed, denied, shadow-denied, not charged.
    assert_eq!(counts("p"), [2, 3, 0, 0]);
    assert_eq!(counts("q"), [2, 0, 0, 3]);
    assert_eq!(counts("seen"), [1, 0, 4, 0]);
}

#[tokio::test]
async fn a_full_store_shows_in_decision_and_metrics() {
    let store = MemoryStore::builder().max_keys(1).clock(Arc::new(FakeClock::default())).build();
    let p = policy("p", "1/m").build().unwrap();
    let limiter = Limiter::builder().policy(p).store(store).build().unwrap();
    assert!(allows(&limiter, "p", "a").await);
    let denied = limiter.check("p", &["b"]).await.unwrap();
    assert_eq!((denied.is_allowed(), denied.mode(), denied.retry_after()), (false, Mode::Full, None));
    assert_eq!(names(denied.violated()), ["p"]);
    let metrics = limiter.metrics().next().unwrap();
    assert_eq!(metrics.decisions(Verdict::Denied, Mode::Full), 1);
    assert_eq!(metrics.decisions(Verdict::Allowed, Mode::Normal), 1);
}

#[tokio::test]
async fn the_number_of_series_does_not_depend_on_keys() {
    // F31, R065: a label for each key, or for each override: series without bound.
    let overridden =
        policy("p", "5/m").override_limits(vec![Pattern::parse("7")], vec![(None, "9/m".parse().unwrap())]);
    let (_clock, limiter) = limiter([overridden, policy("q", "5/m")]);
    for n in 0..5_000 {
        allows(&limiter, "p", &n.to_string()).await;
    }
    assert_eq!(limiter.metrics().count(), 2);
    let metrics = limiter.metrics().next().unwrap();
    assert_eq!(metrics.decisions(Verdict::Allowed, Mode::Normal), 5_000);
}
