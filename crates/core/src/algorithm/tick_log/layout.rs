//! The bytes of a tick log in Redis: one string value, everything big-endian.
//!
//! What reads it besides this module is a Lua script, so: a header of fixed length that alone decides most
//! checks; the ledger behind it; the ring last, where it can grow by doubling without moving anything else.
//! A value of less than [`SHORT_MAX`] bytes is read at once and written whole. A longer one is changed in place.
//!
//! # Header
//! | at | bytes | field | |
//! |---|---|---|---|
//! | [`FORMAT_AT`] = 0 | 1 | format | [`FORMAT`]; a newer one is never touched |
//! | [`KIND_AT`] = 1 | 1 | kind | [`KIND`]; other algorithms store other kinds |
//! | [`ROWS_AT`] = 2 | 1 | ledger rows in use | |
//! | [`ROWS_CAPACITY_AT`] = 3 | 1 | rows that there is room for | up to [`ROWS_MAX`]; in a short value no more than are in use |
//! | [`LONGEST_LEASE_AT`] = 4 | 4 | longest lease in ms | 0: no lease |
//! | [`R_AT`] = 8 | 4 | r in ms | at least 1 |
//! | [`RING_CAPACITY_AT`] = 12 | 4 | entries that the ring has room for | 0, or a power of two from [`RING_MIN`] to [`RING_MAX`] |
//! | [`EPOCH_AT`] = 16 | 4 | epoch | receipts of another epoch give nothing back |
//! | [`TAIL_TICK_AT`] = 20 | 4 | tick of the oldest entry, else the last | tells whether anything expires without reading the ring |
//! | [`TAIL_AT`] = 24 | 4 | place of the oldest entry | below the capacity |
//! | [`HEAD_AT`] = 28 | 4 | place of the next entry | counts on from the tail, so full and empty differ |
//! | [`USED_AT`] = 32 | 4 | permits in use | the sum of all counts |
//! | [`NEWEST_AT`] = 36 | 4 | permits of the last tick | |
//! | [`LAST_TICK_AT`] = 40 | 8 | absolute last tick | its end is this many times r |
//! | [`RESET_EPOCH_AT`] = 48 | 8 | last reset, in ms | 0: never. Ledgers from before it are dropped, not restored |
//! | [`LEASE_END_AT`] = 56 | 8 | end of the last lease, in ms | 0: no lease |
//!
//! ## Why in this order
//! What a check reads and changes stands together, in front and in one piece: from [`HOT_AT`] on, [`HOT_LEN`]
//! bytes, which are also what a script replies with ([`Hot`]): it packs them once. The rows change with
//! every charge too, so what is written is one piece from there to the end of a row; a new tick of a long value
//! writes its entry as well. When the key expires is not among the fields: its TTL says it.
//!
//! Each field costs a script as much as ten of its own instructions. So neighbours whose first one is small are
//! read as one number of eight bytes, below 2^53: lease and r (a check goes on only if both are as they
//! should be), capacity and epoch (passed on as they are), tail and head (0 and the number of entries in a
//! short value).
//!
//! ## Why big-endian, and what changes most last
//! Lua keeps every string once, in a hash table, and hashes at most 32 of its bytes: the last one, and others at
//! equal distances before it. Values of thousands of keys differ in the low bytes of a few numbers. With those
//! at the end of every field, row, entry and value, and [`SHORT_MAX`] such that the bytes hashed of a long one
//! are low bytes of fields and of each row's seq, they fall into different buckets.
//!
//! # Ledger and ring
//! From [`HEADER_LEN`] on: the rows ([`ROW_LEN`] bytes each: identity 8, tick 4, count 4, seq 8), then the
//! entries ([`ENTRY_LEN`] bytes each: count 4, tick 4). Entry k of the ring is at place k modulo the
//! capacity. The value may end after the last place ever written. Ticks in rows, entries and the tail tick
//! are the low 32 bits.
//!
//! # Numbers stay below 2^53
//! Lua's numbers are doubles. Every time is: [`Now`](crate::time::Now) ends at 2^53 *microseconds*, and what
//! is added to it (a tick, a window, a lease) is below 2^36 ms. A caller's reset epoch or sequence number beyond
//! is written as [`NUMBER_MAX`]. [`decode`] refuses larger ones, so nothing that is read has to be rounded.
//! Only a row's identity uses all its bits: to the script it is eight opaque bytes.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

