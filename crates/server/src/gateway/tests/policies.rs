//! That what a policy says about requests is asked of the requests that come in: their headers, their
//! client, their method.

use http::{HeaderName, Method, Request};
use slidegate::Policy;
use slidegate::http::client_ip::{ClientIpRule, Trust};
use slidegate::policy::{CostSource, Exempt, Missing, Pattern, PolicyBuilder};

use super::support::{Running, Setup, route};
use crate::config::Upstream;

/// A gateway with these policies on every path; 127.0.0.1 is a proxy that tells the client.
async fn limited_by(policies: impl IntoIterator<Item = PolicyBuilder>) -> Running {
    let setup = Setup::new(vec![route(Upstream::Echo)]);
    let mut setup = policies.into_iter().fold(setup, |setup, policy| setup.limited(policy.build().unwrap()));
    let trust = Trust::Proxies(vec!["127.0.0.0/8".parse().unwrap()]);
    setup.client_ip = ClientIpRule { trust, ..ClientIpRule::default() };
    setup.start().await
}

/// What a client is told about one request.
async fn from(gateway: &Running, client: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let request = Request::get("/").header("x-forwarded-for", client);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let got = gateway.ask(request).await;
    (got.status.as_u16(), got.header("ratelimit").split(";t=").next().unwrap().to_owned())
}

#[tokio::test]
async fn a_shadow_policy_lets_pass_and_is_not_told() {
    let shadow = Policy::builder("watched").limits("1/h").shadow(true);
    let gateway = limited_by([shadow, Policy::builder("all").limits("3/h")]).await;
    for left in ["2", "1", "0"] {
        let told = from(&gateway, "192.0.2.1", &[]).await;
        assert_eq!(told, (200, format!(r#""all";r={left}"#)));
    }
    assert_eq!(from(&gateway, "192.0.2.1", &[]).await.0, 429);
}

#[tokio::test]
async fn an_override_is_found_by_the_clients_address() {
    let limits = vec![(None, "7/h".parse().unwrap())];
    let policy = Policy::builder("all").limits("3/h").key("{client_ip}");
    let gateway = limited_by([policy.override_limits(vec![Pattern::parse("192.0.2.7")], limits)]).await;
    assert_eq!(from(&gateway, "192.0.2.7", &[]).await.1, r#""all";r=6"#);
    assert_eq!(from(&gateway, "192.0.2.8", &[]).await.1, r#""all";r=2"#);
}

#[tokio::test]
async fn a_cost_is_taken_from_its_header_within_bounds() {
    let cost = CostSource::From { template: "{header:x-cost}".parse().unwrap(), min: 1, max: 6, default: 2 };
    let gateway = limited_by([Policy::builder("all").limits("10/h").cost(cost)]).await;
    let costs = [("3", r#""all";r=7"#), ("0", r#""all";r=6"#), ("much", r#""all";r=4"#)];
    for (cost, left) in costs {
        assert_eq!(from(&gateway, "192.0.2.1", &[("x-cost", cost)]).await, (200, left.into()), "{cost}");
    }
    // 99 is clamped to 6, which is more than the 4 that are left: denied, and nothing is taken.
    assert_eq!(from(&gateway, "192.0.2.1", &[("x-cost", "99")]).await, (429, r#""all";r=4"#.into()));
    assert_eq!(from(&gateway, "192.0.2.1", &[]).await, (200, r#""all";r=2"#.into()));
}

// R074: requests without the header were all lumped together, or all let through, whatever was meant.
#[tokio::test]
async fn a_request_without_the_part_is_what_the_policy_makes_of_it() {
    for (missing, expected) in [
        (Missing::Count, [200, 429, 429]),
        (Missing::Skip, [200, 200, 200]),
        (Missing::Deny, [400, 400, 400]),
        (Missing::ClientIp, [200, 429, 200]),
    ] {
        let policy = Policy::builder("all").limits("1/h").key("{header:x-user}").missing(missing);
        let gateway = limited_by([policy]).await;
        let mut seen = Vec::new();
        for client in ["192.0.2.1", "192.0.2.1", "192.0.2.2"] {
            seen.push(from(&gateway, client, &[]).await.0);
        }
        assert_eq!(seen, expected, "{missing:?}");
        assert_eq!(from(&gateway, "192.0.2.1", &[("x-user", "ann")]).await.0, 200, "{missing:?}");
    }
}

#[tokio::test]
async fn exempt_are_the_method_the_client_and_the_header_that_the_policy_names() {
    let exempt = Exempt {
        methods: vec![Method::OPTIONS],
        client_ip: vec!["10.0.0.0/8".parse().unwrap()],
        headers: vec![(HeaderName::from_static("x-internal"), b"let me in".as_slice().into())],
    };
    let gateway = limited_by([Policy::builder("closed").limits("0/h").exempt(exempt)]).await;
    assert_eq!(from(&gateway, "10.1.2.3", &[]).await, (200, String::new()));
    assert_eq!(from(&gateway, "192.0.2.1", &[("x-internal", "let me in")]).await.0, 200);
    assert_eq!(gateway.ask(Request::options("/")).await.status, 200);
    assert_eq!(from(&gateway, "192.0.2.1", &[("x-internal", "let me")]).await.0, 429);
    // A client can't write itself in front of the address that the proxy adds.
    assert_eq!(from(&gateway, "10.1.2.3, 192.0.2.1", &[]).await.0, 429);
}

#[tokio::test]
async fn too_few_forwarded_addresses_are_counted_and_the_peer_is_the_client() {
    let policy = Policy::builder("all").limits("1/h").key("{client_ip}");
    let mut setup = Setup::new(vec![route(Upstream::Echo)]).limited(policy.build().unwrap());
    setup.client_ip = ClientIpRule { trust: Trust::Hops(2), ..ClientIpRule::default() };
    let gateway = setup.start().await;
    assert_eq!(from(&gateway, "192.0.2.1, 192.0.2.2", &[]).await.0, 200);
    assert_eq!(gateway.metrics.too_few_hops.get(), 0);
    assert_eq!(from(&gateway, "192.0.2.3", &[]).await.0, 200);
    assert_eq!(from(&gateway, "192.0.2.4", &[]).await.0, 429, "both are 127.0.0.1");
    assert_eq!(gateway.metrics.too_few_hops.get(), 2);
}
