//! Upstreams and clients that fail, each answered as what it is and blamed on whom it concerns.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Channel};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};

use super::support::{
    Behind, Setup, behind_raw, empty, full, got, pass, read_to_end, read_until, route, upstream,
};
use crate::config::{Route, Upstream};

const HEAD_ENDS: &str = "\r\n\r\n";

fn impatient(upstream: Upstream) -> Route {
    Route { timeout: Duration::from_secs(2), ..route(upstream) }
}

#[tokio::test]
async fn an_upstream_that_refuses_connections_is_502() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let gateway = Setup::new(vec![route(upstream(closed))]).start().await;
    let got = gateway.get("/").await;
    got.assert_problem(502);
    assert!(!got.body.contains("127.0.0.1"), "where the upstream is does not concern the client");
}

#[tokio::test]
async fn an_upstream_that_does_not_speak_http_is_502() {
    for answer in
        ["", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", "HTTP/1.1 9 X\r\n\r\n"]
    {
        let gateway = Setup::new(vec![route(behind_raw(HEAD_ENDS, answer).await)]).start().await;
        gateway.get("/").await.assert_problem(502);
    }
}

#[tokio::test]
async fn an_upstream_that_switches_protocols_unasked_is_502() {
    let answer = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    let gateway = Setup::new(vec![route(behind_raw(HEAD_ENDS, answer).await)]).start().await;
    gateway.get("/").await.assert_problem(502);
}

#[tokio::test]
async fn what_comes_before_an_answer_is_passed_over() {
    let answer =
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody";
    let gateway = Setup::new(vec![route(behind_raw(HEAD_ENDS, answer).await)]).start().await;
    assert_eq!(gateway.get("/").await.body, "body");
}

#[tokio::test]
async fn an_upstream_that_ends_its_body_by_closing_is_understood() {
    let gateway =
        Setup::new(vec![route(behind_raw(HEAD_ENDS, "HTTP/1.1 200 OK\r\n\r\nbody").await)]).start().await;
    assert_eq!(gateway.get("/").await.body, "body");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_passed_off_as_whole() {
    let broken = [
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n",
    ];
    for answer in broken {
        let gateway = Setup::new(vec![route(behind_raw(HEAD_ENDS, answer).await)]).start().await;
        let request = Request::get("/").header("host", "a").body(empty()).unwrap();
        let response = gateway.h1().await.send_request(request).await.unwrap();
        assert!(response.into_body().collect().await.is_err(), "{answer}");
        let gateway = Setup::new(vec![route(behind_raw(HEAD_ENDS, answer).await)]).start().await;
        let request = Request::get("http://a/").body(empty()).unwrap();
        let response = gateway.h2().await.send_request(request).await.unwrap();
        assert!(response.into_body().collect().await.is_err(), "{answer}");
    }
}

#[tokio::test]
async fn an_early_answer_reaches_the_client_although_its_body_was_not_taken() {
    let early = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno";
    let gateway = Setup::new(vec![route(behind_raw(HEAD_ENDS, early).await)]).start().await;
    let (mut sender, body) = Channel::new(1);
    let request = Request::post("/").header("host", "a").body(body.boxed()).unwrap();
    sender.send_data("the beginning".into()).await.unwrap();
    let answer = got(gateway.h1().await.send_request(request).await.unwrap()).await;
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (401, "no"));
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_does_not_answer_in_time_is_504() {
    let behind = Behind::answering(|_| std::future::pending()).await;
    let gateway = Setup::new(vec![impatient(behind.upstream())]).start().await;
    gateway.get("/").await.assert_problem(504);
    let upload = Request::post("/").header("host", "a").body(full("all of it")).unwrap();
    got(gateway.h1().await.send_request(upload).await.unwrap()).await.assert_problem(504);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_send_its_body_in_time_is_408() {
    let behind = Behind::mirror().await;
    for upstream in [behind.upstream(), Upstream::Echo] {
        let gateway = Setup::new(vec![impatient(upstream)]).start().await;
        let slow = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nbegin";
        let answer = gateway.raw(slow).await;
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("connection: close"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_route_is_for_the_head_of_the_answer_not_its_body() {
    let behind = Behind::answering(|_| async {
        let (mut sender, body) = Channel::<bytes::Bytes, crate::serving::BoxError>::new(1);
        tokio::spawn(async move {
            pass(100).await;
            sender.send_data("late".into()).await.unwrap();
        });
        Response::new(body.boxed())
    })
    .await;
    let gateway = Setup::new(vec![impatient(behind.upstream())]).start().await;
    assert_eq!(gateway.get("/").await.body, "late");
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_along() {
    struct TellWhenDropped(Option<oneshot::Sender<()>>);
    impl Drop for TellWhenDropped {
        fn drop(&mut self) {
            self.0.take().map(|tell| tell.send(()));
        }
    }
    for http2 in [false, true] {
        let arrived = Arc::new(Notify::new());
        let (tell, dropped) = oneshot::channel();
        let tell = std::sync::Mutex::new(Some(tell));
        let notify = arrived.clone();
        let behind = Behind::answering(move |_| {
            let guard = TellWhenDropped(tell.lock().unwrap().take());
            notify.notify_one();
            async move {
                let _guard = guard;
                std::future::pending().await
            }
        })
        .await;
        let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
        let request = Request::get("http://a/").header("host", "a").body(empty()).unwrap();
        if http2 {
            let mut client = gateway.h2().await;
            let asking = tokio::spawn(async move { client.send_request(request).await });
            arrived.notified().await;
            asking.abort();
        } else {
            let mut stream = TcpStream::connect(gateway.address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            arrived.notified().await;
            drop(stream);
        }
        dropped.await.unwrap();
    }
}

#[tokio::test]
async fn a_client_that_breaks_off_its_body_is_not_the_upstreams_fault() {
    let behind = Behind::mirror().await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let broken =
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\nnot a length\r\n";
    stream.write_all(broken).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}

// An upstream closes kept connections when it likes. A request that finds its connection closed goes over
// another one.
#[tokio::test]
async fn a_kept_connection_that_was_closed_is_replaced() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (closed, mut when_closed) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_until(&mut stream, HEAD_ENDS).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            drop(stream);
            closed.send(()).await.unwrap();
        }
    });
    let gateway = Setup::new(vec![route(upstream(address))]).start().await;
    for _ in 0..20 {
        assert_eq!(gateway.get("/").await.body, "ok");
        when_closed.recv().await.unwrap();
    }
}
