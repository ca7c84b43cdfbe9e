//! Ending: what was begun is finished, nothing new is begun, and nobody is waited for beyond the grace.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::support::{Behind, Setup, empty, full, got, read_to_end, read_until, route};
use crate::config::Upstream;

/// An upstream that answers when told, and says when it was asked.
async fn held() -> (Behind, Arc<Notify>, Arc<Notify>) {
    let (arrived, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (arrival, released) = (arrived.clone(), release.clone());
    let behind = Behind::answering(move |_| {
        let released = released.clone();
        arrival.notify_one();
        async move {
            released.notified().await;
            Response::new(full("finished"))
        }
    })
    .await;
    (behind, arrived, release)
}

// R174: a server without a graceful end cut what it was answering.
#[tokio::test]
async fn requests_in_flight_are_finished_and_the_port_is_closed_first() {
    for http2 in [false, true] {
        let (behind, arrived, release) = held().await;
        let mut gateway = Setup::new(vec![route(behind.upstream())]).start().await;
        let request = Request::get("http://a/").header("host", "a").body(empty()).unwrap();
        let (mut h1, mut h2) = (gateway.h1().await, gateway.h2().await);
        let asking = tokio::spawn(async move {
            let response =
                if http2 { h2.send_request(request).await } else { h1.send_request(request).await };
            got(response.unwrap()).await
        });
        arrived.notified().await;
        gateway.stop();
        while TcpStream::connect(gateway.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(!asking.is_finished());
        release.notify_one();
        let answer = asking.await.unwrap();
        assert_eq!(answer.body, "finished");
        if !http2 {
            assert_eq!(answer.header("connection"), "close");
        }
        gateway.ended().await;
    }
}

#[tokio::test(start_paused = true)]
async fn connections_without_a_request_are_closed_at_once() {
    let mut gateway = Setup::new(vec![route(Upstream::Echo)]).start().await;
    let mut used = TcpStream::connect(gateway.address).await.unwrap();
    used.write_all(b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    read_until(&mut used, "\r\n\r\n").await;
    let mut h2 = gateway.h2().await;
    let request = Request::head("http://a/").body(empty()).unwrap();
    got(h2.send_request(request).await.unwrap()).await;
    let mut unused = TcpStream::connect(gateway.address).await.unwrap();

    let start = tokio::time::Instant::now();
    gateway.stop();
    gateway.ended().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(read_to_end(&mut used).await, "");
    assert_eq!(read_to_end(&mut unused).await, "");
    let request = Request::head("http://a/").body(empty()).unwrap();
    assert!(h2.send_request(request).await.is_err());
}

// R173: a drain without a deadline ended with SIGKILL.
#[tokio::test(start_paused = true)]
async fn a_hung_request_is_cut_when_the_grace_is_over() {
    let (behind, arrived, _never) = held().await;
    let mut setup = Setup::new(vec![route(behind.upstream())]);
    setup.grace = Duration::from_secs(10);
    let mut gateway = setup.start().await;
    let mut hung = TcpStream::connect(gateway.address).await.unwrap();
    hung.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    arrived.notified().await;
    let start = tokio::time::Instant::now();
    gateway.stop();
    gateway.ended().await;
    assert_eq!(start.elapsed().as_secs(), 10);
    assert_eq!(read_to_end(&mut hung).await, "");
}
