//! One client: a kept connection, and one request at a time over it, in HTTP/1.1.
//!
//! No more than answers of slidegate need: a body has its length said, so there is nothing else to know its end by.
//!
//! A client that may go elsewhere does what a balancer does: it connects to the next instance where the first one
//! refuses, and sends a request again whose connection ended before the first byte of an answer. It begins each new
//! connection with its own instance, so an instance that comes back gets its clients back.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Answer, Told};

/// More fields than any answer here has.
const FIELDS_MAX: usize = 64;

/// An answer that is longer is not one of ours.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A client of one instance, or of one after another.
#[derive(Debug)]
pub(super) struct Client {
    /// The first is its own.
    addresses: Vec<String>,
    patience: Duration,
    connection: Option<TcpStream>,
    read: BytesMut,
}

/// An answer, who decided, and how often the request was sent for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) answer: Answer,
    pub(super) told: Told,
    pub(super) tries: u8,
}

/// Why there is no answer.
enum Unanswered {
    /// Not a byte of one came: whoever ended the connection may never have read the request.
    Unbegun,
    Broken,
}

impl Client {
    /// A client of the first of these addresses, that goes on to the others if there are any.
    pub(super) fn new(addresses: Vec<String>, patience: Duration) -> Self {
        Self { addresses, patience, connection: None, read: BytesMut::new() }
    }

    /// Connects ahead of the first request, if that works.
    pub(super) async fn connect(&mut self) {
        for address in &self.addresses {
            if let Ok(Ok(stream)) = timeout(self.patience, TcpStream::connect(address)).await {
                let _ = stream.set_nodelay(true);
                self.connection = Some(stream);
                return;
            }
        }
    }

    /// Sends the bytes of a request, and reads the whole answer. After a failure the next one has a new connection.
    /// Only those who may go elsewhere send one twice.
    pub(super) async fn ask(&mut self, request: &[u8]) -> Answered {
        let (mut tries, patience) = (0, self.patience);
        let all = async {
            loop {
                tries += 1;
                match self.try_ask(request).await {
                    Ok(head) => break Some(head),
                    Err(Unanswered::Unbegun) if usize::from(tries) < self.tries_max() => self.forget(),
                    Err(_) => break None,
                }
            }
        };
        let asked = timeout(patience, all).await;
        let Some(head) = asked.ok().flatten() else {
            self.forget();
            return Answered { answer: Answer::Broken, told: Told::Nothing, tries };
        };
        if !head.keeps {
            self.forget();
        }
        let answer = match head.status {
            200..=299 => Answer::Allowed,
            429 => Answer::Denied,
            status => Answer::Status(status),
        };
        Answered { answer, told: head.told, tries }
    }

    /// Each instance may end a connection once, but for a client of one.
    fn tries_max(&self) -> usize {
        if self.addresses.len() > 1 { self.addresses.len() + 1 } else { 1 }
    }

    fn forget(&mut self) {
        self.connection = None;
        self.read.clear();
    }

    /// Whether the other side has said so, as far as is known: between requests it has nothing else to say.
    fn is_ended(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| {
            !matches!(connection.try_read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        })
    }

    async fn try_ask(&mut self, request: &[u8]) -> Result<Head, Unanswered> {
        if self.is_ended() {
            self.forget();
        }
        if self.connection.is_none() {
            self.connect().await;
        }
        let connection = self.connection.as_mut().ok_or(Unanswered::Broken)?;
        connection.write_all(request).await.map_err(|_| Unanswered::Unbegun)?;
        loop {
            if let Some(head) = Head::parse(&self.read).ok_or(Unanswered::Broken)? {
                let whole = head.length.checked_add(head.body).ok_or(Unanswered::Broken)?;
                if self.read.len() >= whole {
                    self.read.advance(whole);
                    return Ok(head);
                }
            }
            let is_too_long = self.read.len() > ANSWER_BYTES_MAX;
            if is_too_long || !matches!(connection.read_buf(&mut self.read).await, Ok(1..)) {
                let begun = is_too_long || !self.read.is_empty();
                return Err(if begun { Unanswered::Broken } else { Unanswered::Unbegun });
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
    told: Told,
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
        let told = value("slidegate-mode").map_or(Told::Nothing, Told::named);
        Some(Some(Self { status, length, body, keeps, told }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_how_long_the_answer_is_and_whether_another_may_follow() {
        let head = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 5\r\nconnection: close\r\nslidegate-mode: cached\r\n\r\nbody!";
        let parsed = Head::parse(head).unwrap().unwrap();
        let length = head.len() - 5;
        assert_eq!(parsed, Head { status: 429, length, body: 5, keeps: false, told: Told::Cached });
        assert_eq!(Head::parse(&head[..20]), Some(None));
        assert_eq!(Head::parse(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().unwrap().body, 0);
        assert_eq!(Head::parse(b"HTTP/1.1 200 OK\r\n\r\n"), None, "no length");
        assert_eq!(Head::parse(b"+PONG\r\n\r\n"), None);
    }
}
