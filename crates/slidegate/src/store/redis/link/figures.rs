//! What went over a link, counted without locks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use ::redis::{Arg, Cmd, Value};

use crate::error::{Fault, StoreError};

/// What went over a link since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkFigures {
    /// Commands that were sent, those of the link's own supervision left out.
    pub(crate) calls: u64,
    /// Bytes of those commands.
    pub(crate) bytes_out: u64,
    /// Bytes of their replies, as if in RESP2.
    pub(crate) bytes_in: u64,
    /// Connections opened in place of one that was lost.
    pub(crate) reconnects: u64,
    /// Calls that failed, in the order of [`Fault::ALL`].
    pub(crate) faults: [u64; Fault::ALL.len()],
    /// Whether calls can be sent now; of a cluster, to every node that serves slots.
    pub(crate) connected: bool,
    /// Whether a server was seen that may evict counters (`maxmemory-policy` other than `noeviction`).
    pub(crate) evicts: bool,
}

#[derive(Debug)]
pub(super) struct Figures {
    calls: AtomicU64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    reconnects: AtomicU64,
    faults: [AtomicU64; Fault::ALL.len()],
    evicts: AtomicBool,
}

impl Figures {
    pub(super) fn new() -> Self {
        Self {
            calls: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            reconnects: AtomicU64::new(0),
            faults: std::array::from_fn(|_| AtomicU64::new(0)),
            evicts: AtomicBool::new(false),
        }
    }

    pub(super) fn sent(&self, command: &Cmd) {
        self.calls.fetch_add(1, Relaxed);
        self.bytes_out.fetch_add(size_of_command(command), Relaxed);
    }

    pub(super) fn received(&self, reply: &Value) {
        self.bytes_in.fetch_add(size_of_reply(reply), Relaxed);
    }

    pub(super) fn reconnected(&self) {
        self.reconnects.fetch_add(1, Relaxed);
    }

    pub(super) fn failed(&self, error: &StoreError) {
        if let Some(index) = error.fault().and_then(place) {
            self.faults[index].fetch_add(1, Relaxed);
        }
    }

    /// Notes a server that may evict counters; true for the first.
    pub(super) fn evicts(&self) -> bool {
        !self.evicts.swap(true, Relaxed)
    }

    pub(super) fn read(&self, connected: bool) -> LinkFigures {
        LinkFigures {
            calls: self.calls.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
            reconnects: self.reconnects.load(Relaxed),
            faults: std::array::from_fn(|index| self.faults[index].load(Relaxed)),
            connected,
            evicts: self.evicts.load(Relaxed),
        }
    }
}

/// A fault's place in [`Fault::ALL`].
pub(super) fn place(fault: Fault) -> Option<usize> {
    Fault::ALL.iter().position(|known| *known == fault)
}

/// Bytes on the wire, without packing it a second time.
fn size_of_command(command: &Cmd) -> u64 {
    let arguments = command.args_iter();
    let head = header(arguments.len());
    arguments.fold(head, |sum, argument| {
        let len = match argument {
            Arg::Simple(bytes) => bytes.len(),
            _ => 1,
        };
        sum + bulk(len)
    })
}

fn size_of_reply(reply: &Value) -> u64 {
    match reply {
        Value::Int(number) => 3 + digits(number.unsigned_abs()) + u64::from(*number < 0),
        Value::BulkString(bytes) => bulk(bytes.len()),
        Value::Array(values) | Value::Set(values) => {
            values.iter().fold(header(values.len()), |sum, value| sum + size_of_reply(value))
        }
        Value::SimpleString(text) => 3 + wide(text.len()),
        Value::ServerError(error) => 4 + wide(error.code().len()) + wide(error.details().map_or(0, str::len)),
        // A nil, and what only RESP3 knows: near enough.
        _ => 5,
    }
}

/// `*3\r\n`, `$5\r\n`.
fn header(len: usize) -> u64 {
    3 + digits(wide(len))
}

fn bulk(len: usize) -> u64 {
    header(len) + wide(len) + 2
}

fn digits(number: u64) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0)) + 1
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_on_the_wire() {
        let mut command = ::redis::cmd("EVALSHA");
        command.arg("0123456789").arg(1).arg("").arg(&b"\x00\xff"[..]);
        let packed = command.get_packed_command().len();
        assert_eq!(size_of_command(&command), wide(packed));

        let reply = Value::Array(vec![Value::Int(-10), Value::BulkString(vec![0; 12]), Value::Nil]);
        assert_eq!(size_of_reply(&reply), wide("*3\r\n:-10\r\n$12\r\n............\r\n$-1\r\n".len()));
    }

    #[test]
    fn every_fault_is_counted_in_its_place() {
        let figures = Figures::new();
        for fault in Fault::ALL {
            figures.failed(&StoreError::Lost { fault });
            figures.failed(&StoreError::Unavailable { fault });
        }
        assert_eq!(figures.read(false).faults, [2; Fault::ALL.len()]);
    }
}
