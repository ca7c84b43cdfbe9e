//! One script call as the store executes it: the twin of `check.lua`, in the core's own steps.
//!
//! Mirrors `store/redis/scripts/check.lua` and `settle.lua`, `reset.lua`; the same as the model that the scripts are
//! held against (`store/redis/twins/model.rs`), for one counter.

use std::fmt;

use slidegate_core::algorithm::tick_log::layout::Image;
use slidegate_core::algorithm::{EPOCH_STRIDE, Receipt, State};
use slidegate_core::check::{Charge, Terms, decide};
use slidegate_core::instance::grants::PutBack;
use slidegate_core::ledger::{self, Verdict};
use slidegate_core::limit::Limit;
use slidegate_core::time::{Millis, Now};

use crate::broken::Broken;

/// Equal checks that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Party {
    pub(crate) cost: u32,
    pub(crate) times: u32,
}

/// What one call asks of one counter.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) limit: Limit,
    pub(crate) identity: u64,
    pub(crate) seq: u64,
    /// What it says of the ledger; `None` with `failover: fast`.
    pub(crate) line: Option<ledger::Call>,
    /// What the store has forgotten, after it said so.
    pub(crate) put_back: Option<PutBack>,
    /// What is granted may be spent until so long after the call.
    pub(crate) lease: Millis,
    pub(crate) parties: Vec<Party>,
}

/// What the call is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// One for each party: how often it was granted, and what names the permits.
    Decided {
        granted: Vec<(u32, Option<Receipt>)>,
        reset_epoch: u64,
    },
    Stale,
    Behind {
        stored: u64,
    },
}

/// In a line of a trace.
impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {} seq {}", self.limit, self.identity % 1000, self.seq)?;
        if let Some(line) = &self.line {
            let lapsed = if line.lapsed { " lapsed" } else { "" };
            write!(f, " ack {} reset {}{lapsed}", line.ack, line.reset_epoch)?;
        }
        if let Some(back) = &self.put_back {
            let accepted = if back.accepted { "" } else { " (lost)" };
            write!(f, " puts back after {}{accepted} lease {}:", back.stored, back.lease)?;
            back.entries.iter().try_for_each(|(age, count)| write!(f, " {count} of {age} ago"))?;
        }
        self.parties.iter().try_for_each(|party| write!(f, ", {} x {}", party.times, party.cost))
    }
}

/// In a line of a trace.
impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decided { granted, reset_epoch: 0 } => {
                granted.iter().try_for_each(|(times, _)| write!(f, "{times} "))
            }
            Self::Decided { granted, reset_epoch } => {
                granted.iter().try_for_each(|(times, _)| write!(f, "{times} "))?;
                write!(f, "reset {reset_epoch}")
            }
            Self::Stale => f.write_str("stale"),
            Self::Behind { stored } => write!(f, "behind {stored}"),
        }
    }
}

/// The epoch of a counter that begins now.
pub(crate) fn epoch_at(now: Now) -> u32 {
    u32::try_from(now.floor_ms() & u64::from(u32::MAX)).unwrap_or_default()
}

/// Executes a call on a counter.
pub(crate) fn check(image: &mut Image, now: Now, ask: &Ask, broken: Broken) -> Told {
    let limit = &ask.limit;
    image.settle(now, limit);
    if let Some(line) = &ask.line {
        let verdict = match &ask.put_back {
            Some(back) => ledger::put_back(image, now, limit, line, back, false),
            None => ledger::compare(image, line),
        };
        match verdict {
            Verdict::Decide => image.settle(now, limit),
            Verdict::Stale { .. } => return Told::Stale,
            Verdict::Behind { stored } => return Told::Behind { stored },
        }
    }
    let lease = if broken == Broken::LeasesWithoutSpan { Millis::ZERO } else { ask.lease };
    let granted: Vec<_> = ask.parties.iter().map(|party| charge(image, now, limit, *party, lease)).collect();
    if ask.line.is_some() {
        let units = granted.iter().map(|(_, receipt)| receipt.map_or(0, |receipt| receipt.units)).sum();
        ledger::record(image, now, limit, ask.identity, ask.seq, units);
    }
    Told::Decided { granted, reset_epoch: image.reset_epoch }
}

fn charge(image: &mut Image, now: Now, limit: &Limit, party: Party, lease: Millis) -> (u32, Option<Receipt>) {
    let mut state = State::TickLog(image.log.clone());
    if lease > Millis::ZERO {
        // `decide` knows no leases.
        let granted = state.room(limit, party.cost).min(party.times);
        let receipt = image.charge(now, limit, granted.saturating_mul(party.cost), lease);
        return (granted, Some(receipt).filter(|receipt| receipt.units > 0));
    }
    let mut charges = [Charge::new(&mut state, limit, party.cost, 0, Terms::default())];
    let granted = decide(now, party.times, &mut charges);
    let receipt = charges[0].receipt.filter(|receipt| receipt.units > 0);
    if let State::TickLog(log) = state {
        image.adopt(log);
    }
    (granted, receipt)
}

/// Puts back and asks for nothing else. Returns the last call that the key knows of, unless something was put back.
pub(crate) fn put_back(
    image: &mut Image,
    now: Now,
    limit: &Limit,
    call: &ledger::Call,
    back: &PutBack,
) -> Option<u64> {
    image.settle(now, limit);
    match ledger::put_back(image, now, limit, call, back, true) {
        Verdict::Decide => None,
        Verdict::Stale { stored } | Verdict::Behind { stored } => Some(stored),
    }
}

/// Gives permits back; returns how many. The limit is that of the receipt, and the counter may be under another one by
/// now, with a longer window: so nothing is dropped that only the old one would drop.
pub(crate) fn settle(image: &mut Image, now: Now, limit: &Limit, receipt: &Receipt) -> u32 {
    let mut state = State::TickLog(image.log.clone());
    let given = state.refund(now, limit, receipt, receipt.units);
    if let State::TickLog(log) = state {
        image.adopt(log);
    }
    given
}

/// Empties a counter.
pub(crate) fn reset(image: &mut Image, now: Now, limit: &Limit) {
    let epoch = State::TickLog(image.log.clone()).epoch().wrapping_add(EPOCH_STRIDE);
    let reset_epoch = (image.reset_epoch + 1).max(now.floor_ms());
    *image = Image::new(epoch);
    image.reset_epoch = reset_epoch;
    image.settle(now, limit);
}

/// How long after `now` the store keeps the value, in milliseconds; none: it is not there.
pub(crate) fn keeps_ms(image: &Image, now: Now, limit: &Limit) -> u64 {
    let state = State::TickLog(image.log.clone());
    let window = limit.window().get();
    let slack = image.log.resolution().get() + window.min(60_000);
    state.expires_at_ms(limit).saturating_sub(now.floor_ms()).max(window) + slack
}
