//! What the endpoints do with what they can't use.

use proptest::prelude::*;

use super::*;

/// What can't be used as a check.
const BAD_CHECKS: [&str; 36] = [
    "",
    "{",
    "\u{feff}{}",
    "[]",
    r#"["global"]"#,
    r#""per-ip""#,
    "null",
    "{} {}",
    "{\n \"policy\": per-ip}",
    "{'policy': 'per-ip'}",
    "{}",
    r#"{"policy":null}"#,
    r#"{"policy":7}"#,
    r#"{"policy":[]}"#,
    r#"{"policies":"per-ip"}"#,
    r#"{"policies":[7]}"#,
    r#"{"policies":[{"policy":"global","kye":[]}]}"#,
    r#"{"policies":[{"key":[]}]}"#,
    r#"{"policy":"global","policies":["per-ip"]}"#,
    r#"{"policy":"global","polcies":[]}"#,
    r#"{"policy":"global","now":1767225600000}"#, // F13: a caller's own time would be its own limit.
    r#"{"policy":"global","policy":"per-ip"}"#,
    r#"{"policy":"globl"}"#,
    r#"{"policy":"what-is-that"}"#,
    r#"{"policy":["global","globl"]}"#,
    r#"{"policy":["global","global"]}"#,
    r#"{"policy":"per-ip"}"#,
    r#"{"policy":"per-user","key":["a","b","c"]}"#,
    r#"{"policy":"per-user","key":{"client_ip":"a"}}"#,
    r#"{"policy":"per-user","key":{"client_ip":"a","header:x-userid":"1"}}"#,
    r#"{"policy":"per-ip","key":{"client_ip":"a","colour":"red"}}"#,
    r#"{"policy":"global","key":{"client_ip":"a"}}"#,
    r#"{"policy":"per-ip","key":{"client_ip":"a","client_ip":"b"}}"#,
    r#"{"policy":"per-ip","key":"a"}"#,
    r#"{"policy":"per-ip","key":[1001]}"#,
    r#"{"policies":["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q"]}"#,
];

/// What can't be used about several policies that are only named.
const BAD_SHARED: [&str; 3] = [
    r#"{"policy":["per-ip","per-tenant"],"key":{"client_ip":"a","header:x-tenant":"t","header:x-user":"u"}}"#,
    r#"{"policy":["per-ip","per-tenant"],"key":{"client_ip":"a"}}"#,
    r#"{"policies":[{"policy":"global"}],"cost":2}"#,
];

#[tokio::test]
async fn what_cannot_be_used_is_refused_with_what_to_write_instead() {
    let api = api();
    let mut table = String::new();
    for body in BAD_CHECKS.into_iter().chain(BAD_SHARED) {
        let reply = check(&api, body).await;
        // F11: an error must never look like an answer that allows.
        assert!((400..500).contains(&reply.status) && !reply.text.contains("\"allowed\""), "{body}");
        table += &format!("{body:?}\n    {} {}\n", reply.status, reply.detail());
    }
    insta::assert_snapshot!(table);
}

#[tokio::test]
async fn no_cost_but_a_whole_number_is_accepted() {
    // R109: a cost of -1 gave quota back. R114, F3: numbers that no counter holds.
    let api = api();
    for cost in [
        "-1",
        "1.5",
        "1.0",
        "1e3",
        "\"1\"",
        "null",
        "true",
        "[]",
        "4294967296",
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
    ] {
        let reply = check(&api, &format!(r#"{{"policy":"global","cost":{cost}}}"#)).await;
        assert_eq!(reply.status, 400, "{cost}");
        let detail = reply.detail();
        assert!(detail.contains("a whole number from 0 to 4294967295 at line 1 column"), "{cost}: {detail}");
    }
    let reply = check(&api, r#"{"policy":"global","cost":4294967295}"#).await;
    assert_eq!(reply.status, 422);
    assert_eq!(check(&api, r#"{"policy":"global","cost":0}"#).await.json()["limits"][0]["used"], 0);
}

#[tokio::test]
async fn long_keys_stay_apart_and_longer_ones_are_refused() {
    // R088: long values that differ in their last byte only; over the body's limit 413, never a 5xx.
    let api = api();
    let with = |end: &str, len| format!(r#"{{"policy":"per-ip","key":["{}{end}"]}}"#, "v".repeat(len));
    for end in ["a", "b", "a"] {
        assert_eq!(check(&api, &with(end, 60_000)).await.status, 200);
    }
    let peek = check(&api, &with("b", 60_000)).await.json();
    assert_eq!(peek["limits"][0]["used"], 2);
    assert_eq!(check(&api, &with("a", 65_536)).await.status, 413);
}

/// Whatever bytes are posted, the answer is a decision or a 4xx problem: nothing panics, nothing is a 5xx.
#[test]
fn no_body_breaks_an_endpoint() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let api = api();
    proptest!(
        |(body in hostile_body(), path in prop::sample::select(&PATHS[..]))| {
            let reply = runtime.block_on(ask(&api, path, body));
            prop_assert!(reply.status < 500, "{reply:?}");
            if reply.status != 200 && reply.status != 429 {
                prop_assert_eq!(reply.json()["status"].as_u64(), Some(u64::from(reply.status)));
            }
        }
    );
}

/// Bytes of no kind, or something close to a question.
fn hostile_body() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
        prop::sample::select(&["per-ip", "global", "per-user", "client_ip", "a"][..]).prop_map(Into::into),
    ];
    const NAMES: [&str; 8] = ["policy", "policies", "key", "cost", "checks", "reservation", "client_ip", "x"];
    let json = leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::vec((prop::sample::select(&NAMES[..]), inner), 0..4).prop_map(|entries| {
                entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            }),
        ]
    });
    prop_oneof![any::<Vec<u8>>(), json.prop_map(|json| json.to_string().into_bytes()),]
}
