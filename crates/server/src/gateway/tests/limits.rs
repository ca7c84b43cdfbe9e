//! That limits hold, whoever asks over however many connections, and that answers say where a client stands.

use std::convert::Infallible;
use std::io::Write;
use std::sync::{Arc, Mutex};

use http::Request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use slidegate::Policy;
use slidegate::http::client_ip::{ClientIpRule, Trust};
use slidegate::http::{AnswerOptions, Legacy};
use slidegate::policy::Missing;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::subscriber::DefaultGuard;

use super::support::{Behind, Setup, empty, exact, full, got, route};
use crate::config::Upstream;
use crate::serving::{Activity, Connection, Handle};

fn policy(name: &str, limits: &str, keys: &[&str]) -> Policy {
    let builder = Policy::builder(name).limits(limits);
    keys.iter().fold(builder, |builder, key| builder.key(key)).build().unwrap()
}

// F27: state kept with each connection let 1,500 requests through a limit of five.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_limit_holds_over_many_connections() {
    let gateway = Setup::new(vec![route(Upstream::Echo)]).limited(policy("all", "5/h", &[])).start().await;
    let gateway = Arc::new(gateway);
    let mut clients = JoinSet::new();
    for client in 0..50 {
        let gateway = gateway.clone();
        clients.spawn(async move {
            let mut allowed = 0;
            if client % 2 == 0 {
                let mut connection = gateway.h1().await;
                for _ in 0..30 {
                    let request = Request::get("/").header("host", "a").body(empty()).unwrap();
                    allowed +=
                        u32::from(got(connection.send_request(request).await.unwrap()).await.status == 200);
                }
            } else {
                let mut connection = gateway.h2().await;
                for _ in 0..30 {
                    let request = Request::get("http://a/").body(empty()).unwrap();
                    allowed +=
                        u32::from(got(connection.send_request(request).await.unwrap()).await.status == 200);
                }
            }
            allowed
        });
    }
    assert_eq!(clients.join_all().await.into_iter().sum::<u32>(), 5);
}

// R127: limits that are charged one after the other drift apart under load. The windows are longer than in
// the story so that no second boundary falls into the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_limits_the_wider_one_is_charged_for_admitted_requests_only() {
    let setup = Setup::new(vec![route(Upstream::Echo)]).limited(policy("all", "10/m; 100/h", &[]));
    let gateway = Arc::new(setup.start().await);
    let mut clients = JoinSet::new();
    for _ in 0..200 {
        let gateway = gateway.clone();
        clients.spawn(async move { gateway.get("/").await.status });
    }
    let allowed = clients.join_all().await.into_iter().filter(|status| *status == 200).count();
    assert_eq!(allowed, 10);
    let decision = gateway.limiter.peek("all", &[]).await.unwrap();
    let left: Vec<u32> = decision.limits().map(|state| state.outcome.remaining).collect();
    assert_eq!(left, [0, 90]);
}

// F21, R121: one user's denied requests drained what all share.
#[tokio::test]
async fn a_denied_user_leaves_the_shared_limit_alone() {
    let mut setup = Setup::new(vec![route(Upstream::Echo)]);
    setup =
        setup.limited(policy("per-user", "1/h", &["{header:x-user}"])).limited(policy("all", "10/h", &[]));
    let gateway = setup.start().await;
    for n in 0..20 {
        let status = gateway.ask(Request::get("/").header("x-user", "ann")).await.status;
        assert_eq!(status, if n == 0 { 200 } else { 429 });
    }
    let decision = gateway.limiter.peek("all", &[]).await.unwrap();
    assert_eq!(decision.limits().next().unwrap().outcome.remaining, 9);
}