pub use super::image::Image;
use super::{Entry, Ring, TickLog, low_32};
use crate::lease::{LEASE_MAX, LeaseSpan};
use crate::ledger::{ROWS_MAX, Row};
use crate::limit::{RESOLUTION_ENTRIES_MAX, WINDOW_MAX};
use crate::time::Millis;

/// The format that this release reads and writes. It is the first; 0 is none.
pub const FORMAT: u8 = 1;
/// The last format that there will ever be. What begins with a larger byte is someone else's value: text, mostly.
pub const FORMAT_MAX: u8 = 15;
/// The kind of value that a tick log is.
pub const KIND: u8 = 0;
/// The last of the other kinds: 1 is a fixed window, 2 a bucket.
const KIND_MAX: u8 = 2;

/// Offset of the format.
pub const FORMAT_AT: usize = 0;
/// Offset of the kind.
pub const KIND_AT: usize = 1;
/// Offset of the number of ledger rows.
pub const ROWS_AT: usize = 2;
/// Offset of the number of rows that there is room for.
pub const ROWS_CAPACITY_AT: usize = 3;
/// Offset of the epoch.
pub const EPOCH_AT: usize = 16;
/// Offset of the time of the last reset.
pub const RESET_EPOCH_AT: usize = 48;
/// Offset of the end of the last lease.
pub const LEASE_END_AT: usize = 56;
/// Offset of r.
pub const R_AT: usize = 8;
/// Offset of the longest lease.
pub const LONGEST_LEASE_AT: usize = 4;
/// Offset of the ring's capacity.
pub const RING_CAPACITY_AT: usize = 12;
/// Offset of the place of the oldest entry.
pub const TAIL_AT: usize = 24;
/// Offset of the place of the next entry.
pub const HEAD_AT: usize = 28;
/// Offset of the tick of the oldest entry; of the last tick if the ring is empty.
pub const TAIL_TICK_AT: usize = 20;
/// Where the part begins that every charge changes.
pub const HOT_AT: usize = RING_CAPACITY_AT;
/// How many bytes it has.
pub const HOT_LEN: usize = RESET_EPOCH_AT - HOT_AT;
/// Offset of the absolute last tick.
pub const LAST_TICK_AT: usize = 40;
/// Offset of the permits in use.
pub const USED_AT: usize = 32;
/// Offset of the permits of the last tick.
pub const NEWEST_AT: usize = 36;

/// Bytes of the header; the ledger begins here.
pub const HEADER_LEN: usize = 64;
/// Bytes of a ledger row.
pub const ROW_LEN: usize = 24;
/// Bytes of an entry of the ring.
pub const ENTRY_LEN: usize = 8;

/// Values of fewer bytes are read at once: each byte costs a script about 1 ns, a second read a microsecond.
pub const SHORT_MAX: usize = 376;
/// The smallest ring: below it, doubling would rewrite the value for every few ticks.
pub const RING_MIN: u32 = 8;
/// The largest ring: as many entries as the finest `resolution` may ask for.
pub const RING_MAX: u32 = RESOLUTION_ENTRIES_MAX;
/// The fewest rows that a long value makes room for at once, because each time the whole ring has to move.
const ROWS_MIN: usize = 4;

/// The largest number that is written: the largest below which a double holds every integer.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;

