//! That a request reaches its upstream as it came, and the answer its client, but for what is meant for one
//! hop only.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Channel};
use hyper::body::Incoming;
use slidegate::http::client_ip::{ClientIpRule, Trust};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::support::{Behind, Setup, TestBody, empty, full, got, read_until, route};
use crate::config::Upstream;
use crate::serving::BoxError;

/// A body whose frames are sent one by one.
fn piecewise() -> (http_body_util::channel::Sender<Bytes, BoxError>, TestBody) {
    let (sender, body) = Channel::new(1);
    (sender, body.boxed())
}

async fn next_data(body: &mut Incoming) -> Bytes {
    body.frame().await.unwrap().unwrap().into_data().unwrap()
}

fn trailers(name: &'static str, value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
}

#[tokio::test]
async fn path_and_query_are_forwarded_byte_for_byte() {
    let behind = Behind::mirror().await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    let targets = ["/", "//a/./b/../%6c%2F/?x=%zz&y=1+2", "/a/?", "/é?ü", "/;v=1", "/?/../"];
    for target in targets {
        let answer =
            gateway.raw(&format!("GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{target}: {answer}");
    }
    let seen: Vec<_> = behind.requests().into_iter().map(|(_, target, _)| target).collect();
    assert_eq!(seen, targets);
}

#[tokio::test]
async fn methods_statuses_and_bodies_go_through() {
    let behind = Behind::answering(|request| async move {
        let status = request.uri().path()[1..].parse::<u16>().unwrap();
        Response::builder().status(status).body(full("answer")).unwrap()
    })
    .await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    for status in [200, 201, 302, 400, 404, 429, 500, 503] {
        let got = gateway.get(&format!("/{status}")).await;
        assert_eq!((got.status.as_u16(), got.body.as_str()), (status, "answer"));
    }
    for status in [204, 304] {
        let got = gateway.get(&format!("/{status}")).await;
        assert_eq!((got.status.as_u16(), got.body.as_str()), (status, ""));
    }
    let odd = Method::from_bytes(b"PROPFIND").unwrap();
    gateway.ask(Request::builder().method(odd.clone()).uri("/207")).await;
    assert_eq!(behind.requests().last().unwrap().0, odd);
}

#[tokio::test]
async fn the_answer_to_head_keeps_the_length_of_what_it_leaves_out() {
    let behind = Behind::answering(|_| async { Response::new(full("twelve bytes")) }).await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    let h1 = gateway.ask(Request::head("/")).await;
    assert_eq!((h1.header("content-length"), h1.body.as_str()), ("12", ""));
    let request = Request::head("http://a/").body(empty()).unwrap();
    let h2 = got(gateway.h2().await.send_request(request).await.unwrap()).await;
    assert_eq!((h2.header("content-length"), h2.body.as_str()), ("12", ""));
}

#[tokio::test]
async fn fields_of_one_hop_end_here_in_both_directions() {
    let behind = Behind::answering(|_| async {
        Response::builder()
            .header("connection", "x-inner, close")
            .header("x-inner", "1")
            .header("keep-alive", "timeout=5")
            .header("proxy-authenticate", "Basic")
            .header("upgrade", "h2c")
            .header("x-kept", "1")
            .body(full("answer"))
            .unwrap()
    })
    .await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    let request = Request::get("/")
        .header("connection", "x-outer, upgrade, http2-settings")
        .header("x-outer", "1")
        .header("upgrade", "h2c")
        .header("http2-settings", "AAMAAABkAAQAAP__")
        .header("te", "trailers, deflate")
        .header("x-kept", "1");
    let got = gateway.ask(request).await;
    assert_eq!(got.body, "answer", "an offered upgrade is ignored");
    for gone in ["x-inner", "keep-alive", "proxy-authenticate", "upgrade", "via"] {
        assert!(!got.headers.contains_key(gone), "{gone} went to the client");
    }
    assert_eq!(got.header("x-kept"), "1");
    let seen = behind.last_headers();
    for gone in ["x-outer", "upgrade", "http2-settings"] {
        assert!(!seen.contains_key(gone), "{gone} went to the upstream");
    }
    assert_eq!(seen["te"], "trailers");
    assert_eq!(seen["x-kept"], "1");
}

#[tokio::test]
async fn an_upstream_is_told_who_asked() {
    let behind = Behind::mirror().await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    let request = Request::get("/").header("x-forwarded-for", "1.1.1.1").header("forwarded", "for=1.1.1.1");
    gateway.ask(request).await;
    let seen = behind.last_headers();
    assert_eq!(seen["host"], "gateway.test");
    assert_eq!(seen["x-forwarded-for"], "127.0.0.1");
    assert_eq!(seen["x-forwarded-host"], "gateway.test");
    assert_eq!(seen["x-forwarded-proto"], "http");
    assert_eq!(seen["via"], "1.1 slidegate");
    assert!(!seen.contains_key("forwarded"));

    let mut setup = Setup::new(vec![route(behind.upstream())]);
    setup.client_ip = ClientIpRule {
        trust: Trust::Proxies(vec!["127.0.0.1/32".parse().unwrap()]),
        ..ClientIpRule::default()
    };
    let request =
        Request::get("/").header("x-forwarded-for", "203.0.113.7").header("forwarded", "for=203.0.113.7");
    setup.start().await.ask(request).await;
    let seen = behind.last_headers();
    assert_eq!(seen["x-forwarded-for"], "203.0.113.7, 127.0.0.1");
    assert_eq!(seen["forwarded"], "for=203.0.113.7, for=127.0.0.1");
}

#[tokio::test]
async fn a_request_of_http_2_becomes_one_of_http_1() {
    let behind = Behind::mirror().await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    let request = Request::post("http://shop.example:8443/a?b")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(full("body"))
        .unwrap();
    let answer = got(gateway.h2().await.send_request(request).await.unwrap()).await;
    assert_eq!(answer.body, "body");
    let (method, target, headers) = behind.requests().pop().unwrap();
    assert_eq!((method, target.as_str()), (Method::POST, "/a?b"));
    assert_eq!(headers["host"], "shop.example:8443");
    assert_eq!(headers["via"], "2 slidegate");
    assert_eq!(headers.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2"]);
}

// F24: each check, or each request, had a connection of its own.
#[tokio::test]
async fn connections_to_an_upstream_are_kept() {
    let behind = Behind::mirror().await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    for n in 0..200 {
        let request = Request::post("/").header("host", "a").body(full(format!("body {n}"))).unwrap();
        let answer = got(gateway.h1().await.send_request(request).await.unwrap()).await;
        assert_eq!(answer.body, format!("body {n}"));
    }
    assert_eq!(behind.requests().len(), 200);
    assert_eq!(behind.connections(), 1);
}

#[tokio::test]
async fn requests_of_one_http_2_connection_do_not_wait_for_each_other() {
    let slow = Arc::new(Notify::new());
    let release = slow.clone();
    let behind = Behind::answering(move |request| {
        let slow = slow.clone();
        async move {
            if request.uri().path() == "/slow" {
                slow.notified().await;
            }
            Response::new(full(request.uri().path().to_owned()))
        }
    })
    .await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    let client = gateway.h2().await;
    let ask = |path: &str| {
        let request = Request::get(format!("http://a{path}")).body(empty()).unwrap();
        let answering = client.clone().send_request(request);
        async { got(answering.await.unwrap()).await.body }
    };
    let waiting = tokio::spawn(ask("/slow"));
    let mut others = JoinSet::new();
    for n in 0..50 {
        others.spawn(ask(&format!("/{n}")));
    }
    assert_eq!(others.join_all().await.len(), 50);
    assert!(!waiting.is_finished());
    release.notify_one();
    assert_eq!(waiting.await.unwrap(), "/slow");
}

#[tokio::test]
async fn an_answer_streams_while_it_is_made() {
    let (sender, body) = piecewise();
    let body = std::sync::Mutex::new(Some(body));
    let behind = Behind::answering(move |_| {
        let body = body.lock().unwrap().take().unwrap();
        async { Response::new(body) }
    })
    .await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    let request = Request::get("/").header("host", "a").body(empty()).unwrap();
    let mut sender = sender;
    sender.send_data("first".into()).await.unwrap();
    let mut body = gateway.h1().await.send_request(request).await.unwrap().into_body();
    assert_eq!(next_data(&mut body).await, "first", "before the last was sent");
    sender.send_data("last".into()).await.unwrap();
    drop(sender);
    assert_eq!(next_data(&mut body).await, "last");
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn a_request_streams_while_it_is_sent() {
    // The upstream sends back each piece as it comes.
    let behind =
        Behind::answering(|request| async { Response::new(request.into_body().map_err(Into::into).boxed()) })
            .await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    for http2 in [false, true] {
        let (mut sender, body) = piecewise();
        let request = Request::post("http://a/").header("host", "a").body(body).unwrap();
        sender.send_data("first".into()).await.unwrap();
        let response = if http2 {
            gateway.h2().await.send_request(request).await.unwrap()
        } else {
            gateway.h1().await.send_request(request).await.unwrap()
        };
        let mut body = response.into_body();
        assert_eq!(next_data(&mut body).await, "first", "before the last was sent");
        sender.send_data("last".into()).await.unwrap();
        drop(sender);
        assert_eq!(next_data(&mut body).await, "last");
    }
}

#[tokio::test]
async fn trailers_go_through_in_both_directions() {
    let behind = Behind::answering(|request| async {
        let body = request.into_body().collect().await.unwrap();
        let seen = body.trailers().map(|trailers| trailers["x-sum"].clone()).unwrap();
        let (mut sender, body) = piecewise();
        tokio::spawn(async move {
            sender.send_data("answer".into()).await.unwrap();
            sender.send_trailers(trailers("x-end", "done")).await.unwrap();
        });
        Response::builder().header("trailer", "x-end").header("x-seen", seen).body(body).unwrap()
    })
    .await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    for http2 in [false, true] {
        let (mut sender, body) = piecewise();
        let request = Request::post("http://a/")
            .header("host", "a")
            .header("te", "trailers")
            .header("trailer", "x-sum")
            .body(body)
            .unwrap();
        tokio::spawn(async move {
            sender.send_data("request".into()).await.unwrap();
            sender.send_trailers(trailers("x-sum", "42")).await.unwrap();
        });
        let response = if http2 {
            gateway.h2().await.send_request(request).await.unwrap()
        } else {
            gateway.h1().await.send_request(request).await.unwrap()
        };
        let answer = got(response).await;
        assert_eq!(answer.header("x-seen"), "42", "http2: {http2}");
        assert_eq!(answer.trailers.unwrap()["x-end"], "done", "http2: {http2}");
    }
}

#[tokio::test]
async fn the_body_of_a_get_is_not_lost() {
    let behind = Behind::mirror().await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    let chunked = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";
    assert!(gateway.raw(chunked).await.ends_with("body"));
    let sized = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbody";
    assert!(gateway.raw(sized).await.ends_with("body"));
}

#[tokio::test]
async fn a_client_that_waits_to_be_told_to_go_on_is_told() {
    let behind = Behind::mirror().await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(read_until(&mut stream, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"body").await.unwrap();
    assert!(read_until(&mut stream, "body").await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(!behind.last_headers().contains_key("expect"));
}

#[tokio::test]
async fn the_echo_shows_what_an_upstream_would_have_got() {
    let gateway = Setup::new(vec![route(Upstream::Echo)]).start().await;
    let request = Request::post("/a//b?c=d")
        .header("host", "shop.example")
        .header("authorization", "Bearer s3cret")
        .header("cookie", "session=s3cret")
        .header("x-twice", "1")
        .header("x-twice", "2")
        .body(full("12345"))
        .unwrap();
    let answer = got(gateway.h1().await.send_request(request).await.unwrap()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "application/json");
    let expected = r#"{
  "method": "POST",
  "path": "/a//b",
  "query": "c=d",
  "headers": {
    "authorization": "…",
    "content-length": "5",
    "cookie": "…",
    "host": "shop.example",
    "via": "1.1 slidegate",
    "x-forwarded-for": "127.0.0.1",
    "x-forwarded-host": "shop.example",
    "x-forwarded-proto": "http",
    "x-twice": "1, 2"
  },
  "body_bytes": 5
}
"#;
    assert_eq!(answer.body, expected);
    assert_eq!(gateway.ask(Request::head("/")).await.body, "");
}
