use serde_json::json;
use slidegate::Policy;
use slidegate::core::limit::parse_limit;
use slidegate::policy::PolicyBuilder;

use super::*;
use crate::config::Tokens;
use crate::doors::testing::{READER, Reply, context, door, post as ask, send, tokens};

mod batch;
mod docs;
mod guard;
mod refused;
mod reservations;
mod sockets;

fn policies() -> [PolicyBuilder; 7] {
    let leaky = parse_limit("1/1h").unwrap().with_algorithm(slidegate::core::limit::Algorithm::LeakyBucket {
        max_delay: slidegate::core::time::Millis(3_700_000),
    });
    [
        Policy::builder("per-user").limits("3/1h").key("{client_ip}").key("{header:x-user-id}"),
        Policy::builder("per-ip").limits("5/1h").key("{client_ip}"),
        Policy::builder("global").limits("10/1h; 1000/1d"),
        Policy::builder("closed").limits("0/1h"),
        Policy::builder("watching").limits("1/1h").shadow(true),
        Policy::builder("leaky").limit(None, leaky.unwrap()),
        Policy::builder("per-tenant").limits("4/1h").key("{header:x-tenant}"),
    ]
}

fn api() -> Router {
    router(context(policies()).0, &door(Tokens::Anyone))
}

async fn check(api: &Router, body: &str) -> Reply {
    ask(api, "/v1/check", body.to_owned()).await
}

