//! What is remembered of a reservation, so that whichever instance settles it can: a value of its own, taken
//! out of the store by the first who settles.
//!
//! | record | bytes |
//! |---|---|
//! | version 1, number of counters | 1, 1 |
//! | for each counter: length of its name, name, limit as in a call, cost | 2, n, 21, 4 |
//! | for each counter, its receipt: epoch, ms, units | 4, 8, 4 |

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

/// A record but for its receipts, which the script appends.
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

/// A whole record, of what was taken in several lanes at one cost each.
pub(super) fn whole(taken: &[(Taken, Cost)]) -> Vec<u8> {
    let mut bytes = begin(taken.iter().map(|(taken, cost)| (taken.key.name(), &taken.limit, *cost)));
    for (Taken { receipt, .. }, _) in taken {
        bytes.extend(receipt.epoch.to_le_bytes());
        bytes.extend(receipt.at_ms.to_le_bytes());
        bytes.extend(receipt.units.to_le_bytes());
    }
    bytes
}

/// Reads a record; `None` if these are not the bytes of one.
pub(super) fn read(bytes: &[u8]) -> Option<Vec<Reserved>> {
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
    rest.is_empty().then_some(reserved)
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
