//! What can be a policy, and what is refused with which words.

use std::sync::Arc;

use slidegate_core::limit::Limit;
use slidegate_core::time::Millis;

use super::*;

fn p() -> PolicyBuilder {
    Policy::builder("p").limits("10/s; 100/m").key("{client_ip}")
}

fn refusal(builder: PolicyBuilder) -> String {
    builder.build().unwrap_err().to_string()
}

fn one(text: &str) -> Vec<(Option<Arc<str>>, Limit)> {
    vec![(None, text.parse().unwrap())]
}

#[test]
fn what_is_not_said_has_a_default() {
    let policy = Policy::builder("p").limits("10/s").build().unwrap();
    assert_eq!((policy.missing(), policy.cost()), (Missing::Count, &CostSource::Fixed(1)));
    assert!(!policy.is_shadow() && !policy.counts_denied() && !policy.uses_secrets());
    assert_eq!((policy.key().len(), policy.override_count(), policy.limits().len()), (0, 0, 1));
}

#[test]
fn names_stand_in_header_fields() {
    for name in ["p", "per user", "a\"b\\c", &"n".repeat(64)] {
        assert!(Policy::builder(name).limits("1/s").build().is_ok(), "{name:?}");
    }
    for name in ["", "ü", "a\nb", "\u{7f}", "a\tb", &"n".repeat(65)] {
        let expected = format!("the name {name:?} must have 1 to 64 printable ASCII characters");
        assert_eq!(refusal(Policy::builder(name).limits("1/s")), expected);
        assert_eq!(refusal(p().limit(Some(name), "1/s".parse().unwrap())), expected);
    }
}

#[test]
fn a_policy_has_one_to_sixteen_limits() {
    let limits = |count: usize| {
        (0..count).fold(Policy::builder("p"), |builder, _| builder.limit(None, "1/s".parse().unwrap()))
    };
    assert_eq!(refusal(limits(0)), "policy p has 0 limits: give it 1 to 16");
    assert_eq!(refusal(limits(17)), "policy p has 17 limits: give it 1 to 16");
    assert!(limits(16).build().is_ok());
    let empty_override = p().override_limits(vec![Pattern::Any], vec![]);
    assert_eq!(refusal(empty_override), "policy p has 0 limits: give it 1 to 16");
}

#[test]
fn limits_go_by_their_name_or_their_place() {
    let limit: Limit = "1/s".parse().unwrap();
    let names = |builder: PolicyBuilder| {
        let policy = builder.build().unwrap();
        let names = policy.limits().iter();
        names.map(|it| (it.store_name().to_owned(), it.public_name().to_string())).collect::<Vec<_>>()
    };
    let pair = |store: &str, public: &str| (store.to_owned(), public.to_owned());
    assert_eq!(names(Policy::builder("p").limit(None, limit)), [pair("1", "p")]);
    assert_eq!(names(Policy::builder("p").limit(Some("x"), limit)), [pair("x", "x")]);
    let three = Policy::builder("p").limit(None, limit).limit(Some("x"), limit).limit(None, limit);
    assert_eq!(names(three), [pair("1", "p-1"), pair("x", "x"), pair("3", "p-3")]);
    let twice = Policy::builder("p").limit(Some("x"), limit).limit(Some("x"), limit);
    assert_eq!(refusal(twice), "policy p has two limits called \"x\": give each its own name");
    // One that is called by the place of another would share its counter.
    let meeting = Policy::builder("p").limit(Some("2"), limit).limit(None, limit);
    assert_eq!(refusal(meeting), "policy p has two limits called \"2\": give each its own name");
}

#[test]
fn two_limits_never_show_the_same_name() {
    // RateLimit fields name limits only. `p-2` by name, and `p-2` by place.
    let limit: Limit = "1/s".parse().unwrap();
    let meeting = Policy::builder("p").limit(Some("p-2"), limit).limit(None, limit);
    assert_eq!(refusal(meeting), "policy p has two limits called \"p-2\": give each its own name");
}

#[test]
fn texts_that_cannot_be_read_are_quoted() {
    let message = refusal(Policy::builder("p").limits("10/s; 5/parsec"));
    assert!(
        message.starts_with("policy p, limits \"10/s; 5/parsec\": a duration ends with one of"),
        "{message}"
    );
    let message = refusal(p().key("{cookies}"));
    assert!(message.starts_with("policy p, key \"{cookies}\": `cookies` is not a part"), "{message}");
    // The first fault is the one that is told.
    let message = refusal(Policy::builder("p").limits("x").key("{").limits("y"));
    assert!(message.starts_with("policy p, limits \"x\":"), "{message}");
}

#[test]
fn a_key_has_at_most_eight_parts_and_none_twice() {
    let parts = |count: usize| {
        (0..count)
            .fold(Policy::builder("p").limits("1/s"), |builder, n| builder.key(&format!("{{query:q{n}}}")))
    };
    assert!(parts(8).build().is_ok());
    assert_eq!(refusal(parts(9)), "policy p has 9 key templates: at most 8");
    assert_eq!(refusal(p().key("{client_ip}")), "policy p names \"client_ip\" twice in its key");
    // With a text around it, it is another part.
    assert!(p().key("from {client_ip}").build().is_ok());
}

