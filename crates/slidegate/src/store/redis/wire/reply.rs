//! Reads replies.

use slidegate_core::algorithm::bucket::Bucket;
use slidegate_core::algorithm::fixed_window::FixedWindow;
use slidegate_core::algorithm::tick_log::layout::Hot;
use slidegate_core::algorithm::tick_log::resolution_of;
use slidegate_core::algorithm::{Receipt, State};
use slidegate_core::decision::{Cost, Mode, Outcome};
use slidegate_core::limit::Algorithm;
use slidegate_core::time::{Millis, Now};
use smallvec::SmallVec;

use super::VERSION;
use crate::pipeline::batch::{Counted, Decided, OwnedCharge};
use crate::store::{Answer, Certainty};

/// Entries of a value that is read together with others: about 0.5 kB with the rows of eight instances. What that
/// takes longer to read is still less than a command of its own would cost.
const ENTRIES_SHORT: u32 = 32;

/// How a counter of a plain check begins: a part of a tick log's header, or a value; granted whole, refused by this
/// counter, or granted in part since others refused. 2 begins a check by check.lua.
const WHOLE_LOG: u8 = 0;
const REFUSED_LOG: u8 = 1;
const PART_LOG: u8 = 3;
const WHOLE_VALUE: u8 = 4;
const REFUSED_VALUE: u8 = 5;
const PART_VALUE: u8 = 6;

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
    /// A call with a higher seq was executed before; or a call that only puts back found nothing to put back.
    Stale {
        /// The last call of this instance that the store knows of.
        stored: u64,
    },
    /// The store has forgotten grants of this instance.
    Behind {
        /// The last of its calls that the store knows of.
        stored: u64,
    },
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
    if *reader.0.first()? != 2 {
        return read_plain(reader, counted, now);
    }
    reader.u8()?;
    let (status, granted) = (reader.u8()?, reader.u32()?);
    if status != 0 {
        let stored = reader.u64()?;
        return Some(Err(match status {
            1 => Undecided::Stale { stored },
            2 => Undecided::Behind { stored },
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

/// A plain check, counter by counter, from what its values are or what has changed of their headers. What they say
/// is said as check.lua would.
fn read_plain(reader: &mut Reader<'_>, counted: &Counted, now: Now) -> Option<Reply> {
    let (mut granted, mut long) = (counted.times, false);
    let (mut outcomes, mut receipts, mut reset_epochs) = (SmallVec::new(), SmallVec::new(), SmallVec::new());
    for charge in &counted.check.charges {
        let kind = *reader.0.first()?;
        if kind != WHOLE_LOG {
            reader.u8()?;
        }
        if matches!(kind, REFUSED_LOG | PART_LOG | REFUSED_VALUE | PART_VALUE) {
            granted = u32::from_be_bytes(reader.take()?);
        }
        let units = granted.checked_mul(charge.cost)?;
        let refused = matches!(kind, REFUSED_LOG | REFUSED_VALUE);
        let (outcome, receipt) = match kind {
            WHOLE_LOG | REFUSED_LOG | PART_LOG => {
                let header = Hot::read(reader.take()?);
                long |= header.entries > ENTRIES_SHORT;
                log_outcome(&header, charge, units, refused, now)?
            }
            WHOLE_VALUE | REFUSED_VALUE | PART_VALUE => read_value(reader, charge, units, refused, now)?,
            _ => return None,
        };
        outcomes.push(outcome);
        receipts.push(Some(receipt).filter(|receipt| receipt.units > 0));
        reset_epochs.push(None);
    }
    let answer = Answer { granted, outcomes, mode: Mode::Normal, certainty: Certainty::Exact };
    Some(Ok(Told { decided: Decided { answer, receipts }, reset_epochs, long }))
}

/// The oldest entry always holds permits, and no more than one permit was missing.
fn log_outcome(
    header: &Hot,
    charge: &OwnedCharge,
    units: Cost,
    refused: bool,
    now: Now,
) -> Option<(Outcome, Receipt)> {
    let r_ms = u64::from(resolution_of(&charge.limit));
    let leaves_ms = header.oldest_tick().checked_mul(r_ms)? + charge.limit.window().get();
    let used = header.used;
    let free = if used > 0 { Millis(leaves_ms.saturating_sub(now.floor_ms())) } else { Millis::ZERO };
    let at_ms = header.last_tick.checked_mul(r_ms)?;
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
    Some((outcome, Receipt { epoch: header.epoch, at_ms, units }))
}

/// A counter of a few numbers. Core says of it what a caller is told.
fn read_value(
    reader: &mut Reader<'_>,
    charge: &OwnedCharge,
    units: Cost,
    refused: bool,
    now: Now,
) -> Option<(Outcome, Receipt)> {
    let limit = &charge.limit;
    let mut delay = Millis::ZERO;
    let [_format, _kind, 0, 0] = reader.take()? else { return None };
    let epoch = u32::from_be_bytes(reader.take()?);
    let (state, at_ms) = if limit.algorithm() == Algorithm::FixedWindow {
        let used = u32::from_be_bytes(reader.take()?);
        let charged_ms = u64::from_be_bytes(reader.take()?);
        (State::FixedWindow(FixedWindow::stored(epoch, used, charged_ms)), charged_ms)
    } else {
        let _window_ms: [u8; 8] = reader.take()?;
        let backlog = u32::from_be_bytes(reader.take()?);
        let remainder = u64::from_be_bytes(reader.take()?);
        let drained_ms = u64::from_be_bytes(reader.take()?);
        if matches!(limit.algorithm(), Algorithm::LeakyBucket { .. }) {
            delay = Millis(u64::from_be_bytes(reader.take()?));
        }
        let (bucket, begin) = (Bucket::stored(epoch, backlog, remainder, drained_ms, now, limit), drained_ms);
        (State::Bucket(bucket), begin)
    };
    // The script leaves a clock that went back to check.lua.
    if at_ms > now.ceil_ms() {
        return None;
    }
    let outcome = Outcome { delay, ..state.outcome(now, limit, charge.cost, refused) };
    Some((outcome, Receipt { epoch, at_ms, units }))
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
