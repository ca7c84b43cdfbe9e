//! Writes calls.

use std::sync::Arc;

use hashbrown::HashMap;
use slidegate_core::algorithm::Receipt;
use slidegate_core::algorithm::tick_log::resolution_of;
use slidegate_core::decision::Cost;
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_core::time::{Millis, Now};
use smallvec::SmallVec;

use super::Line;
use crate::pipeline::batch::{Counted, OwnedCharge, OwnedCheck};
use slidegate_core::instance::grants::{ENTRIES_MAX, PutBack};

/// How much longer than its window a key lives: a busy one need not be given a new TTL with each call.
const SLACK_MAX: Millis = Millis(60_000);

/// Bytes of the head.
const HEAD_LEN: usize = 31;
/// Bytes of a limit.
const LIMIT_LEN: usize = 21;
/// Bytes of a shape.
const SHAPE_LEN: usize = 25;

const PROBE: u8 = 1;
const RECEIPTS: u8 = 2;
const REMEMBER: u8 = 4;

/// What all parts of a call have in common.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Draft {
    /// The instant to decide at; `None`: the server's.
    pub(in super::super) now: Option<Now>,
    /// The call's number.
    pub(in super::super) seq: u64,
    /// The format to write counters in.
    pub(in super::super) format: u8,
    /// Who calls.
    pub(in super::super) identity: [u8; 8],
    /// How much longer keys live than they need to. Zero, but for tests whose clock stands still while the
    /// server's goes on.
    pub(in super::super) linger: Millis,
}

/// A call that can be sent.
#[derive(Debug)]
pub(in super::super) struct Call {
    pub(in super::super) keys: Vec<Arc<[u8]>>,
    blob: Vec<u8>,
    ttls: SmallVec<[String; 2]>,
}

impl Call {
    /// The arguments.
    pub(in super::super) fn args(&self) -> SmallVec<[&[u8]; 3]> {
        std::iter::once(self.blob.as_slice()).chain(self.ttls.iter().map(String::as_bytes)).collect()
    }
}

/// Where a check is remembered, for the record in the same call.
pub(in super::super) struct Memory {
    pub(in super::super) key: Arc<[u8]>,
    /// The record's beginning: the script appends receipts and end.
    pub(in super::super) begin: Vec<u8>,
}

impl Draft {
    /// A call that decides checks of one lane. `line` says what is known of a counter; `None`: no ledger.
    #[cfg(any(test, feature = "test-util"))]
    pub(in super::super) fn checks(
        &self,
        checks: &[Counted],
        line: impl FnMut(&OwnedCharge) -> Option<Line>,
        memory: impl FnMut(&OwnedCheck) -> Option<Memory>,
    ) -> Call {
        self.checks_and_put_back(checks, line, |_| None, memory)
    }

    /// A call that decides checks of one lane, and first puts back what the store has lost of a counter, if anything. A
    /// check of no times does nothing else. `line` says what is known of a counter; `None`: no ledger.
    pub(in super::super) fn checks_and_put_back<'a>(
        &self,
        checks: &[Counted],
        mut line: impl FnMut(&OwnedCharge) -> Option<Line>,
        back: impl Fn(&OwnedCharge) -> Option<&'a PutBack>,
        mut memory: impl FnMut(&OwnedCheck) -> Option<Memory>,
    ) -> Call {
        let mut writer = Writer::new(checks.len());
        let repeated = repeated_keys(checks);
        // Values are read together where that reads no long one, nor what another program may keep there.
        writer.together = true;
        for counted in checks {
            let check = &counted.check;
            let plain = is_plain(check)
                && !check.charges.iter().any(|charge| back(charge).is_some())
                && !check.charges.iter().any(|charge| repeated.contains_key(charge.key.name()))
                && writer.shapes.len() + check.charges.len() <= usize::from(u8::MAX);
            if plain {
                writer.plain(counted, &mut line);
            } else {
                writer.together = false;
                writer.any(counted, &mut line, &back, memory(check));
            }
        }
        writer.together &= writer.keys.len() > 1;
        writer.finish(self, checks.len())
    }

    /// A call that gives back or charges more.
    pub(in super::super) fn settle(&self, parts: &[Settle]) -> Call {
        let mut writer = Writer::new(parts.len());
        for part in parts {
            writer.keys.push(part.key.clone());
            let limit = writer.limit(&part.limit);
            writer.blob.push(limit);
            writer.u32(part.give_back);
            writer.u32(part.charge);
            writer.u32(part.receipt.epoch);
            writer.u64(part.receipt.at_ms);
            writer.u32(part.receipt.units);
        }
        writer.finish(self, parts.len())
    }

    /// A call that empties counters.
    pub(in super::super) fn reset(&self, key: Arc<[u8]>, limit: &Limit) -> Call {
        let mut writer = Writer::new(1);
        writer.keys.push(key);
        let limit = writer.limit(limit);
        writer.blob.push(limit);
        writer.finish(self, 1)
    }
}