#[test]
fn a_cost_from_the_request_has_bounds_in_order() {
    let cost = |min, default, max| {
        let template = "{header:x-cost}".parse().unwrap();
        p().cost(CostSource::From { template, min, max, default })
    };
    assert!(cost(1, 1, 1).build().is_ok() && cost(0, 3, 9).build().is_ok());
    for (min, default, max) in [(2, 1, 9), (1, 10, 9), (9, 5, 1)] {
        let expected =
            format!("policy p: a cost needs min <= default <= max, and has {min}, {default}, {max}");
        assert_eq!(refusal(cost(min, default, max)), expected);
    }
}

#[test]
fn an_override_names_every_part_and_no_secret() {
    let two = || p().key("{secret:header:authorization}");
    let short = two().override_limits(vec![Pattern::Any], one("1/s"));
    assert_eq!(
        refusal(short),
        "an override of policy p names 1 parts, and its key has 2: use * for any value"
    );
    let secret = two().override_limits(vec![Pattern::Any, Pattern::parse("sk-live")], one("1/s"));
    let message = refusal(secret);
    assert_eq!(
        message,
        "an override of policy p names a value of the secret part secret:header:authorization: use * there"
    );
    let policy = two().override_limits(vec![Pattern::parse("192.0.2.1"), Pattern::Any], one("1/s"));
    let policy = policy.build().unwrap();
    assert_eq!((policy.override_count(), policy.all_limits().count()), (1, 3));
    assert!(policy.uses_secrets());
}

#[test]
fn overrides_are_bounded() {
    let many = |wildcards: usize, exact: usize| {
        let any = (0..wildcards).map(|n| vec![Pattern::Any, Pattern::Exact(n.to_string().into())]);
        let exact =
            (0..exact).map(|n| vec![Pattern::Exact("a".into()), Pattern::Exact(n.to_string().into())]);
        any.chain(exact).fold(p().key("{path}"), |builder, key| builder.override_limits(key, one("1/s")))
    };
    assert!(many(256, 1000).build().is_ok());
    let expected = "policy p has too many overrides: at most 100000, 256 of them with *";
    assert_eq!(refusal(many(257, 0)), expected);
    assert_eq!(refusal(many(0, 100_001)), expected);
    assert!(many(0, 100_000).build().is_ok(), "one for every tenant");
}

#[test]
fn ids_depend_on_names_alone() {
    // They address counters, so they must be the same on every instance and in every release: the first 64
    // bits of SHA-256.
    let (one, other) = (p().build().unwrap(), Policy::builder("p").limits("5/m").build().unwrap());
    assert_eq!(one.id(), other.id());
    assert_eq!(one.id(), 0x148d_e9c5_a7a4_4d19);
    assert_ne!(one.limits()[0].id(), one.limits()[1].id());
    assert_eq!(one.limits()[0].id(), 0x6b86_b273_ff34_fce1);
}

/// A lease of at most a fiftieth of each window, overrides included.
#[test]
fn leases_are_as_long_as_the_shortest_window_allows() {
    let lease = |builder: PolicyBuilder, ms| builder.lease(Lease::For(Millis(ms)));
    let long = Policy::builder("p").limits("10/1s; 100/1h");
    assert!(lease(long.clone(), 20).build().is_ok());
    assert_eq!(
        refusal(lease(long, 21)),
        "policy p: a lease of 21ms is too long for a window of 1s: at most 20ms"
    );
    let overridden = Policy::builder("p").limits("10/1h").key("{path}");
    let overridden = overridden.override_limits(vec![Pattern::Any], one("1/s"));
    assert!(refusal(lease(overridden, 21)).contains("too long for a window of 1s"));
    assert!(refusal(Policy::builder("p").limits("10/49ms").lease(Lease::Auto)).contains("can't be leased"));
    assert!(lease(Policy::builder("p").limits("10/1s"), 0).build().is_err());
}

#[test]
fn shards_are_no_more_than_the_permits_of_any_limit() {
    let split = |limits: &str, shards| Policy::builder("p").limits(limits).shards(shards);
    assert!(split("64/1s", 64).build().is_ok());
    assert!(split("0/1s", 64).build().is_ok(), "nobody's share of nothing is nothing");
    for (limits, shards) in [("10/1s", 0), ("100/1s", 65), ("100/1s; 3/1m", 4)] {
        assert!(refusal(split(limits, shards)).contains("shards: from 1 to 64"), "{limits} {shards}");
    }
    assert!(refusal(split("9/1s", 3).count_denied(true)).contains("count_denied goes with neither"));
    let policy = split("10/1s", 3).build().unwrap();
    let shares: Vec<u32> = (0..3).map(|place| policy.limits()[0].share(place).limit().permits()).collect();
    assert_eq!((shares.iter().sum::<u32>(), policy.limits()[0].most_at_once()), (10, 3));
    let watching = split("10/1s", 3).shadow(true).build().unwrap();
    assert_eq!((watching.split(), watching.limits()[0].most_at_once()), (1, 10));
}
