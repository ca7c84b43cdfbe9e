#![cfg(test)]

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::*;
use crate::proxy::{FaultProxy, Way, Wire};
use crate::wait;

const ALLOWED: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const DENIED: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";

/// A server that allows the first `permits` requests, and denies the rest.
struct Upstream {
    address: String,
    _runtime: Runtime,
}

impl Upstream {
    fn start(permits: u64) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let used = Arc::new(AtomicU64::new(0));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, permits, Arc::clone(&used)));
            }
        });
        Self { address, _runtime: runtime }
    }
}

async fn answer(mut stream: TcpStream, permits: u64, used: Arc<AtomicU64>) {
    let mut read = Vec::new();
    while matches!(stream.read_buf(&mut read).await, Ok(1..)) {
        // One at a time from each client, so what ends with an empty line is a whole one.
        if read.ends_with(b"\r\n\r\n") {
            read.clear();
            let is_allowed = used.fetch_add(1, Ordering::SeqCst) < permits;
            if stream.write_all(if is_allowed { ALLOWED } else { DENIED }).await.is_err() {
                return;
            }
        }
    }
}

#[test]
fn each_request_is_sent_in_its_share_and_recorded_with_its_answer() {
    let (first, second) = (Upstream::start(100), Upstream::start(1000));
    let crowd = Crowd::offering(400, Duration::from_millis(500)).shares(&[3, 1]).connections(4);
    let outcome = crowd.run(&[first.address.clone(), second.address.clone()]);
    assert_eq!(outcome.records.len(), 200);
    let (of_first, of_second) = (outcome.of_instance(0), outcome.of_instance(1));
    assert_eq!((of_first.count(Answer::Allowed), of_first.count(Answer::Denied)), (100, 50));
    assert_eq!((of_second.count(Answer::Allowed), of_second.count(Answer::Denied)), (50, 0));
    assert_eq!(outcome.failed(), 0, "{}", outcome.summary());
    assert!(
        outcome.records.iter().all(|one| one.intended_us <= one.sent_us && one.sent_us <= one.answered_us)
    );
    assert_eq!(outcome.largest_window(Duration::from_secs(60)), 150);
}

#[test]
fn shares_that_do_not_divide_add_up_to_the_whole() {
    let crowd = Crowd::offering(1000, Duration::from_secs(1));
    let counts: Vec<usize> =
        crowd.shares(&[1, 1, 1]).gates(3).iter().map(|gate| gate.arrivals.len()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 1000);
    assert_eq!(counts, [333, 333, 334]);
}

#[test]
fn a_slow_server_is_not_spared_and_waiting_shows() {
    let upstream = Upstream::start(u64::MAX);
    let proxy = FaultProxy::start_with(&upstream.address, Wire::Opaque);
    proxy.delay(Way::Replies, Duration::from_millis(10));
    // 100 requests, due within 250 ms, at 10 ms each over one connection: the last waits for 750 ms.
    let outcome = Crowd::offering(400, Duration::from_millis(250)).connections(1).run(&[proxy.address()]);
    assert_eq!(outcome.count(Answer::Allowed), 100);
    let latencies = outcome.latencies_us();
    assert!(
        latencies.max() >= 740_000 && latencies.value_at_quantile(0.5) >= 370_000,
        "{}",
        outcome.summary()
    );
}

#[test]
fn what_breaks_is_recorded_and_the_next_request_connects_anew() {
    let upstream = Upstream::start(u64::MAX);
    let proxy = FaultProxy::start_with(&upstream.address, Wire::Opaque);
    let running = Crowd::offering(200, Duration::from_secs(3)).connections(2).start(&[proxy.address()]);
    wait::until("the first answers", wait::PATIENCE, || running.answered() >= 50);
    proxy.refuse();
    proxy.reset();
    let until = running.answered() + 50;
    wait::until("failures", wait::PATIENCE, || running.answered() >= until);
    proxy.pass();
    let outcome = running.finish();
    assert_eq!(outcome.records.len(), 600);
    assert!(outcome.count(Answer::Broken) >= 40, "{}", outcome.summary());
    let last = outcome.records.iter().max_by_key(|record| record.sent_us).unwrap();
    assert_eq!(last.answer, Answer::Allowed);
}

#[test]
fn a_crowd_that_may_go_elsewhere_is_answered_by_who_is_left_and_comes_back() {
    let (first, second) = (Upstream::start(u64::MAX), Upstream::start(u64::MAX));
    let proxy = FaultProxy::start_with(&first.address, Wire::Opaque);
    let addresses = [proxy.address(), second.address.clone()];
    let crowd = Crowd::offering(400, Duration::from_secs(2)).connections(2).elsewhere();
    let running = crowd.start(&addresses);
    wait::until("the first answers", wait::PATIENCE, || running.answered() >= 100);
    proxy.refuse();
    proxy.reset();
    let until = running.answered() + 100;
    wait::until("answers of the other", wait::PATIENCE, || running.answered() >= until);
    let before = proxy.counts().connections;
    proxy.pass();
    let outcome = running.finish();
    assert_eq!((outcome.records.len(), outcome.failed()), (800, 0), "{}", outcome.summary());
    assert!(outcome.records.iter().all(|record| record.tries <= 3), "one for each instance, and one more");
    assert_eq!(before, 2, "whoever has gone elsewhere stays there as long as it is served");
}
