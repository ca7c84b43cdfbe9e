//! Which route takes a request, and that no spelling dodges it.

use http::{Method, Request};
use slidegate::Policy;

use super::support::{Setup, exact, route};
use crate::config::{PathMatch, Route, Upstream};

fn once(policy: &str) -> Policy {
    Policy::builder(policy).limits("1/h").build().unwrap()
}

fn five(policy: &str) -> Policy {
    Policy::builder(policy).limits("5/h").build().unwrap()
}

// R146, R147, R149: percent-encoding, a trailing slash, doubled slashes, dots and a query each got a client
// past its limit, since the limit was found by the path as it was spelled.
#[tokio::test]
async fn every_spelling_of_a_path_shares_its_counter() {
    let setup = Setup::new(vec![exact("/login", Upstream::Echo)]).limited(five("login"));
    let gateway = setup.start().await;
    for path in ["/login", "//login", "/%6cogin", "/login/", "/./login"] {
        assert_eq!(gateway.get(path).await.status, 200, "{path}");
    }
    let others = ["/login", "/%6Cogin", "/x/../login", "/login?x=1", "/login/?", "/%2e/login", "/login/."];
    for path in others {
        assert_eq!(gateway.get(path).await.status, 429, "{path}");
    }
}

#[tokio::test]
async fn what_would_change_the_meaning_of_a_path_is_not_decoded() {
    let setup = Setup::new(vec![exact("/a/b", Upstream::Echo)]);
    let gateway = setup.start().await;
    gateway.get("/a%2Fb").await.assert_problem(404);
    gateway.get("/a/b").await;
    gateway.get("/A/b").await.assert_problem(404);
}

#[tokio::test]
async fn a_path_that_can_not_be_read_is_answered_400() {
    let gateway = Setup::new(vec![route(Upstream::Echo)]).start().await;
    for path in ["/%zz", "/a%", "/%00", "/a%0d%0ab"] {
        let got = gateway.get(path).await;
        got.assert_problem(400);
        assert!(got.json()["detail"].as_str().unwrap().contains("path"), "{}", got.body);
    }
}

// R150: with the raw path as key, every id had a counter of its own.
#[tokio::test]
async fn a_pattern_shares_one_counter_among_its_ids() {
    let pattern = Route { path: PathMatch::Pattern("/users/{id}".into()), ..route(Upstream::Echo) };
    let by_route = Policy::builder("users").limits("5/h").key("{route}").build().unwrap();
    let gateway = Setup::new(vec![pattern]).limited(by_route).start().await;
    for id in 1..=5 {
        assert_eq!(gateway.get(&format!("/users/{id}")).await.status, 200);
    }
    assert_eq!(gateway.get("/users/100").await.status, 429);
}

#[tokio::test]
async fn a_parameter_can_be_the_key() {
    let pattern = Route { path: PathMatch::Pattern("/users/{id}/orders".into()), ..route(Upstream::Echo) };
    let by_id = Policy::builder("users").limits("1/h").key("{path:id}").build().unwrap();
    let gateway = Setup::new(vec![pattern]).limited(by_id).start().await;
    assert_eq!(gateway.get("/users/ann/orders").await.status, 200);
    assert_eq!(gateway.get("/users/bob/orders").await.status, 200);
    assert_eq!(gateway.get("/users/%61nn/orders").await.status, 429);
}

#[tokio::test]
async fn no_route_is_404_and_another_method_405_with_the_methods_there_are() {
    let orders = Route { methods: vec![Method::POST, Method::GET], ..exact("/orders", Upstream::Echo) };
    let gateway = Setup::new(vec![orders]).start().await;
    gateway.get("/nowhere").await.assert_problem(404);
    let refused = gateway.ask(Request::delete("/orders")).await;
    refused.assert_problem(405);
    assert_eq!(refused.header("allow"), "POST, GET, HEAD");
    let head = gateway.ask(Request::head("/nowhere")).await;
    assert_eq!((head.status.as_u16(), head.body.as_str()), (404, ""));
}

#[tokio::test]
async fn asking_for_the_head_only_does_not_dodge_a_limit_on_get() {
    let mut orders = exact("/orders", Upstream::Echo);
    orders.methods = vec![Method::GET];
    let gateway = Setup::new(vec![orders]).limited(once("orders")).start().await;
    assert_eq!(gateway.ask(Request::head("/orders")).await.status, 200);
    assert_eq!(gateway.get("/orders").await.status, 429);
}

// R140: preflights used up the quota of the requests that they announce.
#[tokio::test]
async fn a_preflight_goes_where_its_request_would_and_is_free() {
    let mut orders = exact("/orders", Upstream::Echo);
    orders.methods = vec![Method::POST];
    let gateway = Setup::new(vec![orders]).limited(once("orders")).start().await;
    for _ in 0..10 {
        let preflight = Request::options("/orders")
            .header("origin", "https://shop.example")
            .header("access-control-request-method", "POST");
        let got = gateway.ask(preflight).await;
        assert_eq!(got.status, 200);
        assert_eq!(got.header("ratelimit"), "", "it was not limited");
    }
    assert_eq!(gateway.ask(Request::options("/orders")).await.status, 405, "a plain OPTIONS is no preflight");
    assert_eq!(gateway.ask(Request::post("/orders")).await.status, 200);
    assert_eq!(gateway.ask(Request::post("/orders")).await.status, 429);
}

#[tokio::test]
async fn hosts_have_routes_of_their_own() {
    let of_host = |host: &str, policy: &str| Route {
        host: Some(host.into()),
        policies: vec![policy.into()],
        ..route(Upstream::Echo)
    };
    let mut setup = Setup::new(vec![of_host("shop.example", "shop"), of_host("*.shop.example", "below")]);
    setup.policies = vec![once("shop"), once("below")];
    let gateway = setup.start().await;
    let ask = async |host: &str| {
        gateway.raw(&format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")).await
    };
    assert!(ask("shop.example").await.contains(r#"ratelimit: "shop";r=0"#));
    for same in ["SHOP.example", "shop.example:8080", "shop.example."] {
        assert!(ask(same).await.starts_with("HTTP/1.1 429"), "{same} dodged the limit");
    }
    assert!(ask("a.b.shop.example").await.contains(r#"ratelimit: "below";r=0"#));
    assert!(ask("notshop.example").await.starts_with("HTTP/1.1 404"));
    assert!(ask("").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn a_request_for_the_server_as_a_whole_has_no_route() {
    let gateway = Setup::new(vec![route(Upstream::Echo)]).start().await;
    let answer = gateway.raw("OPTIONS * HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}