/// One counter to settle.
#[derive(Clone, Debug)]
pub(in super::super) struct Settle {
    pub(in super::super) key: Arc<[u8]>,
    pub(in super::super) limit: Limit,
    pub(in super::super) receipt: Receipt,
    pub(in super::super) give_back: Cost,
    pub(in super::super) charge: Cost,
}

/// Whether scripts/plain/ can decide a check, as long as none of its counters is in an unusual state.
fn is_plain(check: &OwnedCheck) -> bool {
    let ordinary = |charge: &OwnedCharge| {
        charge.terms == slidegate_core::check::Terms::default()
            && charge.limit.permits() > 0
            && (1..=charge.limit.capacity()).contains(&charge.cost)
            && match charge.limit.algorithm() {
                // Written at once, so nothing may be left to decide.
                Algorithm::SlidingLog => check.charges.len() == 1,
                Algorithm::LeakyBucket { max_delay } => u32::try_from(max_delay.get()).is_ok(),
                _ => true,
            }
    };
    let counters = 1..=usize::from(u8::MAX);
    !check.probe
        && check.lease == Millis::ZERO
        && check.reserve.is_none()
        && counters.contains(&check.charges.len())
        && check.charges.iter().all(ordinary)
}

/// Keys that more than one check names: a plain check does not look at what an earlier one left unwritten.
fn repeated_keys(checks: &[Counted]) -> HashMap<&[u8], ()> {
    let mut seen: HashMap<&[u8], u32> = HashMap::new();
    if checks.len() > 1 {
        for charge in checks.iter().flat_map(|counted| &counted.check.charges) {
            *seen.entry(charge.key.name()).or_default() += 1;
        }
    }
    seen.into_iter().filter(|(_, count)| *count > 1).map(|(key, _)| (key, ())).collect()
}

/// What counters of plain checks have in common, all but their names and lines.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    limit: u8,
    kind: u8,
    /// Counters of the check after this one.
    left: u8,
    times: u32,
    cost: Cost,
}

struct Writer {
    keys: Vec<Arc<[u8]>>,
    blob: Vec<u8>,
    limits: SmallVec<[Limit; 2]>,
    shapes: SmallVec<[Shape; 2]>,
    together: bool,
}

impl Writer {
    fn new(parts: usize) -> Self {
        Self {
            keys: Vec::with_capacity(parts),
            blob: Vec::with_capacity(parts * 26),
            limits: SmallVec::new(),
            shapes: SmallVec::new(),
            together: false,
        }
    }

    fn plain(&mut self, counted: &Counted, line: &mut impl FnMut(&OwnedCharge) -> Option<Line>) {
        let charges = &counted.check.charges;
        for (charge, left) in charges.iter().zip((0..charges.len()).rev()) {
            let line = line(charge);
            self.together &= line.is_none_or(|line| !line.long);
            // MGET finds nothing where there is a sorted set.
            self.together &= charge.limit.algorithm() != Algorithm::SlidingLog;
            let kind = kind_of(&charge.limit, line);
            let line = line.unwrap_or_default();
            let limit = self.limit(&charge.limit);
            let shape = Shape { limit, kind, left: byte(left), times: counted.times, cost: charge.cost };
            let known = self.shapes.iter().position(|known| *known == shape);
            let place = known.unwrap_or_else(|| {
                self.shapes.push(shape);
                self.shapes.len() - 1
            });
            self.keys.push(charge.key.shared_name().clone());
            self.blob.push(byte(place + 1));
            self.u64(line.ack);
            self.u64(line.reset_epoch);
        }
    }

