//! Checks of requests: whose key, at what cost, and for whom not at all.

use super::*;

fn by_user(missing: Missing) -> PolicyBuilder {
    Policy::builder("p").limits("1/m").key("{header:x-user}").missing(missing)
}

fn from(client: &str) -> Request {
    Request::from(client)
}

#[tokio::test]
async fn addresses_of_one_group_share_a_counter() {
    // R068: one host with a /64 of its own filled the store with its addresses.
    let (_clock, limiter) = limiter([policy("p", "1000/m")]);
    for n in 0..1000 {
        assert!(from(&format!("2001:db8:1:2::{n:x}")).passes(&limiter).await);
    }
    assert_eq!(limiter.store().figures().keys, 1);
    assert!(!from("2001:db8:1:2:ffff::1").passes(&limiter).await);
    assert!(from("2001:db8:1:3::1").passes(&limiter).await);
    // By hand the group is written as answers and logs show it.
    assert_eq!(used(&limiter, "p", "2001:db8:1:2::/64").await, [(1000, 0)]);
}

#[tokio::test]
async fn requests_that_lack_a_part_share_a_counter_of_their_own() {
    // R074, R086: the counter of those without a name can't be reached by choosing one.
    let (_clock, limiter) = limiter([by_user(Missing::Count)]);
    assert!(from("192.0.2.1").passes(&limiter).await);
    assert!(!from("192.0.2.2").passes(&limiter).await);
    for name in ["", "?", "?header:x-user", "header:x-user", "null", "missing", "__overflow__"] {
        assert!(from("192.0.2.1").header("x-user", name).passes(&limiter).await, "{name:?}");
        assert!(!from("192.0.2.1").header("x-user", name).passes(&limiter).await, "{name:?}");
    }
}

#[tokio::test]
async fn a_policy_can_skip_requests_that_lack_a_part() {
    // R074: internal callers without the header were lumped together.
    let (_clock, limiter) = limiter([by_user(Missing::Skip), policy("all", "5/m")]);
    for _ in 0..5 {
        let decision = from("192.0.2.1").check(&limiter, &["p", "all"]).await.unwrap();
        assert!(decision.is_allowed());
        assert_eq!(names(decision.limits()), ["all"]);
    }
    assert!(!from("192.0.2.1").check(&limiter, &["p", "all"]).await.unwrap().is_allowed());
    let alone = from("192.0.2.1").check(&limiter, &["p"]).await.unwrap();
    assert_eq!((alone.is_allowed(), alone.limits().count()), (true, 0));
}

#[tokio::test]
async fn a_policy_can_refuse_requests_that_lack_a_part() {
    let (_clock, limiter) = limiter([policy("all", "5/m"), by_user(Missing::Deny)]);
    let error = from("192.0.2.1").check(&limiter, &["all", "p"]).await.unwrap_err();
    assert_eq!(error.to_string(), "policy p needs header:x-user, which the request lacks");
    assert_eq!(used(&limiter, "all", "192.0.2.1").await, [(0, 5)], "refused, so nothing is charged");
}

#[tokio::test]
async fn a_clients_address_can_stand_in_for_a_part() {
    // R075: the fallback used the text `remote_addr` in place of the address: one counter for all.
    let (_clock, limiter) = limiter([by_user(Missing::ClientIp)]);
    assert!(from("192.0.2.1").passes(&limiter).await);
    assert!(from("192.0.2.2").passes(&limiter).await);
    assert!(!from("192.0.2.1").passes(&limiter).await);
    // Peers without an address share one.
    let nobody = || Request { client: None, ..from("192.0.2.1") };
    assert!(nobody().passes(&limiter).await);
    assert!(!nobody().passes(&limiter).await);
}

