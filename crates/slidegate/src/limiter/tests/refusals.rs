//! What is not decided, because asking it is a mistake; and limiters that can't be built.

use super::*;

#[tokio::test]
async fn a_cost_that_never_fits_is_the_callers_mistake() {
    let (_clock, limiter) = limiter([policy("p", "100/h; 10/m"), policy("q", "50/m")]);
    let asks = [Ask::new("q", &["a"]).cost(11), Ask::new("p", &["a"]).cost(11)];
    let error = limiter.check_all(&asks).await.unwrap_err();
    let CheckError::Never { policy, limit, cost, capacity } = &error else { panic!("{error:?}") };
    assert_eq!((&**policy, &**limit, *cost, *capacity), ("p", "p-2", 11, 10));
    assert_eq!(error.to_string(), "a cost of 11 never fits: limit p-2 of policy p holds 10");
    assert_eq!(used(&limiter, "q", "a").await, [(0, 50)]);
    assert_eq!(limiter.store().figures().keys, 0);
}

#[tokio::test]
async fn a_cost_up_to_the_burst_of_a_token_bucket_fits() {
    let limit: Limit = "10/m".parse().unwrap();
    let burst = limit.with_algorithm(Algorithm::TokenBucket { burst: 40 }).unwrap();
    let (_clock, limiter) = limiter([Policy::builder("p").limit(None, burst)]);
    assert!(limiter.check_all(&[Ask::new("p", &[]).cost(40)]).await.unwrap().is_allowed());
    let error = limiter.check_all(&[Ask::new("p", &[]).cost(41)]).await.unwrap_err();
    assert!(matches!(error, CheckError::Never { capacity: 40, .. }));
}

#[tokio::test]
async fn a_limit_of_zero_is_an_ordinary_denial() {
    let (_clock, limiter) = limiter([policy("p", "0/m")]);
    for cost in [1, 2, u32::MAX] {
        let denied = limiter.check_all(&[Ask::new("p", &["a"]).cost(cost)]).await.unwrap();
        assert_eq!((denied.is_allowed(), denied.retry_after()), (false, None));
    }
}

#[tokio::test]
async fn a_policy_that_watches_refuses_no_cost() {
    let (_clock, limiter) = limiter([policy("p", "10/m").shadow(true)]);
    let decision = limiter.check_all(&[Ask::new("p", &["a"]).cost(11)]).await.unwrap();
    assert!(decision.is_allowed() && decision.is_shadow_denied());
    assert_eq!(used(&limiter, "p", "a").await, [(0, 10)]);
}

#[tokio::test]
async fn an_unknown_policy_is_answered_with_the_nearest_name() {
    let (_clock, limiter) = limiter([policy("per-user", "1/m"), policy("per-org", "1/m")]);
    let error = limiter.check("per-usr", &["a"]).await.unwrap_err();
    assert_eq!(error.to_string(), "no policy is called \"per-usr\": did you mean \"per-user\"?");
    let error = limiter.check("something", &["a"]).await.unwrap_err();
    assert_eq!(error.to_string(), "no policy is called \"something\"");
    assert!(limiter.peek("", &["a"]).await.is_err());
    assert!(limiter.reset("per", &["a"]).await.is_err());
    assert!(Request::from("192.0.2.1").check(&limiter, &["per-user", "nobody"]).await.is_err());
    assert_eq!(limiter.store().figures().keys, 0);
}

#[tokio::test]
async fn a_key_has_one_value_for_each_part() {
    let (_clock, limiter) =
        limiter([Policy::builder("p").limits("1/m").key("{client_ip}").key("{header:x-user}")]);
    for key in [&[][..], &["a"], &["a", "b", "c"]] {
        let error = limiter.check("p", key).await.unwrap_err();
        let expected = format!(
            "policy p has 2 parts in its key (client_ip, header:x-user), and {} were given",
            key.len()
        );
        assert_eq!(error.to_string(), expected);
    }
    assert!(limiter.check("p", &["a", "b"]).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_policy_is_named_once_in_a_check() {
    let (_clock, limiter) = limiter([policy("p", "5/m")]);
    let error = limiter.check_all(&[Ask::new("p", &["a"]), Ask::new("p", &["b"])]).await.unwrap_err();
    assert!(matches!(error, CheckError::DuplicatePolicy { .. }));
    assert_eq!(used(&limiter, "p", "a").await, [(0, 5)]);
}

#[tokio::test]
async fn a_check_names_at_most_sixteen_policies() {
    let names: Vec<_> = (0..17).map(|n| format!("p{n}")).collect();
    let (_clock, limiter) = limiter(names.iter().map(|name| policy(name, "5/m")));
    let asks: Vec<_> = names.iter().map(|name| Ask::new(name, &["a"])).collect();
    let error = limiter.check_all(&asks).await.unwrap_err();
    assert!(matches!(error, CheckError::TooManyPolicies { given: 17, most: POLICIES_PER_CHECK_MAX }));
    assert!(limiter.check_all(&asks[..16]).await.unwrap().is_allowed());
}

fn build(policies: impl IntoIterator<Item = PolicyBuilder>) -> Result<FakeLimiter, BuildError> {
    let policies = policies.into_iter().map(|policy| policy.build().unwrap());
    Limiter::builder().policies(policies).store(store().1).build()
}

#[test]
fn policies_and_their_limits_have_names_of_their_own() {
    let twice = build([policy("p", "1/m"), policy("p", "2/m")]).unwrap_err();
    assert_eq!(twice.to_string(), "two policies are called p: give each its own name");
    // `p` has two limits, called p-1 and p-2 in answers; another policy is called p-2.
    let meeting = build([policy("p", "1/m; 2/h"), policy("p-2", "2/m")]).unwrap_err();
    assert_eq!(
        meeting.to_string(),
        "limits of policies p and p-2 are both called p-2 in answers: rename one of them"
    );
    let limit = "1/m".parse().unwrap();
    let named = |name: &str| Policy::builder(name).limit(Some("mine"), limit);
    assert!(matches!(build([named("a"), named("b")]), Err(BuildError::DuplicateLimit { .. })));
    // An override stands in for its own policy's limits, and may have their names.
    let overridden = named("a").key("{client_ip}");
    let overridden = overridden.override_limits(vec![Pattern::Any], vec![(Some("mine".into()), limit)]);
    assert!(build([overridden, policy("b", "1/m")]).is_ok());
}

#[test]
fn a_limiter_has_at_most_ten_thousand_policies() {
    let policies = || (0..=POLICIES_MAX).map(|n| policy(&format!("p{n}"), "1/m"));
    let error = build(policies()).unwrap_err();
    assert_eq!(error, BuildError::TooManyPolicies { count: 10_001 });
    assert_eq!(build(policies().take(POLICIES_MAX)).unwrap().policies().count(), POLICIES_MAX);
}
