//! The port on real sockets.

use super::*;

/// Serves a port on a socket and returns its address; it ends with the test's runtime.
async fn serve(api: Router) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, api).await });
    address
}

#[tokio::test]
async fn a_gigabyte_is_refused_before_a_byte_of_it_is_sent() {
    // F6: a body without bound was read whole. The head alone must be enough to be refused.
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = serve(api()).await;
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: 1073741824\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 Payload Too Large\r\n"), "{answer}");
    assert!(answer.contains("the body is longer than 64 KiB"), "{answer}");
}

#[tokio::test]
async fn many_callers_at_once_are_admitted_exactly_to_the_limit() {
    // F18, F27: 64 connections, one policy of 100, 640 checks: 100 are allowed.
    let policy = Policy::builder("shared").limits("100/1h");
    let address = serve(router(context([policy]).0, &door(Tokens::Anyone))).await;
    let callers = (0..64).map(|_| {
        tokio::spawn(async move {
            let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
                .build_http::<http_body_util::Full<bytes::Bytes>>();
            let mut allowed = 0;
            for _ in 0..10 {
                let request = http::Request::post(format!("http://{address}/v1/check"))
                    .header("content-type", "application/json")
                    .body(r#"{"policy":"shared"}"#.into())
                    .unwrap();
                allowed += u32::from(client.request(request).await.unwrap().status() == 200);
            }
            allowed
        })
    });
    let mut allowed = 0;
    for caller in callers.collect::<Vec<_>>() {
        allowed += caller.await.unwrap();
    }
    assert_eq!(allowed, 100);
}