/// How much of the policy `global` is in use.
async fn used(api: &Router) -> u64 {
    let reply = check(api, r#"{"policy":"global","cost":0}"#).await;
    reply.json()["limits"][0]["used"].as_u64().unwrap()
}

/// A decision without the times, which depend on the clock.
fn timeless(mut json: serde_json::Value) -> serde_json::Value {
    for limit in json["limits"].as_array_mut().unwrap() {
        let reset_after = limit["reset_after_ms"].take().as_u64().unwrap();
        assert!(reset_after <= 86_400_001, "{limit}");
    }
    json
}

#[tokio::test]
async fn one_policy_is_answered_with_the_decision() {
    let api = api();
    let body =
        r#"{"policy":"per-user","key":{"client_ip":"203.0.113.7","header:x-user-id":"1001"},"cost":1}"#;
    let reply = check(&api, body).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert!(reply.header("ratelimit").is_some());
    assert!(reply.header("ratelimit-policy").is_some());
    assert_eq!(reply.header("retry-after"), None);
    assert_eq!(
        timeless(reply.json()),
        json!({
            "allowed": true, "policy": "per-user", "mode": "normal", "shadow": false,
            "limits": [{"name": "per-user", "limit": 3, "used": 1, "remaining": 2, "reset_after_ms": null}],
            "violated": [], "retry_after_ms": null,
        })
    );
}

#[tokio::test]
async fn a_denial_is_a_decision_too() {
    let api = api();
    let body = r#"{"policy":"per-ip","key":["203.0.113.7"],"cost":5}"#;
    assert_eq!(check(&api, body).await.status, 200);
    let reply = check(&api, body).await;
    assert_eq!(reply.status, 429);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let json = reply.json();
    assert_eq!(json["allowed"], false);
    assert_eq!(json["violated"], json!(["per-ip"]));
    assert_eq!(json["limits"][0]["remaining"], 0);
    let wait = json["retry_after_ms"].as_u64().unwrap();
    let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(seconds, wait.div_ceil(1000));
    assert!(seconds > 3500, "{seconds}");
}

#[tokio::test]
async fn lists_and_maps_name_the_same_key() {
    let api = api();
    let list = r#"{"policy":"per-user","key":["203.0.113.7","1001"]}"#;
    let map = r#"{"policy":"per-user","key":{"header:x-user-id":"1001","client_ip":"203.0.113.7"}}"#;
    let other = r#"{"policy":"per-user","key":["1001","203.0.113.7"]}"#;
    let mut remaining = Vec::new();
    for body in [list, map, list, other] {
        remaining.push(check(&api, body).await.json()["limits"][0]["remaining"].as_u64().unwrap());
    }
    assert_eq!(remaining, [2, 1, 0, 2]);
}

#[tokio::test]
async fn a_cost_of_zero_peeks() {
    let api = api();
    for _ in 0..10 {
        let reply = check(&api, r#"{"policy":"per-ip","key":["203.0.113.7"],"cost":0}"#).await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.json()["limits"][0]["remaining"], 5);
    }
}

#[tokio::test]
async fn several_policies_are_charged_all_or_none() {
    let api = api();
    let body = r#"{"policies":[{"policy":"per-ip","key":["203.0.113.7"],"cost":3},{"policy":"global"}]}"#;
    let reply = check(&api, body).await;
    assert_eq!(reply.status, 200);
    let limit = |policy: &str, name: &str, limit: u32, used: u32| {
        json!({"policy": policy, "name": name, "limit": limit, "used": used, "remaining": limit - used,
            "reset_after_ms": null})
    };
    assert_eq!(
        timeless(reply.json()),
        json!({
            "allowed": true, "policies": ["per-ip", "global"], "mode": "normal", "shadow": false,
            "limits": [limit("per-ip", "per-ip", 5, 3), limit("global", "global-1", 10, 1),
                limit("global", "global-2", 1000, 1)],
            "violated": [], "retry_after_ms": null,
        })
    );
    // The second time the first policy denies: the other one must not be charged.
    let denied = check(&api, body).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.json()["violated"], json!(["per-ip"]));
    let global = check(&api, r#"{"policy":"global","cost":0}"#).await;
    assert_eq!(global.json()["limits"][0]["used"], 1);
}

#[tokio::test]
async fn a_throttled_user_does_not_drain_the_global_limit() {
    // R121, F21: per user 1, global 10; one user sends 20 and the global limit must have lost 1.
    let policies = [
        Policy::builder("user").limits("1/1h").key("{header:x-user}"),
        Policy::builder("all").limits("10/1h"),
    ];
    let api = router(context(policies).0, &door(Tokens::Anyone));
    let body = r#"{"policy":["user","all"],"key":{"header:x-user":"a"}}"#;
    let mut allowed = 0;
    for _ in 0..20 {
        allowed += u32::from(check(&api, body).await.status == 200);
    }
    assert_eq!(allowed, 1);
    let all = check(&api, r#"{"policy":"all","cost":0}"#).await;
    assert_eq!(all.json()["limits"][0]["remaining"], 9);
}

#[tokio::test]
async fn policies_that_are_only_named_share_a_key_and_a_cost() {
    let api = api();
    let key = r#""key":{"client_ip":"203.0.113.7","header:x-tenant":"t"},"cost":2"#;
    for body in [
        format!(r#"{{"policy":["per-ip","per-tenant"],{key}}}"#),
        format!(r#"{{"policies":["per-ip",{{"policy":"global","cost":4}},"per-tenant"],{key}}}"#),
    ] {
        let reply = check(&api, &body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    let used =
        check(&api, &format!(r#"{{"policy":["per-ip","per-tenant"],{}}}"#, key.replace('2', "0"))).await;
    let _ = used;
    let peek = check(&api, r#"{"policies":["global"],"cost":0}"#).await.json();
    assert_eq!(peek["limits"][0]["used"], 4);
    assert_eq!(peek["limits"][0]["policy"], "global");
    let tenant = check(&api, r#"{"policy":"per-tenant","key":["t"],"cost":0}"#).await.json();
    assert_eq!(tenant["limits"][0]["used"], 4);
}

#[tokio::test]
async fn a_cost_above_the_limit_never_fits_and_says_so() {
    // R111: a cost of 11 against a limit of 10 must not be told to try later.
    let api = api();
    let reply = check(&api, r#"{"policy":"global","cost":11}"#).await;
    assert_eq!(reply.status, 422);
    assert_eq!(reply.header("retry-after"), None);
    assert_eq!(
        reply.json(),
        json!({
            "type": "about:blank", "title": "Unprocessable Entity", "status": 422, "never": true,
            "violated-policies": ["global-1"],
            "detail": "a cost of 11 never fits: limit global-1 of policy global holds 10",
        })
    );
    let untouched = check(&api, r#"{"policy":"global","cost":0}"#).await;
    assert_eq!(untouched.json()["limits"][0]["used"], 0);
}

#[tokio::test]
async fn a_limit_of_zero_denies_without_a_wait() {
    let reply = check(&api(), r#"{"policy":"closed"}"#).await;
    assert_eq!(reply.status, 429);
    assert_eq!(reply.header("retry-after"), None);
    assert_eq!(reply.json()["retry_after_ms"], json!(null));
    assert_eq!(reply.json()["violated"], json!(["closed"]));
}

#[tokio::test]
async fn a_shadow_policy_tells_and_lets_pass() {
    let api = api();
    let mut shadow = Vec::new();
    for _ in 0..2 {
        let reply = check(&api, r#"{"policy":"watching"}"#).await;
        assert_eq!(reply.status, 200);
        shadow.push(reply.json()["shadow"].as_bool().unwrap());
        assert_eq!(reply.json()["violated"], json!([]));
    }
    assert_eq!(shadow, [false, true]);
}

#[tokio::test]
async fn a_leaky_bucket_tells_how_long_to_wait() {
    let api = api();
    let first = check(&api, r#"{"policy":"leaky"}"#).await.json();
    assert_eq!(first.get("delay_ms"), None);
    let second = check(&api, r#"{"policy":"leaky"}"#).await.json();
    assert_eq!(second["allowed"], true);
    assert!(second["delay_ms"].as_u64().unwrap() > 3_500_000, "{second}");
}

#[tokio::test]
async fn answers_carry_the_fields_of_the_limiter() {
    let api = api();
    let reply = check(&api, r#"{"policy":"global","cost":4}"#).await;
    assert_eq!(
        reply.header("ratelimit-policy"),
        Some(r#""global-1";q=10;w=3600, "global-2";q=1000;w=86400"#)
    );
    let remaining = reply.header("ratelimit").unwrap();
    assert!(remaining.starts_with(r#""global-1";r=6;t=36"#), "{remaining}");
    let denied = check(&api, r#"{"policy":"global","cost":7}"#).await;
    assert_eq!(denied.status, 429);
    assert!(denied.header("ratelimit").unwrap().starts_with(r#""global-1";r=6;t=36"#), "{denied:?}");
}

#[tokio::test]
async fn a_denial_because_the_store_is_away_is_a_503() {
    use slidegate::{Decision, ReservationId, Settled, Store, StoreError, core::decision::Outcome, store};

    struct Away;
    impl Store for Away {
        async fn check(&self, check: &store::Check<'_>) -> Result<store::Answer, StoreError> {
            let outcome = Outcome { limit: 1, violated: true, ..Outcome::default() };
            let outcomes = check.charges.iter().map(|_| outcome).collect();
            let certainty = store::Certainty::Exact;
            Ok(store::Answer { granted: 0, outcomes, mode: Mode::DenyAll, certainty })
        }
        async fn settle(&self, _: ReservationId, _: u32) -> Result<Settled, StoreError> {
            Ok(Settled::Unknown)
        }
        async fn reset(&self, _: &store::Counter<'_>) -> Result<(), StoreError> {
            Ok(())
        }
    }
    let policy = Policy::builder("p").limits("1/1h").build().unwrap();
    let limiter = slidegate::Limiter::builder().policy(policy).store(Away).build().unwrap();
    let decision: Decision = limiter.check("p", &[]).await.unwrap();
    assert_eq!(status(&decision), 503);
    // R049: numbers that nobody counted were told.
    let json = serde_json::to_value(DecisionJson::new(&decision, crate::doors::question::Form::One)).unwrap();
    assert_eq!(
        json,
        json!({"allowed": false, "policy": "p", "mode": "deny_all", "shadow": false,
            "limits": [{"name": "p", "limit": 1, "used": null, "remaining": null, "reset_after_ms": null}],
            "violated": ["p"], "retry_after_ms": null})
    );
}
