//! One client: a kept connection, and one request at a time over it, in HTTP/1.1.
//!
//! No more than answers of slidegate need: a body has its length said, so there is nothing else to know its end by.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Answer;

/// More fields than any answer here has.
const FIELDS_MAX: usize = 64;

/// An answer that is longer is not one of ours.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A client of one instance.
#[derive(Debug)]
pub(super) struct Client {
    address: String,
    patience: Duration,
    connection: Option<TcpStream>,
    read: BytesMut,
}

impl Client {
    pub(super) fn new(address: String, patience: Duration) -> Self {
        Self { address, patience, connection: None, read: BytesMut::new() }
    }

    /// Connects ahead of the first request, if that works.
    pub(super) async fn connect(&mut self) {
        if let Ok(Ok(stream)) = timeout(self.patience, TcpStream::connect(&self.address)).await {
            let _ = stream.set_nodelay(true);
            self.connection = Some(stream);
        }
    }

    /// Sends the bytes of a request, and reads the whole answer. After a failure the next one has a new connection;
    /// nothing is sent twice.
    pub(super) async fn ask(&mut self, request: &[u8]) -> Answer {
        let asked = timeout(self.patience, self.try_ask(request)).await;
        match asked.ok().flatten() {
            Some((200..=299, keeps)) => self.keep(keeps, Answer::Allowed),
            Some((429, keeps)) => self.keep(keeps, Answer::Denied),
            Some((status, keeps)) => self.keep(keeps, Answer::Status(status)),
            None => self.keep(false, Answer::Broken),
        }
    }

    fn keep(&mut self, keeps: bool, answer: Answer) -> Answer {
        if !keeps {
            self.connection = None;
            self.read.clear();
        }
        answer
    }

    /// The status, and whether the connection can be used again.
    async fn try_ask(&mut self, request: &[u8]) -> Option<(u16, bool)> {
        if self.connection.is_none() {
            self.connect().await;
        }
        let connection = self.connection.as_mut()?;
        connection.write_all(request).await.ok()?;
        loop {
            if let Some(head) = Head::parse(&self.read)? {
                let whole = head.length.checked_add(head.body)?;
                if self.read.len() >= whole {
                    self.read.advance(whole);
                    return Some((head.status, head.keeps));
                }
            }
            if self.read.len() > ANSWER_BYTES_MAX || connection.read_buf(&mut self.read).await.ok()? == 0 {
                return None;
            }
        }
    }
}

/// The status line and fields of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// Its own length in bytes, and that of the body behind it.
    length: usize,
    body: usize,
    keeps: bool,
}

impl Head {
    /// `None` when it is no answer; `Some(None)` while it is not all there.
    fn parse(read: &[u8]) -> Option<Option<Self>> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let httparse::Status::Complete(length) = response.parse(read).ok()? else { return Some(None) };
        let status = response.code?;
        let value = |name: &str| {
            let field = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
            field.and_then(|field| std::str::from_utf8(field.value).ok())
        };
        let body = match value("content-length") {
            Some(length) => length.parse().ok()?,
            None if matches!(status, 204 | 304) => 0,
            None => return None,
        };
        let keeps = !value("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        Some(Some(Self { status, length, body, keeps }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_how_long_the_answer_is_and_whether_another_may_follow() {
        let head = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 5\r\nconnection: close\r\n\r\nbody!";
        let parsed = Head::parse(head).unwrap().unwrap();
        assert_eq!(parsed, Head { status: 429, length: head.len() - 5, body: 5, keeps: false });
        assert_eq!(Head::parse(&head[..20]), Some(None));
        assert_eq!(Head::parse(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().unwrap().body, 0);
        assert_eq!(Head::parse(b"HTTP/1.1 200 OK\r\n\r\n"), None, "no length");
        assert_eq!(Head::parse(b"+PONG\r\n\r\n"), None);
    }
}
