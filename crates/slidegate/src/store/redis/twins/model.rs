//! What core makes of a call: the values under its keys before it, the reply and the values after it.
//!
//! Of tick logs only. A step begins with the bytes that the server holds, so every step is a comparison of its
//! own, and a difference shows where it arises.

use std::collections::BTreeMap;

use slidegate_core::algorithm::tick_log::layout::{
    HEAD_AT, Image, LAST_TICK_AT, RING_CAPACITY_AT, decode, encode,
};
use slidegate_core::algorithm::tick_log::resolution_of;
use slidegate_core::algorithm::{EPOCH_STRIDE, Receipt, State};
use slidegate_core::check::{self, Charge};
use slidegate_core::decision::Outcome;
use slidegate_core::instance::grants::PutBack;
use slidegate_core::ledger::{self, Call, Row, Verdict};
use slidegate_core::limit::Limit;
use slidegate_core::time::{Millis, Now};

use crate::pipeline::batch::{Counted, OwnedCharge};
use crate::store::redis::wire;
use crate::store::redis::wire::{Draft, Line, Reply, Settle, Undecided};

/// What a check is expected to come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Decided { granted: u32, outcomes: Vec<Outcome>, receipts: Vec<Option<Receipt>> },
    Stale { stored: u64 },
    Behind { stored: u64 },
    Other,
}

impl Told {
    pub(super) fn of(reply: Reply) -> Self {
        match reply {
            Ok(wire::Told { decided, .. }) => Self::Decided {
                granted: decided.answer.granted,
                outcomes: decided.answer.outcomes.to_vec(),
                receipts: decided.receipts.to_vec(),
            },
            Err(Undecided::Stale { stored }) => Self::Stale { stored },
            Err(Undecided::Behind { stored }) => Self::Behind { stored },
            Err(Undecided::Foreign | Undecided::Newer) => Self::Other,
        }
    }
}

/// One key of a call.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// What it held; `None`: it was not there.
    pub(super) before: Option<Image>,
    /// What it holds.
    pub(super) after: Image,
    /// The limit that it was held to last.
    pub(super) limit: Option<Limit>,
    /// What comparing came to, once for a call.
    verdict: Option<Verdict>,
    granted: u32,
    /// By how much its last tick may have been rounded up while it was empty, in ms: once for each settling.
    rounded: u64,
}

/// The keys of one call.
pub(super) struct Book {
    now: Now,
    /// The script may come to something else here. A counter that settling twice leaves otherwise than settling
    /// once: after a step of the clock, ticks longer than the window leave as one that is alone, and then move
    /// once more; `decide` settles for itself, the script only once. Or one that is settled up under an old limit.
    pub(super) restless: bool,
    pub(super) pages: BTreeMap<Vec<u8>, Page>,
}

