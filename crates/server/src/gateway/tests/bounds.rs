//! What a client may take, and what it is told when it takes more.

use std::time::Duration;

use http::Request;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::support::{
    Behind, MAX_BODY_BYTES, MAX_HEADER_BYTES, Setup, empty, full, got, pass, read_to_end, read_until, route,
};
use crate::config::{Route, Upstream};
use crate::serving::Bounds;

async fn mirrored() -> (Behind, super::support::Running) {
    let behind = Behind::mirror().await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    (behind, gateway)
}

fn large() -> Vec<u8> {
    vec![b'x'; usize::try_from(MAX_BODY_BYTES).unwrap() + 1]
}

// F6: a door without bounds reads whatever is sent. Here the length alone is enough.
#[tokio::test]
async fn a_body_that_says_it_is_too_large_is_refused_before_it_comes() {
    let (behind, gateway) = mirrored().await;
    let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", 1u64 << 30);
    let answer = gateway.raw(&head).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(answer.contains("1048576 bytes"), "it says what would fit: {answer}");

    let waiting = format!(
        "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        1u64 << 30
    );
    let answer = gateway.raw(&waiting).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "it is not told to go on: {answer}");

    let request =
        Request::post("http://a/").header("content-length", MAX_BODY_BYTES + 1).body(full(large())).unwrap();
    got(gateway.h2().await.send_request(request).await.unwrap()).await.assert_problem(413);
    assert_eq!(behind.requests().len(), 0);
}

// Closing a socket with unread bytes resets it, and the reset overtakes the answer.
#[tokio::test]
async fn a_client_that_goes_on_sending_still_gets_the_answer() {
    let (_behind, gateway) = mirrored().await;
    for _ in 0..20 {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", 1u64 << 30);
        stream.write_all(head.as_bytes()).await.unwrap();
        let head = read_until(&mut stream, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 413"), "{head}");
        stream.write_all(&[b'x'; 100_000]).await.unwrap();
        stream.write_all(&[b'x'; 100_000]).await.unwrap();
        assert!(read_to_end(&mut stream).await.contains("1048576 bytes"));
    }
}

#[tokio::test]
async fn a_body_without_a_length_is_cut_where_it_gets_too_large() {
    let (_behind, gateway) = mirrored().await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 64 * 1024, "x".repeat(64 * 1024));
    for _ in 0..17 {
        stream.write_all(chunk.as_bytes()).await.unwrap();
    }
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("connection: close"), "{answer}");

    let mut h2 = gateway.h2().await;
    let request = Request::post("http://a/").body(unsized_body(large())).unwrap();
    got(h2.send_request(request).await.unwrap()).await.assert_problem(413);
    let next = Request::get("http://a/").body(empty()).unwrap();
    assert_eq!(got(h2.send_request(next).await.unwrap()).await.status, 200, "only the stream was cut");
}

/// A body whose length is not known beforehand.
fn unsized_body(bytes: Vec<u8>) -> super::support::TestBody {
    use http_body_util::BodyExt;
    let (mut sender, body) = http_body_util::Channel::new(1);
    tokio::spawn(async move {
        for piece in bytes.chunks(16 * 1024) {
            if sender.send_data(bytes::Bytes::copy_from_slice(piece)).await.is_err() {
                return;
            }
        }
    });
    body.boxed()
}

#[tokio::test]
async fn a_body_of_just_the_allowed_size_passes() {
    let (_behind, gateway) = mirrored().await;
    let mut just = large();
    just.pop();
    for body in [full(just.clone()), unsized_body(just.clone())] {
        let request = Request::post("/").header("host", "a").body(body).unwrap();
        let answer = got(gateway.h1().await.send_request(request).await.unwrap()).await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, just.len()));
    }
}

#[tokio::test]
async fn the_echo_has_the_same_cap() {
    let gateway = Setup::new(vec![route(Upstream::Echo)]).start().await;
    let request = Request::post("/").header("host", "a").body(unsized_body(large())).unwrap();
    got(gateway.h1().await.send_request(request).await.unwrap()).await.assert_problem(413);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_answered_431() {
    let (behind, gateway) = mirrored().await;
    let sized = |bytes: usize| Request::get("/").header("x-long", "x".repeat(bytes));
    assert_eq!(gateway.ask(sized(MAX_HEADER_BYTES - 1000)).await.status, 200);
    // A little too large is refused in words, far too large by the parser.
    gateway.ask(sized(MAX_HEADER_BYTES)).await.assert_problem(431);
    let far = format!("GET / HTTP/1.1\r\nhost: a\r\nx-long: {}\r\n\r\n", "x".repeat(200_000));
    let answer = gateway.raw(&far).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let many = "x: 1\r\n".repeat(200);
    let answer = gateway.raw(&format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");

    let mut h2 = gateway.h2().await;
    let request =
        |bytes: usize| Request::get("http://a/").header("x-long", "x".repeat(bytes)).body(empty()).unwrap();
    got(h2.send_request(request(MAX_HEADER_BYTES)).await.unwrap()).await.assert_problem(431);
    assert_eq!(h2.send_request(request(MAX_HEADER_BYTES + 10_000)).await.unwrap().status(), 431);
    assert_eq!(got(h2.send_request(request(10)).await.unwrap()).await.status, 200);
    assert_eq!(behind.requests().len(), 2);
}

#[tokio::test]
async fn a_long_target_counts_as_part_of_the_head() {
    let (_behind, gateway) = mirrored().await;
    gateway.get(&format!("/{}", "x".repeat(MAX_HEADER_BYTES))).await.assert_problem(431);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_finishes_its_head_is_closed() {
    let mut setup = Setup::new(vec![route(Upstream::Echo)]);
    setup.bounds = Bounds::new(MAX_HEADER_BYTES);
    let gateway = setup.start().await;
    for beginning in ["", "G", "PRI * HT", "GET / HTTP/1.1\r\nx-slow: ", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        let start = tokio::time::Instant::now();
        read_to_end(&mut stream).await;
        let took = start.elapsed();
        assert!(took < 2 * Bounds::new(0).head_time + Duration::from_secs(2), "{beginning:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_drips_its_head_is_closed_all_the_same() {
    let gateway = Setup::new(vec![route(Upstream::Echo)]).start().await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let mut drops = 0;
    while stream.write_all(b"x: 1\r\n").await.is_ok() {
        pass(5).await;
        drops += 1;
        assert!(drops < 20, "it is still listened to after {drops} lines");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_kept_for_a_while_after_its_request() {
    let gateway = Setup::new(vec![route(Upstream::Echo)]).start().await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    for _ in 0..3 {
        stream.write_all(b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        read_until(&mut stream, "\r\n\r\n").await;
        pass(70).await;
    }
    let start = tokio::time::Instant::now();
    assert_eq!(read_to_end(&mut stream).await, "");
    assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_its_time_is_not_idle() {
    let behind = Behind::answering(|_| async {
        pass(500).await;
        http::Response::new(full("done"))
    })
    .await;
    let patient = Route { timeout: Duration::from_secs(1000), ..route(behind.upstream()) };
    let gateway = Setup::new(vec![patient]).start().await;
    assert_eq!(gateway.get("/").await.body, "done");
}