#[tokio::test]
async fn a_user_called_by_an_address_is_not_that_address() {
    // R085: user id '127.0.0.1' shared the counter of anonymous requests from there.
    let (_clock, limiter) = limiter([by_user(Missing::ClientIp)]);
    assert!(from("127.0.0.1").passes(&limiter).await);
    assert!(from("127.0.0.1").header("x-user", "127.0.0.1").passes(&limiter).await);
    assert!(!from("127.0.0.1").passes(&limiter).await);
    assert!(!from("192.0.2.1").header("x-user", "127.0.0.1").passes(&limiter).await);
}

#[tokio::test]
async fn long_values_are_told_apart_and_kept_short() {
    // R088: keys of attacker-chosen length filled the store.
    let (_clock, limiter) = limiter([by_user(Missing::Count)]);
    let long = "v".repeat(65_536);
    assert!(from("192.0.2.1").header("x-user", &format!("{long}a")).passes(&limiter).await);
    assert!(from("192.0.2.1").header("x-user", &format!("{long}b")).passes(&limiter).await);
    assert!(!from("192.0.2.1").header("x-user", &format!("{long}a")).passes(&limiter).await);
    let key = [long.as_str()];
    assert!(limiter.question(&Ask::new("p", &key)).unwrap().key.as_bytes().len() <= 128);
}

