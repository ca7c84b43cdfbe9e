use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::json;
use slidegate::Policy;
use slidegate::core::limit::{Algorithm, parse_limit};
use slidegate::core::time::Millis;
use slidegate::policy::{CostSource, Exempt, Missing, Pattern, PolicyBuilder};
use slidegate::store::redis::RedisConfig;

use super::*;
use crate::config::StoreKind;
use crate::config::Tokens;
use crate::doors::testing::{READER, Reply, WRITER, context, context_over, door, post, send, tokens};

/// A policy with everything that can be told about one.
fn elaborate() -> PolicyBuilder {
    let limit = |text: &str, algorithm| parse_limit(text).unwrap().with_algorithm(algorithm).unwrap();
    let seconds = |secs: u64| Millis(secs * 1000);
    Policy::builder("elaborate")
        .limit(Some("exact"), parse_limit("100/10s").unwrap())
        .limit(Some("coarse"), limit("100/1h", Algorithm::SlidingWindow { resolution: Some(seconds(1)) }))
        .limit(Some("log"), limit("50/1m", Algorithm::SlidingLog))
        .limit(Some("aligned"), limit("1000/1d", Algorithm::FixedWindow))
        .limit(Some("bucket"), limit("10/1s", Algorithm::TokenBucket { burst: 30 }))
        .limit(Some("queue"), limit("10/1s", Algorithm::LeakyBucket { max_delay: seconds(5) }))
        .key("{client_ip}")
        .key("tenant {secret:header:authorization}")
        .missing(Missing::ClientIp)
        .cost(CostSource::From { template: "{header:x-cost}".parse().unwrap(), min: 1, max: 9, default: 2 })
        .exempt(Exempt {
            methods: vec![Method::OPTIONS],
            client_ip: vec!["10.0.0.0/8".parse().unwrap()],
            headers: vec![(http::HeaderName::from_static("x-internal"), (*b"exempt-secret").into())],
        })
        .count_denied(true)
        .shadow(true)
        .override_limits(
            vec![Pattern::parse("10.0.0.1"), Pattern::Any],
            vec![(None, parse_limit("7/1s").unwrap())],
        )
}

fn admin_with(tokens: Tokens) -> Router {
    let policies = [Policy::builder("per-ip").limits("5/1h; 9/1d").key("{client_ip}"), elaborate()];
    let (context, registry) = context(policies);
    router(context, registry, &door(tokens))
}

fn admin() -> Router {
    admin_with(Tokens::Anyone)
}

async fn get(admin: &Router, path: &str) -> Reply {
    send(admin, Method::GET, path, &[], "").await
}

#[tokio::test]
async fn probes_need_no_token_and_are_never_limited() {
    // R142: a probe that counted against a limit restarted healthy pods.
    let admin = admin_with(tokens());
    for _ in 0..1000 {
        let reply = get(&admin, "/healthz").await;
        assert_eq!((reply.status, &*reply.text), (200, "ok"));
        let reply = get(&admin, "/readyz").await;
        assert_eq!((reply.status, reply.json()), (200, json!({"ready": true, "store": "ok"})));
    }
    let head = send(&admin, Method::HEAD, "/healthz", &[], "").await;
    assert_eq!((head.status, &*head.text), (200, ""));
    let post = send(&admin, Method::POST, "/healthz", &[], "").await;
    assert_eq!((post.status, &*post.detail()), (405, "/healthz does not take POST"));
    assert_eq!(post.header("allow"), Some("GET,HEAD"));
}

#[tokio::test]
async fn policies_are_shown_as_they_are_in_force_without_secrets() {
    let reply = get(&admin(), "/v1/policies").await;
    assert_eq!(reply.status, 200);
    assert!(!reply.text.contains("exempt-secret"));
    insta::assert_snapshot!(serde_json::to_string_pretty(&reply.json()).unwrap());
}

#[tokio::test]
async fn every_endpoint_but_the_probes_demands_its_role() {
    let admin = admin_with(tokens());
    let body = r#"{"policy":"per-ip","key":["a"]}"#;
    let endpoints = [
        (Method::GET, "/metrics", 200),
        (Method::GET, "/v1/policies", 200),
        (Method::POST, "/v1/peek", 200),
        (Method::POST, "/v1/reset", 403),
        (Method::GET, "/v1/reset", 403),
        (Method::GET, "/nothing", 404),
        (Method::POST, "/metrics", 405),
    ];
    for (method, path, of_reader) in endpoints {
        let of = async |token: Option<&str>| {
            let token = token.map(|token| format!("Bearer {token}"));
            let mut headers = vec![("content-type", "application/json")];
            headers.extend(token.as_deref().map(|token| ("authorization", token)));
            send(&admin, method.clone(), path, &headers, body).await
        };
        assert_eq!(of(None).await.status, 401, "{path}");
        assert_eq!(of(Some("nobody-nobody-nobody")).await.status, 401, "{path}");
        let reader = of(Some(READER)).await;
        assert_eq!(reader.status, of_reader, "{path}");
        if of_reader == 403 {
            assert!(reader.detail().contains("whose role is `write`"));
        }
        assert_ne!(of(Some(WRITER)).await.status, 403, "{path}");
    }
}