    fn any<'a>(
        &mut self,
        counted: &Counted,
        line: &mut impl FnMut(&OwnedCharge) -> Option<Line>,
        back: &impl Fn(&OwnedCharge) -> Option<&'a PutBack>,
        memory: Option<Memory>,
    ) {
        let check = &counted.check;
        let flags = if check.probe { PROBE } else { RECEIPTS } | if memory.is_some() { REMEMBER } else { 0 };
        self.blob.extend([0, flags, byte(check.charges.len())]);
        self.u32(counted.times);
        self.u32(u32::try_from(check.lease.get()).unwrap_or(u32::MAX));
        for charge in &check.charges {
            self.keys.push(charge.key.shared_name().clone());
            let takes = !check.probe && charge.cost > 0;
            let line = if takes { line(charge) } else { None };
            let back = line.and_then(|_| back(charge));
            let limit = self.limit(&charge.limit);
            let flags = u8::from(charge.terms.shadow)
                | u8::from(charge.terms.count_denied) << 1
                | u8::from(line.is_some()) << 2
                | u8::from(line.is_some_and(|line| line.lapsed)) << 3
                | u8::from(back.is_some()) << 4;
            self.blob.extend([limit, byte(usize::from(charge.group)), flags]);
            self.u32(charge.cost);
            let line = line.unwrap_or_default();
            self.u64(line.ack);
            self.u64(line.reset_epoch);
            if let Some(back) = back {
                self.back(back, counted.times == 0);
            }
        }
        if let Some(memory) = memory {
            self.keys.push(memory.key);
            self.u16(memory.begin.len());
            self.blob.extend(memory.begin);
        }
    }

    fn back(&mut self, back: &PutBack, only: bool) {
        // More are never made. Of too many the oldest leave soonest.
        let entries = &back.entries[back.entries.len().saturating_sub(ENTRIES_MAX)..];
        self.u64(back.stored);
        self.blob.push(u8::from(back.accepted) | u8::from(only) << 1);
        self.u32(u32::try_from(back.lease.get()).unwrap_or(u32::MAX));
        self.u16(entries.len());
        for (age, count) in entries {
            push_u48(&mut self.blob, age.get());
            self.u32(*count);
        }
    }

    /// Each limit is sent once; most calls have one.
    fn limit(&mut self, limit: &Limit) -> u8 {
        let known = self.limits.iter().position(|known| known == limit);
        byte(known.unwrap_or_else(|| {
            self.limits.push(*limit);
            self.limits.len() - 1
        }))
    }

    fn finish(self, draft: &Draft, parts: usize) -> Call {
        let tables = self.limits.len() * LIMIT_LEN + self.shapes.len() * SHAPE_LEN;
        let mut blob = Vec::with_capacity(HEAD_LEN + tables + self.blob.len() + 1);
        blob.extend([draft.format, u8::from(draft.now.is_some()), u8::from(self.together)]);
        blob.extend([byte(self.limits.len()), byte(self.shapes.len())]);
        blob.extend(word(parts).to_le_bytes());
        blob.extend(draft.now.map_or(0, Now::as_micros).to_le_bytes());
        blob.extend(draft.seq.to_le_bytes());
        blob.extend(draft.identity);
        let mut ttls = SmallVec::new();
        for limit in &self.limits {
            let r = push_limit(&mut blob, limit);
            let window = limit.window().get();
            ttls.push((window + r + window.min(SLACK_MAX.get()) + draft.linger.get()).to_string());
        }
        for shape in &self.shapes {
            push_shape(&mut blob, shape, &self.limits);
        }
        blob.extend(self.blob);
        // Lua hashes the last byte of every string that it meets: no two calls in a row are alike in it.
        blob.extend(draft.seq.to_le_bytes().first());
        Call { keys: self.keys, blob, ttls }
    }

    fn u16(&mut self, value: usize) {
        self.blob.extend(word(value).to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.blob.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.blob.extend(value.to_le_bytes());
    }
}

/// Writes a limit and returns its tick length in ms, 0 where it has none.
pub(in super::super) fn push_limit(bytes: &mut Vec<u8>, limit: &Limit) -> u64 {
    let (code, param, r): (u8, u64, u32) = match limit.algorithm() {
        Algorithm::SlidingLog => (1, 0, 0),
        Algorithm::FixedWindow => (2, 0, 0),
        Algorithm::TokenBucket { burst } => (3, u64::from(burst), 0),
        Algorithm::LeakyBucket { max_delay } => (4, max_delay.get(), 0),
        Algorithm::SlidingWindow { resolution } => {
            (0, resolution.map_or(0, Millis::get), resolution_of(limit))
        }
        // Closed in core, and non-exhaustive only for its users.
        _ => (0, 0, resolution_of(limit)),
    };
    bytes.push(code);
    bytes.extend(limit.permits().to_le_bytes());
    push_u48(bytes, limit.window().get());
    push_u48(bytes, param);
    bytes.extend(r.to_le_bytes());
    u64::from(r)
}

/// How the script goes about a counter of a plain check.
fn kind_of(limit: &Limit, line: Option<Line>) -> u8 {
    match limit.algorithm() {
        Algorithm::SlidingLog => 3,
        Algorithm::FixedWindow => 4,
        Algorithm::TokenBucket { .. } => 5,
        Algorithm::LeakyBucket { .. } => 6,
        _ => line.map_or(2, |line| u8::from(line.lapsed)),
    }
}

