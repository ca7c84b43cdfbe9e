//! What happens between link and server: connections that break, stall, swallow or fall behind.

use super::*;
use slidegate_testbed::proxy::{Fate, FaultProxy, Way};
use slidegate_testbed::redis::Server;

fn url(proxy: &FaultProxy) -> String {
    format!("redis://{}", proxy.address())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_connection_is_replaced() {
    let server = Server::start();
    let proxy = FaultProxy::start(&server.address());
    let link = connected(&url(&proxy)).await;
    count(&link, "sg:a").await.expect("counts");
    proxy.reset();
    recovers(&link, "sg:a").await;
    assert_eq!(link.figures().reconnects, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_ends_half_way_is_lost_and_was_executed() {
    let server = Server::start();
    let proxy = FaultProxy::start(&server.address());
    let link = connected(&url(&proxy)).await;
    count(&link, "sg:a").await.expect("counts");
    proxy.spoil_replies(1, Fate::CutAfter(1));
    let failed = count(&link, "sg:a").await;
    assert_eq!(outcome(&failed), "lost disconnected");
    assert_eq!(server.ask::<i64>(&["GET", "sg:a"]), 2, "it was executed");
    proxy.pass();
    recovers(&link, "sg:a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_is_lost_with_its_connection_is_lost_and_was_executed() {
    let server = Server::start();
    let proxy = FaultProxy::start(&server.address());
    let link = connected(&url(&proxy)).await;
    count(&link, "sg:a").await.expect("counts");
    proxy.spoil_replies(1, Fate::VanishThenReset);
    assert_eq!(outcome(&count(&link, "sg:a").await), "lost disconnected");
    assert_eq!(server.ask::<i64>(&["GET", "sg:a"]), 2, "it was executed");
    proxy.pass();
    recovers(&link, "sg:a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_never_comes_is_lost_at_the_deadline_and_the_stalled_connection_is_left() {
    let server = Server::start();
    let proxy = FaultProxy::start(&server.address());
    let link = connected(&url(&proxy)).await;
    count(&link, "sg:a").await.expect("counts");
    proxy.stall(Way::Replies);
    let start = Instant::now();
    let failed = count_within(&link, "sg:a", SHORT).await;
    assert_eq!(outcome(&failed), "lost timeout");
    assert!(start.elapsed() >= SHORT);
    // The server is well and takes new connections: nobody has to thaw the old one.
    recovers(&link, "sg:a").await;
    assert_eq!(link.figures().reconnects, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_connection_without_calls_is_left_by_the_watchdog() {
    let server = Server::start();
    let proxy = FaultProxy::start(&server.address());
    let link = connected(&url(&proxy)).await;
    proxy.stall(Way::Both);
    let replaced = || async { (link.figures().reconnects == 1).then_some(()) };
    eventually("another connection", RECOVERY, replaced).await;
    assert_eq!(link.figures().calls, 0);
    count(&link, "sg:a").await.expect("counts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_black_hole_calls_fail_at_once_after_the_first_few() {
    let server = Server::start();
    let proxy = FaultProxy::start(&server.address());
    let link = connected(&url(&proxy)).await;
    proxy.black_hole(Way::Both);
    comes_to(&link, "sg:a", "unavailable disconnected").await;
    let before = link.figures();
    for _ in 0..200 {
        let failed = count_within(&link, "sg:a", SHORT).await;
        assert_eq!(outcome(&failed), "unavailable disconnected");
    }
    assert_eq!(link.figures().calls, before.calls, "none of them was sent");
    // However often it is tried meanwhile: the supervisor, the driver of the connection that it tries, and
    // who probes.
    let tried = proxy.counts().connections;
    let more = || async { (proxy.counts().connections >= tried + 3).then_some(()) };
    eventually("it is tried again", PATIENCE, more).await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert!(tasks <= 3, "{tasks} tasks");
    proxy.pass();
    recovers(&link, "sg:a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_costs_each_call_its_deadline_and_then_nothing() {
    let server = Server::start();
    let link = connected(&server.url()).await;
    count(&link, "sg:a").await.expect("counts");
    server.stop();
    assert_eq!(outcome(&count_within(&link, "sg:a", SHORT).await), "lost timeout");
    comes_to(&link, "sg:a", "unavailable disconnected").await;
    server.cont();
    recovers(&link, "sg:a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server_is_back_when_its_pause_ends() {
    let server = Server::start();
    let link = connected(&server.url()).await;
    server.ask::<()>(&["CLIENT", "PAUSE", "700", "ALL"]);
    assert_eq!(outcome(&count_within(&link, "sg:a", SHORT).await), "lost timeout");
    comes_to(&link, "sg:a", "unavailable disconnected").await;
    comes_to(&link, "sg:a", "done").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_answers_without_being_redis_is_a_fault_of_the_protocol() {
    // A server of another kind at the port, which finds our greeting as odd as we find its answer.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let server = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 1024];
                while stream.read(&mut request).await.is_ok_and(|len| len > 0) {
                    let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
                }
            });
        }
    });
    let link = link(&format!("redis://127.0.0.1:{port}"));
    comes_to(&link, "sg:a", "unavailable protocol").await;
    server.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_calls_than_may_wait_are_refused_at_once() {
    let server = Server::start();
    let proxy = FaultProxy::start(&server.address());
    let link = std::sync::Arc::new(connected(&url(&proxy)).await);
    proxy.stall(Way::Requests);
    let calls: Vec<_> = (0..4200)
        .map(|_| {
            let link = link.clone();
            tokio::spawn(
                async move { outcome(&count_within(&link, "sg:a", Duration::from_millis(500)).await) },
            )
        })
        .collect();
    let mut refused = 0;
    for call in calls {
        refused += u32::from(call.await.expect("no panic") == "unavailable queue_full");
    }
    // The connection may be left for its silence before the last of them is sent; the queue is full before.
    assert!(refused > 0, "{:?}", link.figures());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_that_has_passed_sends_nothing() {
    let server = Server::start();
    let link = connected(&server.url()).await;
    let failed = count_within(&link, "sg:a", Duration::ZERO).await;
    assert_eq!(outcome(&failed), "unavailable timeout");
    assert_eq!(link.figures().calls, 0);
    assert_eq!(server.ask::<i64>(&["EXISTS", "sg:a"]), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_calls_take_one_connection_and_are_counted() {
    let server = Server::start();
    let proxy = FaultProxy::start(&server.address());
    let link = std::sync::Arc::new(connected(&url(&proxy)).await);
    let callers: Vec<_> = (0..100)
        .map(|caller| {
            let link = link.clone();
            tokio::spawn(async move {
                for _ in 0..100 {
                    count(&link, &format!("sg:{caller}")).await.expect("counts");
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
    let (figures, seen) = (link.figures(), proxy.counts());
    assert_eq!(seen.connections, 1);
    // Of the first calls, some went out before the script was known.
    assert!((10_000..=10_100).contains(&figures.calls), "{figures:?}");
    // The proxy has also seen what supervises the connection.
    assert!(figures.bytes_out <= seen.request_bytes && figures.bytes_out * 100 >= seen.request_bytes * 95);
    assert!(figures.bytes_in <= seen.reply_bytes, "{figures:?} {seen:?}");
}