#[tokio::test]
async fn a_peek_charges_nothing_whatever_cost_its_body_names() {
    let admin = admin();
    for _ in 0..3 {
        let reply = post(&admin, "/v1/peek", r#"{"policy":"per-ip","key":["a"],"cost":3}"#).await;
        assert_eq!(reply.status, 200);
        assert_eq!(
            reply.json(),
            json!({
                "allowed": true, "policy": "per-ip", "mode": "normal", "shadow": false,
                "limits": [
                    {"name": "per-ip-1", "limit": 5, "used": 0, "remaining": 5, "reset_after_ms": 0},
                    {"name": "per-ip-2", "limit": 9, "used": 0, "remaining": 9, "reset_after_ms": 0},
                ],
                "violated": [], "retry_after_ms": null,
            })
        );
    }
}

#[tokio::test]
async fn a_reset_empties_one_key_and_no_other() {
    // F16: a reset by pattern deleted whatever an id with a `*` in it matched.
    let (context, registry) = context([Policy::builder("per-ip").limits("5/1h; 9/1d").key("{client_ip}")]);
    let limiter = context.limiter.clone();
    let admin = router(context, registry, &door(Tokens::Anyone));
    let keys = ["*", "a", "a*", "?", "", "a\nb"];
    for key in keys {
        assert!(limiter.check("per-ip", &[key]).await.unwrap().is_allowed());
    }
    let reply = post(&admin, "/v1/reset", r#"{"policy":"per-ip","key":["*"]}"#).await;
    assert_eq!((reply.status, reply.json()), (200, json!({"reset": true})));
    for key in keys {
        let used: Vec<u32> =
            limiter.peek("per-ip", &[key]).await.unwrap().limits().map(|l| l.outcome.used).collect();
        assert_eq!(used, if key == "*" { [0, 0] } else { [1, 1] }, "{key:?}");
    }
}

#[tokio::test]
async fn a_reset_with_a_fault_in_it_empties_nothing() {
    let (context, registry) = context([
        Policy::builder("per-ip").limits("5/1h").key("{client_ip}"),
        Policy::builder("global").limits("9/1h"),
    ]);
    let limiter = context.limiter.clone();
    let admin = router(context, registry, &door(Tokens::Anyone));
    assert!(limiter.check("global", &[]).await.unwrap().is_allowed());
    for (body, status) in [
        (r#"{"policies":["global",{"policy":"per-ip"}]}"#, 400),
        (r#"{"policies":["global","gone"]}"#, 404),
        (r#"{"policies":["global",{"policy":"per-ip","key":["a"],"all":true}]}"#, 400),
        (r#"{"policy":"global","key":["*"]}"#, 400),
    ] {
        assert_eq!(post(&admin, "/v1/reset", body).await.status, status, "{body}");
    }
    assert_eq!(limiter.peek("global", &[]).await.unwrap().limits().next().unwrap().outcome.used, 1);
}

async fn metrics(admin: &Router) -> String {
    let reply = get(admin, "/metrics").await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    reply.text
}

#[tokio::test]
async fn metrics_tell_decisions_store_and_build() {
    let (context, registry) = context([
        Policy::builder("per-ip").limits("2/1h").key("{client_ip}"),
        Policy::builder("watching").limits("1/1h").shadow(true),
    ]);
    let limiter = context.limiter.clone();
    let admin = router(context, registry, &door(Tokens::Anyone));
    for _ in 0..3 {
        let _ = limiter.check("per-ip", &["a"]).await.unwrap();
        let _ = limiter.check("watching", &[]).await.unwrap();
    }
    let (_, reservation) = limiter.reserve(&[slidegate::Ask::new("per-ip", &["b"])]).await.unwrap();
    let text = metrics(&admin).await;
    for door in ["gateway", "api"] {
        let count = format!("slidegate_check_duration_seconds_count{{door=\"{door}\"}} 0\n");
        assert!(text.contains(&count), "{text}");
    }
    // The doors come in no certain order.
    let of_door = |line: &&str| !line.starts_with("slidegate_check_duration_seconds");
    let lines: Vec<&str> = text.lines().filter(of_door).collect();
    insta::assert_snapshot!(lines.join("\n"));
    drop(reservation);
}

/// The metrics with their labels, as docs/operating.md lists them.
fn documented() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let spans = |cell: &'static str| cell.split('`').skip(1).step_by(2);
    let rows = include_str!("../../../../docs/operating.md")
        .lines()
        .filter(|line| line.starts_with("| `slidegate_"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        (spans(cells[1]).next().unwrap(), spans(cells[2]).collect())
    })
    .collect()
}

/// The metrics with their labels, as they are exported.
fn exported(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types
        .map(|(family, kind)| {
            let (name, of_sample) = match kind {
                "counter" => (format!("{family}_total"), format!("{family}_total")),
                "info" => (format!("{family}_info"), format!("{family}_info")),
                "histogram" => (family.to_owned(), format!("{family}_count")),
                _ => (family.to_owned(), family.to_owned()),
            };
            let sample = text.lines().find_map(|line| line.strip_prefix(&of_sample)).unwrap();
            let labels =
                sample.strip_prefix('{').and_then(|sample| sample.split_once('}')).map_or("", |cut| cut.0);
            let names = labels.split(',').filter_map(|label| label.split_once('='));
            (name, names.map(|(name, _)| name.to_owned()).collect())
        })
        .collect()
}

/// An admin port over a Redis store where nothing listens.
fn admin_over_redis() -> (Context, Router) {
    let config = Box::new(RedisConfig::parse("redis://127.0.0.1:1").unwrap());
    let kind = StoreKind::Redis { config, time: Millis(10) };
    let (context, registry) =
        context_over([Policy::builder("per-ip").limits("5/1h").key("{client_ip}")], kind);
    (context.clone(), router(context, registry, &door(Tokens::Anyone)))
}

#[tokio::test]
async fn the_documentation_lists_every_metric_with_its_labels() {
    let of_memory = exported(&metrics(&admin()).await);
    let of_redis = exported(&metrics(&admin_over_redis().1).await);
    assert!(
        !of_redis.contains_key("slidegate_store_keys")
            && !of_memory.contains_key("slidegate_store_calls_total")
    );
    let exported: BTreeMap<_, _> = of_memory.into_iter().chain(of_redis).collect();
    let documented: BTreeMap<String, BTreeSet<String>> = documented()
        .into_iter()
        .map(|(name, labels)| (name.to_owned(), labels.into_iter().map(str::to_owned).collect()))
        .collect();
    assert_eq!(documented, exported);
}

#[tokio::test]
async fn without_its_store_it_is_ready_and_says_what_it_lacks() {
    let (context, admin) = admin_over_redis();
    assert_eq!(context.limiter.check("per-ip", &["a"]).await.unwrap().mode(), slidegate::Mode::DenyAll);
    let reply = get(&admin, "/readyz").await;
    assert_eq!((reply.status, reply.json()), (200, json!({"ready": true, "store": "degraded"})));
    let text = metrics(&admin).await;
    for line in [
        "slidegate_store_connected 0\n",
        "slidegate_store_failing 1\n",
        "slidegate_store_bypassed_checks_total{outcome=\"denied\"} 1\n",
        "slidegate_store_failures_total{fault=\"disconnected\"} 1\n",
        "slidegate_store_failures_total{fault=\"timeout\"} 0\n",
        "slidegate_decisions_total{policy=\"per-ip\",outcome=\"denied\",mode=\"deny_all\"} 1\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    for path in ["/v1/peek", "/v1/reset"] {
        let reply = post(&admin, path, r#"{"policy":"per-ip","key":["a"]}"#).await;
        assert_eq!(
            (reply.status, &*reply.detail()),
            (503, "the store is unavailable: there is no connection")
        );
    }
}

#[tokio::test]
async fn there_are_as_many_series_however_many_keys_come() {
    // F31, R065, R067: a label for each client made the metrics grow without end.
    let (context, registry) = context([Policy::builder("per-ip").limits("1/1h").key("{client_ip}")]);
    let limiter = context.limiter.clone();
    let admin = router(context, registry, &door(Tokens::Anyone));
    let series = metrics(&admin).await.lines().count();
    for key in 0..200_000 {
        let _ = limiter.check("per-ip", &[&key.to_string()]).await.unwrap();
    }
    let after = metrics(&admin).await;
    assert_eq!(after.lines().count(), series);
    assert!(after.contains("slidegate_store_keys 200000\n"));
    assert!(after.contains(
        "slidegate_decisions_total{policy=\"per-ip\",outcome=\"allowed\",mode=\"normal\"} 200000\n"
    ));
}

#[tokio::test]
async fn a_policy_name_can_not_break_the_metrics() {
    let name = r#"a"b\c{d}=1"#;
    let (context, registry) = context([Policy::builder(name).limits("1/1h")]);
    let admin = router(context, registry, &door(Tokens::Anyone));
    assert!(metrics(&admin).await.contains(r#"{policy="a\"b\\c{d}=1",outcome="allowed",mode="normal"} 0"#));
}
