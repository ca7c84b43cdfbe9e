//! One HTTP request over a connection of its own, and its answer taken apart: enough to see what a client sees.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Reply {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    /// Who decided: of the gateway's header, or of a decision's body.
    pub(crate) fn mode(&self) -> String {
        self.header("slidegate-mode").map_or_else(|| self.json()["mode"].to_string(), str::to_owned)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends a request with these header lines, and waits for all of the answer.
pub(crate) fn send(address: &str, method: &str, path: &str, headers: &[&str], body: &str) -> Reply {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    for line in headers {
        request += &format!("{line}\r\n");
    }
    request += &format!("content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { joined(body) } else { body.to_owned() };
    Reply { status, head: head.to_owned(), body }
}

/// A GET without anything.
pub(crate) fn get(address: &str, path: &str) -> Reply {
    send(address, "GET", path, &[], "")
}

/// A JSON body to an endpoint of the API or the admin port.
pub(crate) fn post(address: &str, path: &str, body: &str) -> Reply {
    send(address, "POST", path, &["content-type: application/json"], body)
}

fn joined(mut chunks: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = chunks.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            break;
        }
        whole += &rest[..length];
        chunks = &rest[length + 2..];
    }
    whole
}