#[tokio::test]
async fn exempt_requests_pass_unseen() {
    let exempt = Exempt {
        methods: vec![Method::HEAD],
        client_ip: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
        headers: vec![(HeaderName::from_static("x-internal"), b"let me in".as_slice().into())],
    };
    let (_clock, limiter) = limiter([policy("p", "0/m").exempt(exempt), policy("q", "1/m")]);
    for request in [
        from("192.0.2.1").method(Method::HEAD),
        from("10.1.2.3"),
        from("2001:db8:1::1"),
        from("192.0.2.1").header("x-internal", "let me in"),
        from("192.0.2.1").header("x-internal", "no").header("x-internal", "let me in"),
    ] {
        let decision = request.check(&limiter, &["p"]).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.limits().count()), (true, 0));
    }
    for request in [
        from("192.0.2.1"),
        from("11.0.0.1"),
        from("2001:db9::1"),
        from("192.0.2.1").header("x-internal", "let me i"),
        from("192.0.2.1").header("x-internal", "let me in "),
        from("192.0.2.1").header("x-internal", ""),
        Request { client: None, ..from("10.1.2.3") },
    ] {
        assert!(!request.passes(&limiter).await);
    }
    // Exempt from one policy is not exempt from another.
    assert!(from("10.1.2.3").check(&limiter, &["p", "q"]).await.unwrap().is_allowed());
    assert!(!from("10.1.2.3").check(&limiter, &["p", "q"]).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_preflight_is_not_charged_and_other_options_requests_are() {
    let (_clock, limiter) = limiter([policy("p", "1/m")]);
    let options = || from("192.0.2.1").method(Method::OPTIONS);
    for _ in 0..5 {
        let preflight =
            options().header("origin", "https://example.com").header("access-control-request-method", "POST");
        assert!(preflight.passes(&limiter).await);
    }
    assert!(options().header("origin", "https://example.com").passes(&limiter).await);
    assert!(!options().passes(&limiter).await);
}

#[tokio::test]
async fn costs_come_from_the_request_within_bounds() {
    let template = "{header:x-cost}".parse().unwrap();
    let cost = CostSource::From { template, min: 2, max: 50, default: 5 };
    let (_clock, limiter) = limiter([policy("p", "40/m").cost(cost)]);
    // A client must not peek its way through with 0, nor by writing nonsense.
    let cases =
        [("7", 7), ("0", 2), ("1", 2), ("-1", 5), ("", 5), ("many", 5), ("1e3", 5), ("40", 40), ("0012", 12)];
    for (text, expected) in cases {
        let decision = from("192.0.2.1").header("x-cost", text).check(&limiter, &["p"]).await.unwrap();
        let used = decision.limits().next().unwrap().outcome.used;
        assert_eq!((decision.is_allowed(), used), (true, expected), "{text:?}");
        limiter.reset("p", &["192.0.2.1"]).await.unwrap();
    }
    let without = from("192.0.2.1").check(&limiter, &["p"]).await.unwrap();
    assert_eq!(without.limits().next().unwrap().outcome.used, 5);
    // Clamped to 50, which 40 permits can never hold.
    for text in ["41", "51", "99999999999999999999"] {
        let error = from("192.0.2.1").header("x-cost", text).check(&limiter, &["p"]).await.unwrap_err();
        assert!(matches!(error, CheckError::Never { capacity: 40, .. }), "{text}");
    }
}

#[tokio::test]
async fn the_most_exact_override_wins_and_among_equals_the_first() {
    let limits = |n: u32| vec![(None, format!("{n}/m").parse().unwrap())];
    let key = |parts: [&str; 2]| parts.map(Pattern::parse).to_vec();
    let p = policy("p", "1/m")
        .key("{header:x-user}")
        .override_limits(key(["*", "*"]), limits(2))
        .override_limits(key(["*", "ann"]), limits(3))
        .override_limits(key(["192.0.2.1", "*"]), limits(4))
        .override_limits(key(["192.0.2.1", "ann"]), limits(5))
        .override_limits(key(["192.0.2.1", "ann"]), limits(6));
    let (_clock, limiter) = limiter([p]);
    for (address, user, expected) in
        [("192.0.2.1", "ann", 5), ("192.0.2.9", "ann", 3), ("192.0.2.1", "bob", 4), ("192.0.2.9", "bob", 2)]
    {
        let by_hand = limiter.check("p", &[address, user]).await.unwrap();
        let by_request = from(address).header("x-user", user).check(&limiter, &["p"]).await.unwrap();
        for decision in [by_hand, by_request] {
            assert_eq!(decision.limits().next().unwrap().outcome.limit, expected, "{address} {user}");
        }
    }
}

#[tokio::test]
async fn an_override_speaks_of_values_and_not_of_what_is_missing() {
    let overridden = |missing| {
        let limits = |n: u32| vec![(None, format!("{n}/m").parse().unwrap())];
        by_user(missing)
            .key("{client_ip}")
            .override_limits(vec![Pattern::parse(""), Pattern::Any], limits(7))
            .override_limits(vec![Pattern::parse("192.0.2.1"), Pattern::Any], limits(8))
            .override_limits(vec![Pattern::Any, Pattern::parse("192.0.2.2")], limits(9))
    };
    for missing in [Missing::Count, Missing::ClientIp] {
        let (_clock, limiter) = limiter([overridden(missing)]);
        for (request, expected) in [
            (from("192.0.2.1"), 1),
            (from("192.0.2.1").header("x-user", ""), 7),
            (from("192.0.2.1").header("x-user", "192.0.2.1"), 8),
            (from("192.0.2.2"), 9),
        ] {
            let decision = request.check(&limiter, &["p"]).await.unwrap();
            assert_eq!(decision.limits().next().unwrap().outcome.limit, expected);
        }
    }
}

#[tokio::test]
async fn an_override_of_other_limits_shows_and_resets_them() {
    let two = vec![(None, "2/m".parse().unwrap()), (Some("day".into()), "9/d".parse().unwrap())];
    let (_clock, limiter) = limiter([policy("p", "5/m").override_limits(vec![Pattern::parse("vip")], two)]);
    assert_eq!(count_allowed(&limiter, "p", "vip", 5).await, 2);
    assert_eq!(used(&limiter, "p", "vip").await, [(2, 0), (2, 7)]);
    let decision = limiter.peek("p", &["vip"]).await.unwrap();
    assert_eq!(names(decision.limits()), ["p-1", "day"]);
    limiter.reset("p", &["vip"]).await.unwrap();
    assert_eq!(used(&limiter, "p", "vip").await, [(0, 2), (0, 9)]);
    assert_eq!(count_allowed(&limiter, "p", "other", 9).await, 5);
}