impl Book {
    pub(super) fn open(now: Now, values: impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)>) -> Self {
        let pages = values.map(|(key, value)| {
            let before = value.map(|bytes| decode(&bytes).unwrap());
            let after = before.clone().unwrap_or_else(|| Image::new(epoch_at(now)));
            (key, Page { before, after, limit: None, verdict: None, granted: 0, rounded: 0 })
        });
        Self { now, restless: false, pages: pages.collect() }
    }

    /// The twin of check.lua.
    pub(super) fn checks<'a>(
        &mut self,
        draft: &Draft,
        checks: &[Counted],
        line: impl Fn(&OwnedCharge) -> Option<Line>,
        back: impl Fn(&OwnedCharge) -> Option<&'a PutBack>,
    ) -> Vec<Told> {
        let told = checks.iter().map(|counted| self.check(draft, counted, &line, &back)).collect();
        for page in self.pages.values_mut().filter(|page| page.verdict == Some(Verdict::Decide)) {
            let (limit, identity) = (page.limit.unwrap(), u64::from_be_bytes(draft.identity));
            ledger::record(&mut page.after, self.now, &limit, identity, draft.seq, page.granted);
        }
        told
    }

    fn check<'a>(
        &mut self,
        draft: &Draft,
        counted: &Counted,
        line: impl Fn(&OwnedCharge) -> Option<Line>,
        back: impl Fn(&OwnedCharge) -> Option<&'a PutBack>,
    ) -> Told {
        let now = self.now;
        for charge in &counted.check.charges {
            let page = self.page(charge);
            page.settle(now, &charge.limit);
            let restless = page.is_restless(now);
            self.restless |= restless;
            let page = self.page(charge);
            let takes = !counted.check.probe && charge.cost > 0;
            let Some(line) = line(charge).filter(|_| takes) else { continue };
            if page.verdict.is_none() {
                let call = call(draft, line);
                page.verdict = Some(match back(charge) {
                    Some(back) => {
                        let only = counted.times == 0;
                        ledger::put_back(&mut page.after, now, &charge.limit, &call, back, only)
                    }
                    None => ledger::compare(&mut page.after, &call),
                });
                // As `decide` does.
                page.settle(now, &charge.limit);
            }
            let (verdict, restless) = (page.verdict, page.is_restless(now));
            self.restless |= restless;
            match verdict {
                Some(Verdict::Stale { stored }) => return Told::Stale { stored },
                Some(Verdict::Behind { stored }) => return Told::Behind { stored },
                Some(Verdict::Decide) | None => {}
            }
        }
        if counted.check.probe || counted.check.lease > Millis::ZERO {
            self.alone(counted)
        } else {
            self.together(counted)
        }
    }

    fn together(&mut self, counted: &Counted) -> Told {
        let charges = &counted.check.charges;
        let mut states: Vec<State> =
            charges.iter().map(|charge| State::TickLog(self.page(charge).after.log.clone())).collect();
        let mut asked: Vec<Charge<'_>> = (states.iter_mut().zip(charges))
            .map(|(state, charge)| Charge::new(state, &charge.limit, charge.cost, charge.group, charge.terms))
            .collect();
        let granted = check::decide(self.now, counted.times, &mut asked);
        let outcomes = asked.iter().map(|charge| charge.outcome).collect();
        let receipts: Vec<_> =
            asked.iter().map(|charge| charge.receipt.filter(|receipt| receipt.units > 0)).collect();
        drop(asked);
        for ((charge, state), receipt) in charges.iter().zip(states).zip(&receipts) {
            let page = self.page(charge);
            let State::TickLog(log) = state else { unreachable!("tick logs only") };
            page.after.adopt(log);
            page.granted += receipt.map_or(0, |receipt| receipt.units);
        }
        Told::Decided { granted, outcomes, receipts }
    }

    /// A peek or a lease, of one counter: `decide` knows neither.
    fn alone(&mut self, counted: &Counted) -> Told {
        let [charge] = counted.check.charges.as_slice() else { panic!("one counter") };
        let (now, limit) = (self.now, &charge.limit);
        let page = self.page(charge);
        let room = State::TickLog(page.after.log.clone()).room(limit, charge.cost);
        let granted = room.min(counted.times);
        let receipt = (!counted.check.probe).then(|| {
            let units = granted.saturating_mul(charge.cost);
            let receipt = page.after.charge(now, limit, units, counted.check.lease);
            page.granted += receipt.units;
            Some(receipt).filter(|receipt| receipt.units > 0)
        });
        let log = State::TickLog(page.after.log.clone());
        let outcome = log.outcome(now, limit, charge.cost, room < counted.times);
        Told::Decided { granted, outcomes: vec![outcome], receipts: receipt.into_iter().collect() }
    }

    /// The twin of settle.lua: what is given back and charged.
    pub(super) fn settle(&mut self, part: &Settle) -> (u32, u32) {
        let now = self.now;
        let page = self.pages.get_mut(&*part.key).unwrap();
        page.settle(now, &part.limit);
        // What only this limit would drop stays, and r: so where there is such, the script goes another way.
        self.restless |= page.before.as_ref().is_some_and(|before| *before != page.after);
        let mut state = State::TickLog(page.after.log.clone());
        let given = state.refund(now, &part.limit, &part.receipt, part.give_back);
        let State::TickLog(log) = state else { unreachable!("it was one") };
        // Before it is charged: what was given back may have emptied it, and it begins anew.
        page.after.adopt(log);
        let charged = page.after.charge(now, &part.limit, part.charge, Millis::ZERO).units;
        (given, charged)
    }

    /// The twin of reset.lua.
    pub(super) fn reset(&mut self, key: &[u8], limit: &Limit) {
        let now = self.now;
        let page = self.pages.get_mut(key).unwrap();
        page.limit = Some(*limit);
        page.rounded = u64::from(resolution_of(limit));
        let Some(old) = &page.before else { return };
        let epoch = State::TickLog(old.log.clone()).epoch().wrapping_add(EPOCH_STRIDE);
        page.after = Image::new(epoch);
        page.after.reset_epoch = (old.reset_epoch + 1).max(now.floor_ms());
        page.after.settle(now, limit);
    }

    fn page(&mut self, charge: &OwnedCharge) -> &mut Page {
        self.pages.get_mut(charge.key.name()).unwrap()
    }
}

fn call(draft: &Draft, line: Line) -> Call {
    Call {
        identity: u64::from_be_bytes(draft.identity),
        seq: draft.seq,
        ack: line.ack,
        reset_epoch: line.reset_epoch,
        lapsed: line.lapsed,
    }
}

/// The epoch of a counter that begins now.
fn epoch_at(now: Now) -> u32 {
    u32::try_from(now.floor_ms() & u64::from(u32::MAX)).unwrap()
}

impl Page {
    fn settle(&mut self, now: Now, limit: &Limit) {
        self.rounded += self.after.log.resolution().get();
        self.after.settle(now, limit);
        self.rounded += self.after.log.resolution().get();
        self.limit = Some(*limit);
    }

    /// Whether settling once more would change it.
    fn is_restless(&self, now: Now) -> bool {
        let mut again = self.after.clone();
        again.settle(now, &self.limit.unwrap());
        again != self.after
    }