/// With what scripts/plain/ needs of the limit, so that it reads one of the two.
fn push_shape(bytes: &mut Vec<u8>, shape: &Shape, limits: &[Limit]) {
    let limit = &limits[usize::from(shape.limit)];
    bytes.extend([shape.limit, shape.kind, shape.left]);
    bytes.extend(shape.times.to_le_bytes());
    bytes.extend(shape.cost.to_le_bytes());
    bytes.extend(limit.permits().to_le_bytes());
    push_u48(bytes, limit.window().get());
    let param = match limit.algorithm() {
        Algorithm::TokenBucket { burst } => burst,
        Algorithm::LeakyBucket { max_delay } => u32::try_from(max_delay.get()).unwrap_or(u32::MAX),
        Algorithm::SlidingLog | Algorithm::FixedWindow => 0,
        _ => resolution_of(limit),
    };
    bytes.extend(param.to_le_bytes());
}

fn push_u48(bytes: &mut Vec<u8>, value: u64) {
    bytes.extend(&value.to_le_bytes()[..6]);
}

/// Callers keep to 255 limits and charges, and to 65,535 keys.
fn byte(value: usize) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

fn word(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use slidegate_core::check::Terms;

    use super::*;
    use crate::pipeline::model::{charge, check};

    /// Scripts are called by their digest, so calls and scripts change together, and never unnoticed.
    #[test]
    fn the_bytes_of_a_call_are_pinned() {
        let draft = Draft {
            now: Some(Now::from_micros(1_700_000_000_123_456)),
            seq: 77,
            format: 1,
            identity: *b"identity",
            linger: Millis::ZERO,
        };
        let plain = OwnedCharge { exact: true, ..charge("a", 0, 5, 1000) };
        let lost = OwnedCharge { exact: true, ..charge("l", 0, 5, 1000) };
        let shadow = Terms { shadow: true, ..Terms::default() };
        let watched = OwnedCharge { terms: shadow, ..charge("d", 1, 5, 1000) };
        let checks = [
            check([plain]),
            check([charge("b", 0, 7, 2000), charge("c", 0, 5, 1000)]),
            check([charge("e", 0, 7, 2000), watched]),
        ];
        let counted = checks.map(|check| Counted { check: Arc::new(check), times: 3 });
        let line = |charge: &OwnedCharge| charge.exact.then_some(Line { ack: 76, ..Line::default() });
        let put = PutBack { stored: 70, accepted: true, entries: vec![(Millis(9), 2)], lease: Millis(3) };
        let counted = counted.into_iter().chain([Counted { check: Arc::new(check([lost])), times: 0 }]);
        let counted: Vec<Counted> = counted.collect();
        let back = |charge: &OwnedCharge| (charge.key.name() == b"l").then_some(&put);
        let call = draft.checks_and_put_back(&counted, line, back, |_| None);
        let names: Vec<&[u8]> = call.keys.iter().map(|key| &**key).collect();
        assert_eq!(names, [b"a", b"b", b"c", b"e", b"d", b"l"]);
        let args = call.args();
        assert_eq!(args[1..], [&b"2001"[..], b"4001"]);
        let hex: String = args[0].iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [
            "01010002030400",   // format, now is given, one by one, limits, shapes, parts
            "40222018240a0600", // now
            "4d00000000000000", // seq
            "6964656e74697479", // identity
            "0005000000e8030000000000000000000001000000", // 5/1s
            "0007000000d0070000000000000000000001000000", // 7/2s
            "000000030000000100000005000000e8030000000001000000", // shape 1: limit 0 with a ledger, 3 times, cost 1
            "010201030000000100000007000000d0070000000001000000", // shape 2: limit 1 without, and another counter
            "000200030000000100000005000000e8030000000001000000", // shape 3: limit 0 without
            "014c000000000000000000000000000000",                 // a check of shape 1, ack 76
            "0200000000000000000000000000000000",                 // a check of shape 2
            "0300000000000000000000000000000000",                 // and 3
            "0002020300000000000000", // another kind of check, receipts, 2 charges, 3 times, no lease
            "0100000100000000000000000000000000000000000000", // KEYS[4] under limit 1
            "0001010100000000000000000000000000000000000000", // KEYS[5] under limit 0, group 1, shadow
            "0002010000000000000000", // a check of no times
            "000014010000004c000000000000000000000000000000", // KEYS[6], ack 76
            "46000000000000000303000000010009000000000002000000", // put back after call 70: 2 of 9 ms ago, a lease of 3
            "4d",                                                 // the lowest byte of seq again
        ];
        assert_eq!(hex, parts.concat());
    }
}
