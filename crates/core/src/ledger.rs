//! Ledger rows: what a key remembers of the last call of each instance, and what the next call learns from it.
//!
//! With asynchronous replication the last writes before a failover are lost, and replies are lost at any time.
//! A row lets the next call of an instance find out what became of its last one: executed, lost on the way
//! back, or lost with the old master. The comparison is the twin of `compare` in the script of the tick log.
//!
//! # The life of a call
//! [`Image::settle`], then [`compare`]; if it says [`Verdict::Decide`], the decision and [`Image::charge`], and
//! last [`record`]. All with the same `now` and `limit`.
//!
//! # What instances promise
//! * One identity for each instance, random and the same for as long as it runs.
//! * `seq` rises with every call of the instance, whatever its key, and is below 2^53. Never two calls of one
//!   key at a time: the next one leaves when the last was answered or given up.
//! * `ack` is the `seq` of the last call that granted permits of this key and whose reply was accepted; 0 if
//!   there was none. A reply to a call that was given up is not accepted any more.
//!
//! * No call is sent twice. One that was answered by an old master and reached a new one too would leave a row that
//!   knows its number and not its grant. (A duplicate on one master is stale.)
//!
//! # Invariants
//! * A call is executed at most once with an effect: one that comes after a later one of its instance is stale.
//! * Of each instance the log holds what it accepted, and at most one grant more: the last, if its reply was
//!   lost. So permits are never spent that are not counted, and lost ones don't add up.
//! * A row is written only by a call that granted or took back: denials leave the value as it is.
//!
//! # After a failover
//! Whoever is told [`Verdict::Behind`] calls again with what the key is missing
//! ([`Grants`](crate::instance::grants::Grants)), and [`put_back`] takes the place of [`compare`].

use crate::algorithm::tick_log::image::Image;
use crate::instance::grants::PutBack;
use crate::limit::Limit;
use crate::time::Now;

/// The most rows of one key: instances that were granted permits of it within a window. The oldest row
/// makes way for a new one.
pub const ROWS_MAX: usize = 64;

/// The last executed call of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Who.
    pub identity: u64,
    /// The sequence number of its last executed call, below 2^53. 32 bits would be used up by an instance that
    /// calls 1000 times a second in 49.7 days.
    pub seq: u64,
    /// Permits that this call was granted.
    pub count: u32,
    /// The low 32 bits of the tick that they went to.
    pub tick: u32,
}

/// What a call says of itself and of the last one of its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Who calls.
    pub identity: u64,
    /// The number of this call.
    pub seq: u64,
    /// The number of the last call with a grant that was accepted, 0 if there is none.
    pub ack: u64,
    /// The [`reset_epoch`](Image::reset_epoch) that the instance was told last.
    pub reset_epoch: u64,
    /// Everything that the instance was granted has left its window by its own clock: there is nothing that it
    /// could put back.
    pub lapsed: bool,
}

/// What becomes of a call. `stored` is the last sequence number that the key knows of the instance, 0 if none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is decided.
    Decide,
    /// A late duplicate, or overtaken by a later call: nothing is changed, and nobody waits for the answer.
    Stale {
        /// A later call was executed, or this one before.
        stored: u64,
    },
    /// Grants after `stored` were lost with an old master: nothing is changed. The instance calls again with
    /// what it was granted since.
    Behind {
        /// What the new master knows of.
        stored: u64,
    },
}

/// Compares sequence numbers, and takes the grant of a reply that never arrived out of its tick: the instance
/// has not spent it, and never will.
pub fn compare(image: &mut Image, call: &Call) -> Verdict {
    let at = position(image, call.identity);
    if let Some(stored) = behind(image, at, call) {
        return Verdict::Behind { stored };
    }
    let Some(at) = at else { return Verdict::Decide };
    let Row { seq: stored, count, tick, .. } = image.ledger[at];
    if call.seq <= stored {
        return Verdict::Stale { stored };
    }
    // A row without a grant says enough: a denial leaves it as it is.
    if stored > call.ack && count > 0 {
        image.take_back(tick, count);
        // At once, so that it can't be taken back again, whatever this call is granted.
        image.ledger[at] = Row { identity: call.identity, seq: call.seq, count: 0, tick: image.last_tick() };
    }
    Verdict::Decide
}

