//! What is remembered of a reservation, so that whichever instance settles it can: a value of its own, taken
//! out of the store by the first who settles.
//!
//! | record | bytes |
//! |---|---|
//! | version 1, number of counters | 1, 1 |
//! | for each counter: length of its name, name, limit as in a call, cost | 2, n, 21, 4 |
//! | for each counter, its receipt: epoch, ms, units | 4, 8, 4 |
//! | when it ends, in ms on the store's clock | 8 |

use std::sync::Arc;

use slidegate_core::algorithm::Receipt;
use slidegate_core::decision::Cost;
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_core::time::Millis;

use super::wire::push_limit;
use crate::pipeline::batch::Taken;

const VERSION: u8 = 1;

/// One counter of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reserved {
    pub(super) key: Arc<[u8]>,
    pub(super) limit: Limit,
    pub(super) cost: Cost,
    pub(super) receipt: Receipt,
}

/// A reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) reserved: Vec<Reserved>,
    /// When nothing of it can be given back any more, in ms on the store's clock.
    pub(super) ends_ms: u64,
}

/// A record but for its receipts and end, which the script appends.
pub(super) fn begin<'a>(counters: impl ExactSizeIterator<Item = (&'a [u8], &'a Limit, Cost)>) -> Vec<u8> {
    let count = u8::try_from(counters.len()).unwrap_or(u8::MAX);
    let mut bytes = vec![VERSION, count];
    for (name, limit, cost) in counters {
        bytes.extend(u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend(name);
        push_limit(&mut bytes, limit);
        bytes.extend(cost.to_le_bytes());
    }
    bytes
}

/// A whole record, of what was taken in several lanes.
pub(super) fn whole(taken: &[Taken], ends_ms: u64) -> Vec<u8> {
    fn counter(taken: &Taken) -> (&[u8], &Limit, Cost) {
        let Taken { key, limit, receipt } = taken;
        (key.name(), limit, receipt.units)
    }
    let mut bytes = begin(taken.iter().map(counter));
    for Taken { receipt, .. } in taken {
        bytes.extend(receipt.epoch.to_le_bytes());
        bytes.extend(receipt.at_ms.to_le_bytes());
        bytes.extend(receipt.units.to_le_bytes());
    }
    bytes.extend(ends_ms.to_le_bytes());
    bytes
}

/// Reads a record; `None` if these are not the bytes of one.
pub(super) fn read(bytes: &[u8]) -> Option<Record> {
    let mut rest = bytes;
    let [version, count] = take(&mut rest)?;
    if version != VERSION {
        return None;
    }
    let mut reserved = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let len = usize::from(u16::from_le_bytes(take(&mut rest)?));
        let (name, after) = rest.split_at_checked(len)?;
        rest = after;
        let limit = read_limit(take(&mut rest)?)?;
        let cost = u32::from_le_bytes(take(&mut rest)?);
        let receipt = Receipt { epoch: 0, at_ms: 0, units: 0 };
        reserved.push(Reserved { key: name.into(), limit, cost, receipt });
    }
    for reserved in &mut reserved {
        let receipt = &mut reserved.receipt;
        receipt.epoch = u32::from_le_bytes(take(&mut rest)?);
        receipt.at_ms = u64::from_le_bytes(take(&mut rest)?);
        receipt.units = u32::from_le_bytes(take(&mut rest)?);
    }
    // A counter that only watched and had no room took nothing: there is nothing to settle.
    reserved.retain(|reserved| reserved.receipt.units > 0 || reserved.cost == 0);
    let ends_ms = u64::from_le_bytes(take(&mut rest)?);
    rest.is_empty().then_some(Record { reserved, ends_ms })
}

fn read_limit(bytes: [u8; 21]) -> Option<Limit> {
    let mut rest = &bytes[..];
    let [code] = take(&mut rest)?;
    let permits = u32::from_le_bytes(take(&mut rest)?);
    let (window, param) = (read_u48(&mut rest)?, read_u48(&mut rest)?);
    let algorithm = match code {
        0 => Algorithm::SlidingWindow { resolution: (param > 0).then_some(Millis(param)) },
        1 => Algorithm::SlidingLog,
        2 => Algorithm::FixedWindow,
        3 => Algorithm::TokenBucket { burst: u32::try_from(param).ok()? },
        4 => Algorithm::LeakyBucket { max_delay: Millis(param) },
        _ => return None,
    };
    Limit::new(u64::from(permits), Millis(window)).ok()?.with_algorithm(algorithm).ok()
}

fn read_u48(rest: &mut &[u8]) -> Option<u64> {
    let [a, b, c, d, e, f] = take(rest)?;
    Some(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}