#[tokio::test]
async fn answers_say_where_a_client_stands() {
    let gateway = Setup::new(vec![route(Upstream::Echo)]).limited(policy("all", "2/h", &[])).start().await;
    let first = gateway.get("/").await;
    assert_eq!(first.header("ratelimit-policy"), r#""all";q=2;w=3600"#);
    assert!(first.header("ratelimit").starts_with(r#""all";r=1;t="#), "{first:?}");
    assert_eq!(first.header("retry-after"), "");
    gateway.get("/").await;

    let denied = gateway.get("/").await;
    denied.assert_problem(429);
    assert_eq!(denied.json()["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["all"]));
    let retry_after: u64 = denied.header("retry-after").parse().unwrap();
    assert!((1..=3600).contains(&retry_after));

    let head = gateway.ask(Request::head("/")).await;
    assert_eq!((head.status.as_u16(), head.body.as_str()), (429, ""));
    let mut h2 = gateway.h2().await;
    let request = Request::head("http://a/").body(empty()).unwrap();
    let head = got(h2.send_request(request).await.unwrap()).await;
    assert_eq!((head.status.as_u16(), head.body.as_str()), (429, ""));
    assert_ne!(head.header("retry-after"), "");
}

#[tokio::test]
async fn an_upstreams_own_limits_stay_visible_beside_ours() {
    let behind = Behind::answering(|_| async {
        http::Response::builder()
            .header("ratelimit-policy", r#""theirs";q=9"#)
            .header("ratelimit", r#""theirs";r=8"#)
            .header("x-ratelimit-remaining", "8")
            .header("retry-after", "77")
            .body(empty())
            .unwrap()
    })
    .await;
    let mut setup = Setup::new(vec![route(behind.upstream())]).limited(policy("ours", "2/h", &[]));
    setup.answers = AnswerOptions { legacy: Legacy::Delta, mode: true };
    let got = setup.start().await.get("/").await;
    let lines = |name: &str| -> Vec<_> {
        got.headers.get_all(name).iter().map(|line| line.to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(lines("ratelimit-policy"), [r#""ours";q=2;w=3600"#, r#""theirs";q=9"#]);
    assert_eq!(lines("ratelimit").len(), 2);
    assert_eq!(lines("x-ratelimit-remaining"), ["1"], "never two values in one field");
    assert_eq!(lines("retry-after"), ["77"]);
    assert_eq!(lines("slidegate-mode"), ["normal"]);
}

#[tokio::test]
async fn a_route_without_policies_adds_no_fields() {
    let got = Setup::new(vec![route(Upstream::Echo)]).start().await.get("/").await;
    assert!(!got.headers.keys().any(|name| name.as_str().contains("ratelimit")));
}

#[tokio::test]
async fn whoever_is_refused_before_the_limiter_is_not_charged() {
    let setup = Setup::new(vec![exact("/orders", Upstream::Echo)]).limited(policy("all", "1/h", &[]));
    let gateway = setup.start().await;
    gateway.get("/%zz").await.assert_problem(400);
    gateway.get("/nowhere").await.assert_problem(404);
    gateway.ask(Request::get("/orders").header("x-long", "x".repeat(20_000))).await.assert_problem(431);
    let large = Request::post("/orders").header("content-length", "1073741824");
    let large = large.header("host", "a").body(empty()).unwrap();
    got(gateway.h1().await.send_request(large).await.unwrap()).await.assert_problem(413);
    assert_eq!(gateway.get("/orders").await.status, 200);
    assert_eq!(gateway.get("/orders").await.status, 429);
}

#[tokio::test]
async fn an_upstream_that_fails_was_charged_all_the_same() {
    let nobody = super::support::upstream(([127, 0, 0, 1], 1).into());
    let gateway = Setup::new(vec![route(nobody)]).limited(policy("all", "1/h", &[])).start().await;
    let failed = gateway.get("/").await;
    failed.assert_problem(502);
    assert!(failed.header("ratelimit").starts_with(r#""all";r=0"#), "{failed:?}");
    assert_eq!(gateway.get("/").await.status, 429);
}

// R071: each request came with another made-up address, and so had a quota of its own.
#[tokio::test]
async fn made_up_addresses_give_no_fresh_quota() {
    let setup = Setup::new(vec![route(Upstream::Echo)]).limited(policy("all", "5/h", &["{client_ip}"]));
    let gateway = setup.start().await;
    let mut allowed = 0;
    for n in 0..100 {
        let request = Request::get("/").header("x-forwarded-for", format!("198.51.100.{n}"));
        allowed += u32::from(gateway.ask(request).await.status == 200);
    }
    assert_eq!(allowed, 5);
}

#[tokio::test]
async fn a_trusted_proxy_tells_the_clients_apart() {
    let mut setup = Setup::new(vec![route(Upstream::Echo)]).limited(policy("all", "1/h", &["{client_ip}"]));
    setup.client_ip = ClientIpRule {
        trust: Trust::Proxies(vec!["127.0.0.0/8".parse().unwrap()]),
        ..ClientIpRule::default()
    };
    let gateway = setup.start().await;
    let from =
        async |chain: &str| gateway.ask(Request::get("/").header("x-forwarded-for", chain)).await.status;
    assert_eq!(from("203.0.113.7").await, 200);
    assert_eq!(from("203.0.113.8").await, 200);
    assert_eq!(from("1.1.1.1, 203.0.113.7").await, 429);
}

// R081: a probe without the headers that a key asks for made the limiter panic.
#[tokio::test]
async fn a_request_without_the_parts_of_a_key_is_answered() {
    let by_header = policy("by-header", "10/h", &["{header:cf-connecting-ip}"]);
    let gateway = Setup::new(vec![route(Upstream::Echo)]).limited(by_header).start().await;
    assert_eq!(gateway.get("/health").await.status, 200);
    let old = gateway.raw("GET /health HTTP/1.0\r\n\r\n").await;
    assert!(old.starts_with("HTTP/1.0 200"), "{old}");

    let strict = Policy::builder("strict").limits("10/h").key("{header:x-user}").missing(Missing::Deny);
    let gateway = Setup::new(vec![route(Upstream::Echo)]).limited(strict.build().unwrap()).start().await;
    let refused = gateway.get("/").await;
    refused.assert_problem(400);
    assert!(refused.json()["detail"].as_str().unwrap().contains("x-user"), "{}", refused.body);
}

/// Log lines of a test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Takes what this thread logs until the guard is dropped.
    fn listen(&self) -> DefaultGuard {
        let log = self.clone();
        tracing::subscriber::set_default(tracing_subscriber::fmt().with_writer(move || log.clone()).finish())
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

// R080: over a Unix socket there is no address, and hashing it panicked. Such requests share one counter,
// and one line in the log says what to do about it, however many come.
#[tokio::test]
async fn peers_without_an_address_are_limited_together() {
    let log = Log::default();
    let _listening = log.listen();
    let setup = Setup::new(vec![route(Upstream::Echo)]).limited(policy("all", "1/h", &["{client_ip}"]));
    let gateway = Arc::new(setup.gateway());
    for status in ["HTTP/1.1 200", "HTTP/1.1 429"] {
        let (mut client, socket) = UnixStream::pair().unwrap();
        let connection = Connection { peer: None, activity: Arc::new(Activity::new(Instant::now())) };
        let handler = gateway.clone();
        let service = service_fn(move |request| {
            let (handler, connection) = (handler.clone(), connection.clone());
            async move { Ok::<_, Infallible>(handler.handle(request, &connection).await) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(status), "{answer}");
        assert!(!answer.contains("x-forwarded-for"), "there is nothing to tell an upstream: {answer}");
    }
    assert_eq!(gateway.context.metrics.no_client_ip.get(), 2);
    let logged = log.text();
    assert_eq!(logged.matches("ERROR").count(), 1, "{logged}");
    assert!(logged.contains("name it in client_ip.header"), "{logged}");
}

// R088: keys of 64 KiB filled the store. A long header is within bounds or refused, never a 500, and two
// that differ in their last byte are two keys.
#[tokio::test]
async fn long_headers_are_keys_up_to_the_cap_and_431_beyond() {
    let by_header = policy("by-header", "1/h", &["{header:x-user}"]);
    let gateway = Setup::new(vec![route(Upstream::Echo)]).limited(by_header).start().await;
    let with = async |value: String| gateway.ask(Request::get("/").header("x-user", value)).await;
    let long = "u".repeat(15_000);
    assert_eq!(with(format!("{long}1")).await.status, 200);
    assert_eq!(with(format!("{long}2")).await.status, 200);
    assert_eq!(with(format!("{long}1")).await.status, 429);
    with("u".repeat(17_000)).await.assert_problem(431);
}

#[tokio::test]
async fn a_cost_that_never_fits_is_denied_without_a_promise() {
    let cost = slidegate::policy::CostSource::Fixed(9);
    let costly = Policy::builder("costly").limits("5/h").cost(cost).build().unwrap();
    let gateway = Setup::new(vec![route(Upstream::Echo)]).limited(costly).start().await;
    let denied = gateway.get("/").await;
    denied.assert_problem(429);
    assert_eq!(denied.header("retry-after"), "");
}

#[tokio::test]
async fn a_denied_upload_is_answered_without_reading_it() {
    let setup = Setup::new(vec![route(Upstream::Echo)]).limited(policy("none", "0/h", &[]));
    let gateway = setup.start().await;
    let upload = Request::post("/").header("host", "a").body(full(vec![b'x'; 900_000])).unwrap();
    let denied = got(gateway.h1().await.send_request(upload).await.unwrap()).await;
    denied.assert_problem(429);
}

#[tokio::test]
async fn the_policies_of_other_routes_are_not_asked() {
    let mut setup = Setup::new(vec![exact("/free", Upstream::Echo), route(Upstream::Echo)]);
    setup.routes[1].policies = vec!["all".into()];
    setup.policies = vec![policy("all", "1/h", &[])];
    let gateway = setup.start().await;
    for _ in 0..3 {
        assert_eq!(gateway.get("/free").await.status, 200);
    }
    assert_eq!(gateway.get("/other").await.status, 200);
    assert_eq!(gateway.get("/other").await.status, 429);
}
