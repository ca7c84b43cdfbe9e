//! A client that keeps a server busy with one thread: bytes go out in batches, and the next batch is on its way
//! before the replies to the last one are read. It looks at no more of a reply than its first bytes.

use std::io::{Read, Write};
use std::net::TcpStream;

/// Calls that are sent together, unless a client [is told](Client::depth) otherwise. Two batches and their replies
/// fit into the buffers of a socket.
pub(crate) const BATCH: u64 = 64;

/// What was replied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A string of bytes.
    Bytes(Vec<u8>),
    /// A number; of an array, the first one.
    Number(i64),
    /// A status.
    Status,
}

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    read_to: usize,
    batch: u64,
}

/// Writes a command as the protocol has it.
pub(crate) fn push_command<W: AsRef<[u8]>>(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item = W>) {
    out.extend(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        let word = word.as_ref();
        out.extend(format!("${}\r\n", word.len()).as_bytes());
        out.extend(word);
        out.extend(b"\r\n");
    }
}

impl Client {
    pub(crate) fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the server that was started");
        stream.set_nodelay(true).expect("a TCP socket");
        Self { stream, input: Vec::new(), read_to: 0, batch: BATCH }
    }

    /// Keeps so many calls of a pipeline under way, in two batches. An even number.
    #[allow(dead_code, reason = "of the two benchmarks that include this file one asks for it")]
    pub(crate) const fn depth(mut self, calls: u64) -> Self {
        self.batch = calls / 2;
        self
    }

    /// One command, its reply awaited.
    pub(crate) fn command(&mut self, words: &[&str]) -> Reply {
        let mut out = Vec::new();
        push_command(&mut out, words.iter());
        self.stream.write_all(&out).expect("a server that reads");
        self.reply()
    }

    /// Sends calls as long as `goes_on` says so, asked before each batch, and shows each reply; returns how many.
    pub(crate) fn pipeline(
        &mut self,
        mut goes_on: impl FnMut() -> bool,
        mut push_call: impl FnMut(&mut Vec<u8>),
        mut show: impl FnMut(&Reply),
    ) -> u64 {
        let (mut out, mut sent, mut under_way) = (Vec::new(), 0, 0);
        loop {
            let last = !goes_on();
            if !last {
                out.clear();
                (0..self.batch).for_each(|_| push_call(&mut out));
                self.stream.write_all(&out).expect("a server that reads");
                sent += self.batch;
            }
            (0..under_way).for_each(|_| show(&self.reply()));
            if last {
                return sent;
            }
            under_way = self.batch;
        }
    }

    fn reply(&mut self) -> Reply {
        loop {
            if let Some((reply, len)) = parse(&self.input[self.read_to..]) {
                self.read_to += len;
                return reply;
            }
            self.input.drain(..self.read_to);
            self.read_to = 0;
            let mut more = [0; 65536];
            let len = self.stream.read(&mut more).expect("a reply");
            assert!(len > 0, "the server has closed the connection");
            self.input.extend(&more[..len]);
        }
    }
}

/// The reply that bytes begin with, and how many they are; `None` while there are too few.
fn parse(bytes: &[u8]) -> Option<(Reply, usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let line = std::str::from_utf8(&bytes[..end]).expect("a line of text");
    let number = || line[1..].parse::<i64>().expect("a number");
    let next = end + 2;
    match bytes[0] {
        b'+' => Some((Reply::Status, next)),
        b':' => Some((Reply::Number(number()), next)),
        b'$' => {
            let len = usize::try_from(number()).expect("a string");
            let string = bytes.get(next..next + len + 2)?;
            Some((Reply::Bytes(string[..len].to_vec()), next + len + 2))
        }
        b'*' => {
            let (mut at, mut first) = (next, None);
            for _ in 0..number() {
                let (reply, len) = parse(&bytes[at..])?;
                first.get_or_insert(reply);
                at += len;
            }
            Some((first.unwrap_or(Reply::Status), at))
        }
        _ => panic!("the server refuses: {line}"),
    }
}
