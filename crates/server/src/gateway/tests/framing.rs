//! Messages whose end two readers could see in different places, and other bytes that are not quite HTTP:
//! what hyper makes of them, pinned, and what the gateway does. Nothing here may reach an upstream in a form
//! that it could read as another request.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::support::{Behind, Running, Setup, read_to_end, route};

async fn world() -> (Behind, Running) {
    let behind = Behind::mirror().await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    (behind, gateway)
}

/// Sends a request with these lines, and more bytes behind it.
async fn ask(gateway: &Running, lines: &str, rest: &str) -> String {
    gateway.raw(&format!("POST / HTTP/1.1\r\nhost: a\r\n{lines}\r\n\r\n{rest}")).await
}

#[tokio::test]
async fn messages_that_contradict_themselves_are_refused_and_the_connection_closed() {
    let (behind, gateway) = world().await;
    let refused = [
        "content-length: 5\r\ncontent-length: 6",
        "content-length: 5, 6",
        "content-length: +5",
        "content-length: -1",
        "content-length: 0x5",
        "content-length: 5 5",
        "content-length:",
        "content-length: 99999999999999999999",
        "transfer-encoding: chunked, gzip",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "transfer-encoding : chunked",
        "x-folded: a\r\n b",
        "x bad: a",
        "x-cr: a\rb",
        ": a",
    ];
    for lines in refused {
        // A request behind it must not be answered: it may be the body.
        let answer = ask(&gateway, lines, "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{lines:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{lines:?}: {answer}");
    }
    assert_eq!(behind.requests().len(), 0);
}

#[tokio::test]
async fn a_coding_that_would_go_on_undeclared_is_refused() {
    let (behind, gateway) = world().await;
    let answer = ask(&gateway, "transfer-encoding: gzip, chunked\r\nconnection: close", "0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 501"), "{answer}");
    assert_eq!(behind.requests().len(), 0);
}

// RFC 9112 section 6.3: the coding counts, the length is dropped, and the connection ends with the answer.
#[tokio::test]
async fn of_a_length_beside_a_coding_the_coding_counts_and_the_connection_ends() {
    for lines in
        ["content-length: 3\r\ntransfer-encoding: chunked", "transfer-encoding: chunked\r\ncontent-length: 3"]
    {
        let (behind, gateway) = world().await;
        let rest = "4\r\nbody\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
        let answer = ask(&gateway, lines, rest).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("body"), "{answer}");
        let seen = behind.last_headers();
        assert!(!seen.contains_key("content-length") && seen["transfer-encoding"] == "chunked");
        assert_eq!(behind.requests().len(), 1);
    }
}

#[tokio::test]
async fn the_same_length_twice_is_one_length() {
    let (behind, gateway) = world().await;
    let answer = ask(&gateway, "content-length: 4\r\ncontent-length: 4\r\nconnection: close", "body").await;
    assert!(answer.ends_with("body"), "{answer}");
    assert_eq!(behind.last_headers().get_all("content-length").iter().count(), 1);
}

#[tokio::test]
async fn chunks_are_read_strictly_and_written_anew() {
    let (behind, gateway) = world().await;
    let chunked = "transfer-encoding: chunked\r\nconnection: close";
    let extended = "4;name=\"value\"\r\nbody\r\n0\r\n\r\n";
    assert!(ask(&gateway, chunked, extended).await.contains("body"));
    for broken in
        ["4\r\nbodyX\r\n0\r\n\r\n", "x\r\nbody\r\n0\r\n\r\n", "-4\r\nbody\r\n", "fffffffffffffffff\r\nbody"]
    {
        let answer = ask(&gateway, chunked, broken).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{broken:?}: {answer}");
        assert!(answer.contains("application/problem+json"), "{answer}");
    }
    let whole = behind.requests().len();
    assert!(whole >= 1);
}

#[tokio::test]
async fn a_host_must_be_one_and_readable() {
    let (behind, gateway) = world().await;
    let raw = async |head: &str| gateway.raw(&format!("{head}\r\nconnection: close\r\n\r\n")).await;
    for bad in [
        "GET / HTTP/1.1",
        "GET / HTTP/1.1\r\nhost: a\r\nhost: b",
        "GET / HTTP/1.1\r\nhost: a\r\nhost: a",
        "GET / HTTP/1.1\r\nhost: a@b",
        "GET / HTTP/1.1\r\nhost: a/b",
        "GET http://b/ HTTP/1.1\r\nhost: a",
        "GET http://u@a/ HTTP/1.1\r\nhost: u@a",
    ] {
        let answer = raw(bad).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{bad:?}: {answer}");
        assert!(answer.contains("application/problem+json"), "{answer}");
    }
    assert_eq!(behind.requests().len(), 0);
    assert!(raw("GET http://A/x HTTP/1.1\r\nhost: a").await.starts_with("HTTP/1.1 200"));
    assert_eq!(behind.requests()[0].1, "/x");
    assert_eq!(behind.last_headers()["host"], "A");
}

#[tokio::test]
async fn tunnels_and_websockets_are_refused_with_a_reason() {
    let (behind, gateway) = world().await;
    let connect = gateway.raw("CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\nconnection: close\r\n\r\n").await;
    assert!(connect.starts_with("HTTP/1.1 501"), "{connect}");
    let upgrade = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade, close\r\nupgrade: websocket\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n";
    let websocket = gateway.raw(upgrade).await;
    assert!(websocket.starts_with("HTTP/1.1 501") && websocket.contains("not available yet"), "{websocket}");
    assert_eq!(behind.requests().len(), 0);
}

#[tokio::test]
async fn bytes_that_are_not_http_are_answered_400_and_closed() {
    let (behind, gateway) = world().await;
    for noise in
        ["\x16\x03\x01\x02\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "G@T / HTTP/1.1\r\n\r\n"]
    {
        let answer = gateway.raw(noise).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{noise:?}: {answer}");
    }
    assert_eq!(behind.requests().len(), 0);
}

#[tokio::test]
async fn requests_behind_each_other_are_answered_in_order() {
    let (_behind, gateway) = world().await;
    let one = |body: &str, more: &str| {
        format!("POST / HTTP/1.1\r\nhost: a\r\n{more}content-length: {}\r\n\r\n{body}", body.len())
    };
    let answers = gateway
        .raw(&format!("{}{}{}", one("1st", ""), one("2nd", ""), one("3rd", "connection: close\r\n")))
        .await;
    let at = |body| answers.find(body).unwrap_or_else(|| panic!("{answers}"));
    assert!(at("1st") < at("2nd") && at("2nd") < at("3rd"));
}

#[tokio::test]
async fn clients_of_http_1_0_are_served() {
    let (behind, gateway) = world().await;
    let answer = gateway.raw("POST /old HTTP/1.0\r\ncontent-length: 4\r\n\r\nbody").await;
    assert!(answer.starts_with("HTTP/1.0 200") && answer.ends_with("body"), "{answer}");
    assert_eq!(behind.last_headers()["via"], "1.0 slidegate");
}

// A client that closes its side has gone, as far as hyper can tell: its request is dropped, not answered.
#[tokio::test]
async fn a_half_closed_client_gets_no_answer() {
    let behind = Behind::answering(|_| std::future::pending()).await;
    let gateway = Setup::new(vec![route(behind.upstream())]).start().await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "");
}
