//! Reads replies.

use slidegate_core::algorithm::Receipt;
use slidegate_core::algorithm::tick_log::layout::Hot;
use slidegate_core::algorithm::tick_log::resolution_of;
use slidegate_core::decision::{Cost, Mode, Outcome};
use slidegate_core::time::{Millis, Now};
use smallvec::{SmallVec, smallvec};

use super::VERSION;
use crate::pipeline::batch::{Counted, Decided, OwnedCharge};
use crate::store::{Answer, Certainty};

/// Entries of a value that is read together with others: about 0.5 kB with the rows of eight instances. What that
/// takes longer to read is still less than a command of its own would cost.
const ENTRIES_SHORT: u32 = 32;

/// What one check of a call came to.
pub(in super::super) type Reply = Result<Told, Undecided>;

/// A check that was decided.
#[derive(Clone, Debug)]
pub(in super::super) struct Told {
    pub(in super::super) decided: Decided,
    /// The last reset of each counter, where the reply says it.
    pub(in super::super) reset_epochs: SmallVec<[Option<u64>; 2]>,
    /// Whether the value is so long that it is better not read whole.
    pub(in super::super) long: bool,
}

/// Why a check was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Undecided {
    /// A call with a higher seq was executed before.
    Stale,
    /// The store has forgotten grants of this instance.
    Behind,
    /// Another program's key.
    Foreign,
    /// A counter of a newer release.
    Newer,
}

/// The replies to `checks`; `None` if these are not the bytes of one.
pub(in super::super) fn read_checks(bytes: &[u8], checks: &[Counted]) -> Option<Vec<Reply>> {
    let (told, now) = bytes.split_last_chunk()?;
    let now = Now::from_micros(u64::from_be_bytes(*now));
    let mut reader = Reader(told);
    reader.version()?;
    let replies =
        checks.iter().map(|counted| read_check(&mut reader, counted, now)).collect::<Option<_>>()?;
    reader.end()?;
    Some(replies)
}

/// What was given back and charged, for each part of a settling call.
pub(in super::super) fn read_settled(bytes: &[u8], parts: usize) -> Option<Vec<(Cost, Cost)>> {
    let (told, _now) = bytes.split_last_chunk::<8>()?;
    let mut reader = Reader(told);
    reader.version()?;
    let settled = (0..parts).map(|_| Some((reader.u32()?, reader.u32()?))).collect::<Option<_>>()?;
    reader.end()?;
    Some(settled)
}

fn read_check(reader: &mut Reader<'_>, counted: &Counted, now: Now) -> Option<Reply> {
    match *reader.0.first()? {
        0 => return read_plain(reader, counted, counted.times, now),
        1 => {
            reader.u8()?;
            let granted = u32::from_be_bytes(reader.take()?);
            return read_plain(reader, counted, granted, now);
        }
        _ => reader.u8()?,
    };
    let (status, granted) = (reader.u8()?, reader.u32()?);
    if status != 0 {
        let _last_seq = reader.u64()?;
        return Some(Err(match status {
            1 => Undecided::Stale,
            2 => Undecided::Behind,
            4 => Undecided::Newer,
            _ => Undecided::Foreign,
        }));
    }
    let mut outcomes = SmallVec::new();
    let mut receipts = SmallVec::new();
    let mut reset_epochs = SmallVec::new();
    for charge in &counted.check.charges {
        let (outcome, reset_epoch) = read_outcome(reader, charge)?;
        outcomes.push(outcome);
        reset_epochs.push(Some(reset_epoch));
        if !counted.check.probe {
            let receipt = Receipt { epoch: reader.u32()?, at_ms: reader.u64()?, units: reader.u32()? };
            receipts.push(Some(receipt).filter(|receipt| receipt.units > 0));
        }
    }
    let answer = Answer { granted, outcomes, mode: Mode::Normal, certainty: Certainty::Exact };
    Some(Ok(Told { decided: Decided { answer, receipts }, reset_epochs, long: true }))
}

/// A plain check, from what has changed of its value's header. What it says is said as the script would: the
/// oldest entry always holds permits, and no more than one permit was missing.
fn read_plain(reader: &mut Reader<'_>, counted: &Counted, granted: u32, now: Now) -> Option<Reply> {
    let [charge] = counted.check.charges.as_slice() else { return None };
    let header = Hot::read(reader.take()?);
    let r_ms = u64::from(resolution_of(&charge.limit));
    let leaves_ms = header.oldest_tick().checked_mul(r_ms)? + charge.limit.window().get();
    let free = Millis(leaves_ms.saturating_sub(now.floor_ms()));
    let at_ms = header.last_tick.checked_mul(r_ms)?;
    let units = granted.checked_mul(charge.cost)?;
    let receipt = Receipt { epoch: header.epoch, at_ms, units };
    let (used, refused) = (header.used, granted < counted.times);
    let permits = charge.limit.permits();
    let outcome = Outcome {
        limit: permits,
        used: used.min(permits),
        remaining: permits.saturating_sub(used),
        reset_after: free,
        violated: refused,
        retry_after: refused.then_some(free),
        delay: Millis::ZERO,
    };
    let answer =
        Answer { granted, outcomes: smallvec![outcome], mode: Mode::Normal, certainty: Certainty::Exact };
    let receipts = smallvec![Some(receipt).filter(|receipt| receipt.units > 0)];
    Some(Ok(Told {
        decided: Decided { answer, receipts },
        reset_epochs: smallvec![None],
        long: header.entries > ENTRIES_SHORT,
    }))
}

fn read_outcome(reader: &mut Reader<'_>, charge: &OwnedCharge) -> Option<(Outcome, u64)> {
    let flags = reader.u8()?;
    let (used, remaining) = (reader.u32()?, reader.u32()?);
    let (reset, wait, delay) = (reader.u48()?, reader.u48()?, reader.u48()?);
    let outcome = Outcome {
        limit: charge.limit.capacity(),
        used,
        remaining,
        reset_after: Millis(reset),
        violated: flags & 1 > 0,
        retry_after: (flags & 2 > 0).then_some(Millis(wait)),
        delay: Millis(delay),
    };
    Some((outcome, reader.u64()?))
}

/// The rest of a reply.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn version(&mut self) -> Option<()> {
        (self.u8()? == VERSION).then_some(())
    }

    fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u48(&mut self) -> Option<u64> {
        let [a, b, c, d, e, f] = self.take()?;
        Some(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}