/// Compares, and puts back what the instance says was lost if the key still knows as little of it as then. `only`: the
/// call asks for nothing else. Then it must take back nothing either: it is made beside the instance's checks, whose
/// last grant it may not know to be accepted; it is [`Verdict::Stale`] where there is nothing to put back any more.
///
/// Twice has the same effect as once: the row says the number of the call that has put back.
pub fn put_back(
    image: &mut Image,
    now: Now,
    limit: &Limit,
    call: &Call,
    back: &PutBack,
    only: bool,
) -> Verdict {
    let at = position(image, call.identity);
    let known = at.map_or(0, |at| image.ledger[at].seq);
    match behind(image, at, call) {
        Some(stored) if stored == back.stored => {}
        _ if only => return Verdict::Stale { stored: known },
        _ => return compare(image, call),
    }
    if let Some(at) = at
        && !back.accepted
    {
        let Row { count, tick, .. } = image.ledger[at];
        if image.take_back(tick, count) > 0 && image.used() == 0 {
            image.settle(now, limit);
        }
    }
    let units = image.put_back(now, limit, &back.entries, back.lease);
    let row = Row { identity: call.identity, seq: call.seq, count: 0, tick: image.last_tick() };
    match at {
        Some(at) => image.ledger[at] = row,
        None if units > 0 => {
            make_space(image, now, limit);
            image.ledger.push(row);
        }
        None => {}
    }
    Verdict::Decide
}

/// What the key knows of last, if grants after it were lost.
fn behind(image: &Image, at: Option<usize>, call: &Call) -> Option<u64> {
    let (stored, lost) = match at {
        // A key that knows of an earlier reset has lost the last one, or itself.
        None => (0, call.ack > 0 && call.reset_epoch >= image.reset_epoch),
        Some(at) => {
            let stored = image.ledger[at].seq;
            (stored, stored < call.ack && stored < call.seq)
        }
    };
    (lost && !call.lapsed).then_some(stored)
}

/// Writes down what a call was granted, after it was charged. Without a grant the row stays as it is, or says 0
/// if a lost grant was taken back.
pub fn record(image: &mut Image, now: Now, limit: &Limit, identity: u64, seq: u64, granted: u32) {
    let row = Row { identity, seq, count: granted, tick: image.last_tick() };
    match position(image, identity) {
        Some(at) if granted > 0 || image.ledger[at].seq == seq => image.ledger[at] = row,
        None if granted > 0 => {
            make_space(image, now, limit);
            image.ledger.push(row);
        }
        _ => {}
    }
}

/// A full ledger loses the rows whose permits have left the window; if there are none, the oldest row. Its
/// instance is told that it is behind, puts back what is still there, and is counted twice: too much, never too
/// little.
fn make_space(image: &mut Image, now: Now, limit: &Limit) {
    if image.ledger.len() < ROWS_MAX {
        return;
    }
    let mut rows = core::mem::take(&mut image.ledger);
    rows.retain(|row| !image.has_left(row.tick, now, limit));
    if rows.len() >= ROWS_MAX
        // The first of them, if several are of one age.
        && let Some(oldest) = (0..rows.len()).rev().max_by_key(|at| image.age_ticks(rows[*at].tick))
    {
        rows.remove(oldest);
    }
    image.ledger = rows;
}

fn position(image: &Image, identity: u64) -> Option<usize> {
    image.ledger.iter().position(|row| row.identity == identity)
}

#[cfg(test)]
mod put_back_tests;
#[cfg(test)]
mod tests;