/// Why bytes are not a tick log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// Written by a newer release: the store is unavailable for this key, and the value is left alone.
    NewerFormat {
        /// The format found.
        format: u8,
    },
    /// A counter of another algorithm: a fixed window (1) or a bucket (2).
    OtherKind {
        /// The kind found.
        kind: u8,
    },
    /// The value ends too early or too late.
    Length {
        /// How many bytes there should be, at least or at most.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A field contradicts the format or another field.
    Corrupt {
        /// Byte offset of the field.
        at: usize,
        /// What it breaks.
        fault: &'static str,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewerFormat { format } => {
                write!(f, "the value has format {format}, and this release reads up to {FORMAT}: upgrade it")
            }
            Self::OtherKind { kind } => {
                write!(f, "the value is a counter of another algorithm, of kind {kind}")
            }
            Self::Length { expected, found } => {
                write!(f, "the value has {found} bytes where {expected} belong")
            }
            Self::Corrupt { at, fault } => write!(f, "the value is no tick log: byte {at}: {fault}"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Writes an image: the ring from its first place on, with room for the next power of two.
pub fn encode(image: &Image) -> Vec<u8> {
    let log = &image.log;
    // A caller's ledger is held to the cap that the script holds it to: the oldest rows make way.
    let rows = &image.ledger[image.ledger.len().saturating_sub(ROWS_MAX)..];
    let short = HEADER_LEN + rows.len() * ROW_LEN + log.older.len() * ENTRY_LEN < SHORT_MAX;
    let rows_capacity = if short { rows.len() } else { room(rows.len(), ROWS_MIN) };
    let ring_capacity = room(log.older.len(), RING_MIN as usize);
    let lease = log.lease_span();
    let tail_tick = log.older.front().map_or(low_32(log.last_tick), |entry| entry.tick);

    let mut bytes = Vec::with_capacity(HEADER_LEN + rows_capacity * ROW_LEN + log.older.len() * ENTRY_LEN);
    bytes.extend([FORMAT, KIND, byte(rows.len()), byte(rows_capacity)]);
    push_u32s(&mut bytes, &[u32::try_from(lease.longest.0).unwrap_or(u32::MAX), log.r_ms]);
    push_u32s(&mut bytes, &[word(ring_capacity), log.epoch, tail_tick, 0, word(log.older.len())]);
    push_u32s(&mut bytes, &[log.used, log.newest]);
    push_u64s(&mut bytes, &[log.last_tick, image.reset_epoch, lease.end_ms]);
    for row in rows {
        bytes.extend(row.identity.to_be_bytes());
        push_u32s(&mut bytes, &[row.tick, row.count]);
        push_u64s(&mut bytes, &[row.seq]);
    }
    bytes.resize(HEADER_LEN + rows_capacity * ROW_LEN, 0);
    for entry in log.older.iter() {
        push_u32s(&mut bytes, &[entry.count, entry.tick]);
    }
    bytes
}

/// The part of a header that checks change, as a script replies with it. Nothing of it is checked: only what a
/// script has just written, or not changed, comes this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hot {
    /// Receipts carry it.
    pub epoch: u32,
    /// How many ticks before the last hold entries.
    pub entries: u32,
    /// The low 32 bits of the tick of the oldest entry, else of the last.
    pub tail_tick: u32,
    /// Permits in use.
    pub used: u32,
    /// The absolute last tick.
    pub last_tick: u64,
}

impl Hot {
    /// Reads it.
    pub fn read(bytes: [u8; HOT_LEN]) -> Self {
        let u32_at = |at: usize| {
            let at = at - HOT_AT;
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            epoch: u32_at(EPOCH_AT),
            entries: u32_at(HEAD_AT).saturating_sub(u32_at(TAIL_AT)),
            tail_tick: u32_at(TAIL_TICK_AT),
            used: u32_at(USED_AT),
            last_tick: u64::from(u32_at(LAST_TICK_AT)) << 32 | u64::from(u32_at(LAST_TICK_AT + 4)),
        }
    }

    /// The absolute tick of the oldest entry, else the last; no earlier than the Unix epoch.
    pub fn oldest_tick(&self) -> u64 {
        let age = low_32(self.last_tick).wrapping_sub(self.tail_tick);
        self.last_tick.saturating_sub(u64::from(age))
    }
}

/// The capacity of a region that holds `len`: doubled from `least`, or nothing at all.
fn room(len: usize, least: usize) -> usize {
    if len == 0 { 0 } else { len.next_power_of_two().max(least) }
}

fn byte(len: usize) -> u8 {
    u8::try_from(len).unwrap_or(u8::MAX)
}

fn word(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn push_u32s(bytes: &mut Vec<u8>, values: &[u32]) {
    values.iter().for_each(|value| bytes.extend(value.to_be_bytes()));
}

fn push_u64s(bytes: &mut Vec<u8>, values: &[u64]) {
    values.iter().for_each(|value| bytes.extend((*value).min(NUMBER_MAX).to_be_bytes()));
}

/// Reads an image.
///
/// # Errors
/// [`DecodeError`], for whatever bytes: everything that an algorithm relies on is checked here.
pub fn decode(bytes: &[u8]) -> Result<Image, DecodeError> {
    let value = Value(bytes);
    let format = value.u8(FORMAT_AT)?;
    if (FORMAT + 1..=FORMAT_MAX).contains(&format) {
        return Err(DecodeError::NewerFormat { format });
    }
    expect(format == FORMAT, FORMAT_AT, "there is no such format")?;
    let kind = value.u8(KIND_AT)?;
    expect(kind <= KIND_MAX, KIND_AT, "there is no such kind")?;
    if kind != KIND {
        return Err(DecodeError::OtherKind { kind });
    }
    value.holds(HEADER_LEN)?;

    let mut log = value.header()?;
    let ledger = value.ledger()?;
    log.older = value.ring(&log)?;
    Ok(Image { log, reset_epoch: value.number(RESET_EPOCH_AT)?, ledger })
}

fn expect(holds: bool, at: usize, fault: &'static str) -> Result<(), DecodeError> {
    if holds { Ok(()) } else { Err(DecodeError::Corrupt { at, fault }) }
}

/// The bytes that are read. Every access checks its bounds.
struct Value<'a>(&'a [u8]);

impl Value<'_> {
    /// The log, but for its ring.
    fn header(&self) -> Result<TickLog, DecodeError> {
        let r_ms = self.u32(R_AT)?;
        expect(r_ms > 0, R_AT, "a tick of no length")?;
        let last_tick = self.number(LAST_TICK_AT)?;
        let last_ms = last_tick.checked_mul(u64::from(r_ms));
        expect(
            last_ms.is_some_and(|ms| ms <= NUMBER_MAX),
            LAST_TICK_AT,
            "the last tick lies beyond 2^53 ms",
        )?;
        let (used, newest) = (self.u32(USED_AT)?, self.u32(NEWEST_AT)?);
        let lease = LeaseSpan {
            longest: Millis(u64::from(self.u32(LONGEST_LEASE_AT)?)),
            end_ms: self.number(LEASE_END_AT)?,
        };
        expect(lease.longest <= LEASE_MAX, LONGEST_LEASE_AT, "a lease longer than any policy's")?;
        expect(lease.end_ms == 0 || lease.longest > Millis::ZERO, LEASE_END_AT, "the end of no lease")?;
        Ok(TickLog {
            older: Ring::new(),
            lease: (lease.longest > Millis::ZERO).then(|| Box::new(lease)),
            last_tick,
            r_ms,
            used,
            newest,
            epoch: self.u32(EPOCH_AT)?,
        })
    }

    /// The rows. Their ticks may be any: a row that outlives the window stays, until its place is needed.
    fn ledger(&self) -> Result<Vec<Row>, DecodeError> {
        let (rows, capacity) = (self.len(ROWS_AT)?, self.len(ROWS_CAPACITY_AT)?);
        expect(capacity <= ROWS_MAX, ROWS_CAPACITY_AT, "room for more rows than there may be")?;
        expect(rows <= capacity, ROWS_AT, "more rows than there is room for")?;
        self.holds(HEADER_LEN + capacity * ROW_LEN)?;
        let exact = self.0.len() >= SHORT_MAX || rows == capacity;
        expect(exact, ROWS_CAPACITY_AT, "a short value with room for more rows than it has")?;
        let mut ledger: Vec<Row> = Vec::with_capacity(rows);
        for at in (HEADER_LEN..).step_by(ROW_LEN).take(rows) {
            let row = Row {
                identity: u64::from_be_bytes(self.take(at)?),
                seq: self.number(at + 16)?,
                count: self.u32(at + 12)?,
                tick: self.u32(at + 8)?,
            };
            let known = ledger.iter().any(|other| other.identity == row.identity);
            expect(!known, at, "a second row of one identity")?;
            ledger.push(row);
        }
        Ok(ledger)
    }

    fn ring(&self, log: &TickLog) -> Result<Ring, DecodeError> {
        let (capacity, tail, head) = (self.u32(RING_CAPACITY_AT)?, self.u32(TAIL_AT)?, self.u32(HEAD_AT)?);
        expect(
            capacity == 0 || capacity.is_power_of_two() && (RING_MIN..=RING_MAX).contains(&capacity),
            RING_CAPACITY_AT,
            "no capacity of a ring",
        )?;
        expect(tail < capacity || tail == 0, TAIL_AT, "the tail lies beyond the ring")?;
        let len = head.checked_sub(tail);
        expect(len.is_some_and(|len| len <= capacity), HEAD_AT, "the head lies beyond the ring")?;
        let start = HEADER_LEN + self.len(ROWS_CAPACITY_AT)? * ROW_LEN;
        let most = start + capacity as usize * ENTRY_LEN;
        if self.0.len() > most {
            return Err(self.length(most));
        }

        // Ages fall, from less than what the longest window and the rounding of its ticks allow.
        let r_ms = u64::from(log.r_ms);
        let mut younger_than = 2 * (WINDOW_MAX.0 / r_ms + 2);
        let mut total = u64::from(log.newest);
        let mut ring = Ring::with_capacity(len.unwrap_or(0) as usize);
        for place in tail..head {
            let at = start + (place % capacity) as usize * ENTRY_LEN;
            let entry = Entry { tick: self.u32(at + 4)?, count: self.u32(at)? };
            let age = log.age(entry);
            expect((1..younger_than).contains(&age), at, "a tick out of order")?;
            younger_than = age;
            total += u64::from(entry.count);
            ring.push_back(entry);
        }
        expect(total == u64::from(log.used), USED_AT, "the counts come to another total")?;
        let tail_tick = ring.front().map_or(low_32(log.last_tick), |entry: &Entry| entry.tick);
        expect(tail_tick == self.u32(TAIL_TICK_AT)?, TAIL_TICK_AT, "not the tick of the oldest entry")?;
        Ok(ring)
    }

    /// A number that a double holds.
    fn number(&self, at: usize) -> Result<u64, DecodeError> {
        let number = u64::from_be_bytes(self.take(at)?);
        expect(number <= NUMBER_MAX, at, "a number of 2^53 or more")?;
        Ok(number)
    }

    fn u32(&self, at: usize) -> Result<u32, DecodeError> {
        self.take(at).map(u32::from_be_bytes)
    }

    fn u8(&self, at: usize) -> Result<u8, DecodeError> {
        self.take(at).map(u8::from_be_bytes)
    }

    fn len(&self, at: usize) -> Result<usize, DecodeError> {
        self.u8(at).map(usize::from)
    }

    fn take<const N: usize>(&self, at: usize) -> Result<[u8; N], DecodeError> {
        self.0.get(at..).and_then(|rest| rest.first_chunk().copied()).ok_or_else(|| self.length(at + N))
    }

    fn holds(&self, expected: usize) -> Result<(), DecodeError> {
        if self.0.len() < expected {
            return Err(self.length(expected));
        }
        Ok(())
    }

    const fn length(&self, expected: usize) -> DecodeError {
        DecodeError::Length { expected, found: self.0.len() }
    }
}

#[cfg(test)]
mod tests;