    /// Whether what a row says was granted has left the window. Its tick is known modulo 2^32, so counted from
    /// the last tick of the log before the call it may have left, and from the one after it look young.
    fn has_left(&self, row: &Row, now: Now) -> bool {
        let span = self.after.log.lease_span();
        let left = |image: &Image, tick: u32| {
            let end =
                last_ms(image).saturating_sub(u64::from(age(image, tick)) * image.log.resolution().get());
            span.leaves_at_ms(end, self.limit.unwrap().window()) <= now.floor_ms()
        };
        let was = |before: &Image| {
            before.ledger.iter().any(|old| old.identity == row.identity && left(before, old.tick))
        };
        left(&self.after, row.tick) || self.before.as_ref().is_some_and(was)
    }

    /// Compares with what the server holds.
    #[track_caller]
    pub(super) fn agrees(&self, now: Now, value: Option<&[u8]>, was: Option<&[u8]>, settles: bool) {
        let limit = self.limit.unwrap();
        let Some(bytes) = value else {
            assert!(self.before.is_none() && self.after.used() == 0, "a charged counter is not there");
            return;
        };
        assert!(self.before.is_some() || self.after.used() > 0, "a counter that nothing was charged to");
        let mut found = decode(bytes).unwrap_or_else(|error| panic!("{error}: {bytes:?}"));
        let mut expected = self.after.clone();
        // What is settled may be rewritten: a refund opens the ring before it finds nothing to give back.
        if !settles && self.before.as_ref() == Some(&expected) {
            assert_eq!(was, Some(bytes), "nothing has changed but the bytes");
        }
        if settles || expected.used() == 0 {
            // What has left the window may still be stored: whoever reads it next drops it.
            found.settle(now, &limit);
            if expected.used() == 0 {
                expected.settle(now, &limit);
            }
        }
        let kept = |identity: u64, image: &Image| image.ledger.iter().any(|row| row.identity == identity);
        let dropped: Vec<u64> = (expected.ledger.iter())
            .filter(|row| !kept(row.identity, &found) && (row.count == 0 || self.has_left(row, now)))
            .map(|row| row.identity)
            .collect();
        expected.ledger.retain(|row| !dropped.contains(&row.identity));
        expected.ledger.sort_by_key(|row| row.identity);
        found.ledger.sort_by_key(|row| row.identity);
        if expected.used() == 0 && last_tick(&found) != last_tick(&expected) {
            // Empty, its r is free: peeks under several limits have rounded its last tick several times, and
            // wrote nothing.
            let spare = self.rounded + found.log.resolution().get();
            assert!(last_ms(&found).abs_diff(last_ms(&expected)) <= spare, "{found:?}, not {expected:?}");
            let epoch = State::TickLog(expected.log.clone()).epoch();
            assert_eq!((found.used(), State::TickLog(found.log.clone()).epoch()), (0, epoch));
            // What the rows say was granted has left, whatever the rounding has made of it.
            for image in [&mut found, &mut expected] {
                image.ledger.iter_mut().for_each(|row| (row.tick, row.count) = (0, 0));
            }
            assert_eq!((found.reset_epoch, found.ledger), (expected.reset_epoch, expected.ledger));
            return;
        }
        // A row that says 0 has nothing to be looked for in its tick.
        for image in [&mut found, &mut expected] {
            image.ledger.iter_mut().filter(|row| row.count == 0).for_each(|row| row.tick = 0);
        }
        assert_eq!(found, expected);
    }

    /// The shortest and the longest that a value of the key may live, in ms from now.
    pub(super) fn lives(&self, now: Now, value: &[u8], linger: Millis) -> (u64, u64) {
        let limit = self.limit.unwrap();
        let image = decode(value).unwrap();
        let r = image.log.resolution().get();
        let slack = r + limit.window().get().min(60_000) + linger.get();
        if image.used() == 0 {
            // Its r is free: the script has already chosen the limit's.
            return (0, limit.window().get() + slack + u64::from(resolution_of(&limit)));
        }
        let needed = State::TickLog(image.log).expires_at_ms(&limit).saturating_sub(now.floor_ms());
        (needed, needed.max(limit.window().get()) + slack)
    }
}

/// The last tick, which a log keeps to itself.
pub(super) fn last_tick(image: &Image) -> u64 {
    field(&encode(image), LAST_TICK_AT)
}

/// A field of eight bytes.
fn field(value: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(value[at..at + 8].try_into().unwrap())
}

/// Whether the ring of a value goes over its end.
pub(super) fn is_wrapped(value: &[u8]) -> bool {
    let of = |at: usize| u32::from_be_bytes(value[at..at + 4].try_into().unwrap());
    of(HEAD_AT) > of(RING_CAPACITY_AT)
}

fn last_ms(image: &Image) -> u64 {
    last_tick(image) * image.log.resolution().get()
}

fn age(image: &Image, tick: u32) -> u32 {
    u32::try_from(last_tick(image) & u64::from(u32::MAX)).unwrap().wrapping_sub(tick)
}
