//! `slidegate check` from outside: what a shell script sees. Asked of a server that always says the same.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use assert_cmd::Command;

const ALLOWED: &str = r#"{"allowed":true,"policy":"p","mode":"normal","shadow":false,"limits":[{"name":"p","limit":5,"used":1,"remaining":4,"reset_after_ms":2000}],"violated":[],"retry_after_ms":null}"#;
const DENIED: &str = r#"{"allowed":false,"policy":"p","mode":"normal","shadow":false,"limits":[{"name":"p","limit":5,"used":5,"remaining":0,"reset_after_ms":2000}],"violated":["p"],"retry_after_ms":2000}"#;
const PROBLEM: &str =
    r#"{"type":"about:blank","title":"Not Found","status":404,"detail":"no policy is called \"p\""}"#;

/// Answers one connection, once its request is whole.
fn server(status: &'static str, body: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        while !request.ends_with(b"}") {
            let len = connection.read(&mut buffer).unwrap();
            request.extend_from_slice(&buffer[..len]);
        }
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        connection.write_all((head + body).as_bytes()).unwrap();
    });
    address
}

/// Exit code, standard output, standard error.
fn check(server: SocketAddr, more: &[&str]) -> (i32, String, String) {
    let server = server.to_string();
    let line = [&["check", "--policy", "p", "--server", &server], more].concat();
    let output = Command::cargo_bin("slidegate").unwrap().args(line).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn said(code: i32, out: &str, err: &str) -> (i32, String, String) {
    (code, out.into(), err.into())
}

#[test]
fn the_exit_code_is_the_decision() {
    let allowed = check(server("200 OK", ALLOWED), &[]);
    assert_eq!(allowed, said(0, "p: 4 of 5 left, more in 2s\nallowed\n", ""));
    let denied = check(server("429 Too Many Requests", DENIED), &[]);
    assert_eq!(denied, said(10, "p: 0 of 5 left, more in 2s\ndenied by p: try again in 2s\n", ""));
}

#[test]
fn json_is_printed_as_it_came() {
    let (code, out, err) = check(server("429 Too Many Requests", DENIED), &["--json"]);
    assert_eq!((code, out, err), said(10, &format!("{DENIED}\n"), ""));
}

#[test]
fn without_a_decision_nothing_is_printed_and_the_exit_code_is_1() {
    let address = server("404 Not Found", PROBLEM);
    let expected = format!("error: {address}: no policy is called \"p\"\n");
    assert_eq!(check(address, &["--json"]), said(1, "", &expected));
}

#[test]
fn wrong_usage_is_2() {
    let wrong = Command::cargo_bin("slidegate").unwrap().args(["check", "--polcy", "p"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let message = String::from_utf8(wrong.stderr).unwrap();
    assert!(message.contains("a similar argument exists: '--policy'"), "{message}");
}
