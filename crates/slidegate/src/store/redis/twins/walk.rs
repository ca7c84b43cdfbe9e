//! One walk: calls to a few counters, each of them compared with the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use slidegate_core::algorithm::tick_log::image::Image;
use slidegate_core::algorithm::tick_log::layout::{SHORT_MAX, decode, encode};
use slidegate_core::algorithm::{Receipt, State};
use slidegate_core::check::Terms;
use slidegate_core::instance::grants::PutBack;
use slidegate_core::limit::Limit;
use slidegate_core::time::{Millis, Now};

use super::desk::{Desk, LINGER};
use super::model::{Book, Told, is_wrapped, last_tick};
use crate::pipeline::batch::{Counted, CounterKey, OwnedCharge, OwnedCheck};
use crate::store::ReservationId;
use crate::store::redis::scripts::FORMAT;
use crate::store::redis::scripts::{CHECK, RESET, SETTLE};
use crate::store::redis::wire::{Call, Draft, Line, Settle, read_checks, read_settled};

/// The earliest reading of a clock: two years after the Unix epoch. Core dates what a step of the clock moves to
/// before it at it; scripts/plain/ does not, since no window reaches there.
const FIRST_US: u64 = 2 * 366 * 86_400_000_000;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Executed, and its reply accepted.
    Answered,
    /// Executed; the reply never arrived.
    ReplyLost,
    /// Given up, and still on its way.
    Late,
    /// Executed and accepted, and its bytes arrive again.
    Doubled,
}

/// One counter of a check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) key: usize,
    pub(super) limit: usize,
    /// Permits, and hundredths of N.
    pub(super) cost: (u32, u32),
    pub(super) terms: Terms,
    pub(super) group: u16,
}

/// One check of a call.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) parts: Vec<Part>,
    pub(super) times: u32,
    pub(super) probe: bool,
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Time passes, or the clock is set: thousandths of W, and microseconds.
    Clock {
        share: i64,
        micros: i64,
    },
    Check {
        who: usize,
        asked: Vec<Asked>,
        lease: u64,
        ledger: bool,
        lapsed: bool,
        fate: Fate,
    },
    /// An earlier call arrives once more, or at last.
    Arrive {
        pick: usize,
    },
    Settle {
        pick: usize,
        give: u32,
        more: u32,
    },
    Reset {
        key: usize,
        limit: usize,
    },
    /// A failover: the key is what it was some changes ago.
    Lose {
        key: usize,
        changes: usize,
    },
    /// The log has so many ticks now, each of one permit, but for every n-th, which a refund emptied.
    Fill {
        key: usize,
        limit: usize,
        ticks: u32,
        holes: u32,
    },
    /// Someone took the TTL away.
    Persist {
        key: usize,
    },
}

/// How often something happened, over all walks: a comparison that nothing reaches proves nothing.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) steps: u32,
    /// Checks that scripts/plain/ answered, and check.lua.
    pub(super) plain: u32,
    pub(super) any: u32,
    /// Keys of steps that are not compared.
    pub(super) restless: u32,
    pub(super) stale: u32,
    pub(super) behind: u32,
    /// Calls that put back, and those of them that did nothing else.
    pub(super) put_back: u32,
    pub(super) only_put_back: u32,
    /// Steps that left a long value; of those, by scripts/plain/ alone; with its ring wrapped around.
    pub(super) long: u32,
    pub(super) long_plain: u32,
    pub(super) wrapped: u32,
    /// Steps that raised r of a log in use.
    pub(super) raised: u32,
    /// Steps that left a log that waits for leases.
    pub(super) leased: u32,
    pub(super) refunded: u32,
    /// The most rows of one key.
    pub(super) rows: usize,
}

/// A call as it was sent.
#[derive(Clone)]
struct Sent {
    draft: Draft,
    checks: Vec<Counted>,
    lines: BTreeMap<Vec<u8>, Line>,
    ledger: bool,
    /// What is put back into whichever key of the call.
    back: Option<PutBack>,
}

/// What an instance remembers of a key: [`Line`] without `lapsed`.
type Ledger = BTreeMap<(usize, usize), (u64, u64)>;

pub(super) struct Walk<'a> {
    desk: &'a Desk,
    pub(super) tally: &'a mut Tally,
    limits: Vec<Limit>,
    keys: Vec<Vec<u8>>,
    values: Vec<Option<Vec<u8>>>,
    /// What each key held before each change.
    history: Vec<Vec<Option<Vec<u8>>>>,
    now_us: u64,
    seq: u64,
    ledgers: Ledger,
    sent: Vec<Sent>,
    receipts: Vec<(usize, Limit, Receipt)>,
    persisted: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(desk: &'a Desk, tally: &'a mut Tally, limits: Vec<Limit>, begin_us: u64) -> Self {
        desk.clear();
        let keys = (0..3).map(|n| format!("sg:{{k}}:walk:{n}").into_bytes()).collect();
        Self {
            desk,
            tally,
            limits,
            keys,
            values: vec![None; 3],
            history: vec![Vec::new(); 3],
            now_us: begin_us,
            seq: 100,
            ledgers: BTreeMap::new(),
            sent: Vec::new(),
            receipts: Vec::new(),
            persisted: false,
        }
    }

    fn now(&self) -> Now {
        Now::from_micros(self.now_us)
    }

    pub(super) fn take(&mut self, op: &Op) {
        match op {
            Op::Clock { share, micros } => {
                let window = i64::try_from(self.limits[0].window().get()).unwrap();
                let by = window.saturating_mul(*share).saturating_add(*micros);
                self.now_us = self.now_us.saturating_add_signed(by).clamp(FIRST_US, Now::MAX.as_micros());
            }
            Op::Check { who, asked, lease, ledger, lapsed, fate } => {
                self.check(*who, asked, *lease, *ledger, *lapsed, *fate);
            }
            Op::Arrive { pick } if !self.sent.is_empty() => {
                let mut sent = self.sent[pick % self.sent.len()].clone();
                sent.draft.now = Some(self.now());
                self.send(&sent);
            }
            Op::Settle { pick, give, more } if !self.receipts.is_empty() => {
                let pick = pick % self.receipts.len();
                self.settle(pick, *give, *more);
            }
            Op::Reset { key, limit } => self.reset(key % 3, *limit),
            Op::Lose { key, changes } if !self.history[key % 3].is_empty() => {
                let past = &self.history[key % 3];
                let value = past[past.len() - 1 - changes % past.len()].clone();
                self.store(key % 3, value);
            }
            Op::Fill { key, limit, ticks, holes } => self.fill(key % 3, *limit, *ticks, *holes),
            Op::Persist { key } => {
                self.persisted |= self.desk.ask::<i64>(&[b"PERSIST", &self.keys[key % 3]]).unwrap() > 0;
            }
            Op::Arrive { .. } | Op::Settle { .. } | Op::Lose { .. } => {}
        }
    }

    fn draft(&mut self, who: usize) -> Draft {
        self.seq += 1;
        // Bytes that searching in a string must not take for patterns, and that overlap with themselves.
        let mut identity = *b"\0.%-*aa\0";
        identity[7] = u8::try_from(who).unwrap();
        Draft { now: Some(self.now()), seq: self.seq, format: FORMAT, identity, linger: LINGER }
    }

    fn limit(&self, limit: usize) -> Limit {
        self.limits[limit % self.limits.len()]
    }

    fn counted(&self, asked: &Asked, lease: u64) -> Counted {
        let charges = asked.parts.iter().map(|part| {
            let limit = self.limit(part.limit);
            let share = u64::from(limit.permits()) * u64::from(part.cost.1) / 100;
            let cost = part.cost.0.saturating_add(u32::try_from(share).unwrap());
            let key = CounterKey::new(self.keys[part.key % 3].clone(), 0);
            OwnedCharge { key, limit, cost, group: part.group, terms: part.terms, exact: true }
        });
        let check = OwnedCheck {
            charges: charges.collect(),
            reserve: None::<ReservationId>,
            probe: asked.probe,
            lease: Millis(lease),
        };
        Counted { check: Arc::new(check), times: asked.times }
    }

    fn check(&mut self, who: usize, asked: &[Asked], lease: u64, ledger: bool, lapsed: bool, fate: Fate) {
        let draft = self.draft(who);
        let checks: Vec<Counted> = asked.iter().map(|asked| self.counted(asked, lease)).collect();
        let lines = self.keys.iter().enumerate().map(|(n, key)| {
            let (ack, reset_epoch) = self.ledgers.get(&(who, n)).copied().unwrap_or_default();
            (key.clone(), Line { ack, reset_epoch, lapsed, long: self.seq % 2 == 1 })
        });
        let sent = Sent { draft, checks, lines: lines.collect(), ledger, back: None };
        if matches!(fate, Fate::Late | Fate::Doubled) {
            self.sent.push(sent.clone());
        }
        if fate == Fate::Late {
            return;
        }
        let replies = self.send(&sent);
        if fate == Fate::ReplyLost {
            return;
        }
        let behind = replies.iter().find_map(|told| match told {
            Told::Behind { stored } => Some(*stored),
            _ => None,
        });
        if let Some(stored) = behind {
            return self.put_back(who, &sent, stored);
        }
        let reset_epochs = self.reset_epochs();
        for (counted, told) in sent.checks.iter().zip(replies) {
            let Told::Decided { receipts, .. } = told else { continue };
            for (charge, receipt) in counted.check.charges.iter().zip(receipts) {
                let Some(receipt) = receipt else { continue };
                let key = self.keys.iter().position(|key| key == charge.key.name()).unwrap();
                self.receipts.push((key, charge.limit, receipt));
                if sent.ledger {
                    self.ledgers.insert((who, key), (sent.draft.seq, reset_epochs[key]));
                }
            }
        }
    }

    /// Calls again with something to put back, of which nothing is true but its form: that is between two keys.
    fn put_back(&mut self, who: usize, before: &Sent, stored: u64) {
        let draft = self.draft(who);
        let dice = |sides: u64, salt: u64| (draft.seq * 2_654_435_761 + salt * 40_503) % 1_000_003 % sides;
        let window = self.limits[0].window().get();
        let mut ages: Vec<u64> = (0..dice(9, 1)).map(|n| dice(window + window / 4 + 1, 7 + n)).collect();
        ages.sort_unstable_by_key(|age| std::cmp::Reverse(*age));
        let entries =
            ages.iter().zip(0..).map(|(age, n)| (Millis(*age), u32::try_from(dice(4, 50 + n)).unwrap()));
        let back = PutBack {
            stored: if dice(8, 2) == 0 { stored + 1 } else { stored },
            accepted: dice(2, 3) == 0,
            entries: entries.collect(),
            lease: Millis(if dice(4, 4) == 0 { dice(window / 20 + 2, 5) } else { 0 }),
        };
        let only = dice(3, 6) == 0;
        let again =
            |counted: &Counted| Counted { times: if only { 0 } else { counted.times }, ..counted.clone() };
        let checks = before.checks.iter().map(again).collect();
        self.tally.put_back += 1;
        self.tally.only_put_back += u32::from(only);
        self.send(&Sent { draft, checks, back: Some(back), ..before.clone() });
    }

    fn reset_epochs(&self) -> Vec<u64> {
        let images = self.values.iter().map(|value| {
            let bytes = value.as_deref()?;
            decode(bytes).ok()
        });
        images.map(|image: Option<Image>| image.map_or(0, |image| image.reset_epoch)).collect()
    }

    fn send(&mut self, sent: &Sent) -> Vec<Told> {
        let line = |charge: &OwnedCharge| sent.ledger.then(|| sent.lines[charge.key.name()]);
        let back = |_: &OwnedCharge| sent.back.as_ref();
        let call = sent.draft.checks_and_put_back(&sent.checks, line, back, |_| None);
        let now = sent.draft.now.unwrap();
        let mut book = self.book(now);
        let expected = book.checks(&sent.draft, &sent.checks, line, back);
        let reply = self.compare(&CHECK, &call, &book, now, false);
        let replies = read_checks(&reply, &sent.checks).unwrap();
        let plain = matches!(&replies[..], [Ok(told)] if told.reset_epochs.iter().all(Option::is_none));
        let found: Vec<Told> = replies.into_iter().map(Told::of).collect();
        assert!(book.restless || found == expected, "told {found:?}, not {expected:?}");
        self.count(plain, &found);
        found
    }

    fn settle(&mut self, pick: usize, give: u32, more: u32) {
        let draft = self.draft(0);
        let (key, limit, receipt) = self.receipts[pick];
        let give_back = u32::try_from(u64::from(receipt.units) * u64::from(give) / 100).unwrap();
        let part = Settle { key: Arc::from(&self.keys[key][..]), limit, receipt, give_back, charge: more };
        let call = draft.settle(std::slice::from_ref(&part));
        let mut book = self.book(self.now());
        let expected = book.settle(&part);
        let reply = self.compare(&SETTLE, &call, &book, self.now(), true);
        let found = read_settled(&reply, 1).unwrap()[0];
        assert!(book.restless || found == expected, "settled {found:?}, not {expected:?}");
        self.receipts[pick].2.units -= found.0;
        self.tally.refunded += u32::from(found.0 > 0 && !book.restless);
    }

    fn reset(&mut self, key: usize, limit: usize) {
        let (draft, limit) = (self.draft(0), self.limit(limit));
        let call = draft.reset(Arc::from(&self.keys[key][..]), &limit);
        let mut book = self.book(self.now());
        book.reset(&self.keys[key], &limit);
        self.compare(&RESET, &call, &book, self.now(), false);
    }

    fn book(&self, now: Now) -> Book {
        Book::open(now, self.keys.iter().cloned().zip(self.values.iter().cloned()))
    }

    /// Runs a script and compares what it leaves.
    fn compare(
        &mut self,
        script: &crate::store::redis::link::Script,
        call: &Call,
        book: &Book,
        now: Now,
        settles: bool,
    ) -> Vec<u8> {
        if std::mem::take(&mut self.persisted) {
            // Only what a call names is healed by it.
            for key in self.keys.iter().filter(|key| !call.keys.iter().any(|named| **named == key[..])) {
                self.desk.ask::<i64>(&[b"PEXPIRE", key, LINGER.get().to_string().as_bytes()]).unwrap();
            }
        }
        let done = self.desk.step(script, call, &self.keys).unwrap();
        self.tally.steps += 1;
        for (n, value) in done.values.into_iter().enumerate() {
            let page = &book.pages[&self.keys[n]];
            if page.limit.is_none() {
                assert_eq!(value, self.values[n], "a key that the call does not name");
                continue;
            }
            if book.restless {
                self.tally.restless += 1;
                self.values[n] = value;
                continue;
            }
            page.agrees(now, value.as_deref(), self.values[n].as_deref(), settles);
            if let (Some((least, most)), Some(bytes)) = (done.ttls[n], &value) {
                let (needed, enough) = page.lives(now, bytes, LINGER);
                // Within a millisecond the TTL of the first call that charged stays.
                let hot = page.after.log.resolution() == Millis(1)
                    && page.before.as_ref().is_some_and(|before| {
                        before.used() < page.after.used() && last_tick(before) == last_tick(&page.after)
                    });
                if hot {
                    self.values[n] = value;
                    continue;
                }
                assert!(least > 0, "a key without a TTL");
                assert!(most >= i64::try_from(needed).unwrap(), "lives for {most} ms of {needed}");
                assert!(
                    settles || least <= i64::try_from(enough).unwrap(),
                    "lives for {least} ms, not {enough}"
                );
            }
            self.tally.raised += u32::from(
                page.before.as_ref().is_some_and(|before| {
                    before.used() > 0 && before.log.resolution() < page.after.log.resolution()
                }) && page.after.used() > 0,
            );
            self.tally.leased += u32::from(page.after.log.lease_span().longest > Millis::ZERO);
            self.tally.rows = self.tally.rows.max(page.after.ledger.len());
            if value != self.values[n] {
                let before = std::mem::replace(&mut self.values[n], value);
                self.history[n].push(before);
            }
        }
        done.reply
    }

    fn count(&mut self, plain: bool, told: &[Told]) {
        *(if plain { &mut self.tally.plain } else { &mut self.tally.any }) += 1;
        for told in told {
            self.tally.stale += u32::from(matches!(told, Told::Stale { .. }));
            self.tally.behind += u32::from(matches!(told, Told::Behind { .. }));
        }
        for value in self.values.iter().flatten().filter(|value| value.len() >= SHORT_MAX) {
            self.tally.long += 1;
            self.tally.long_plain += u32::from(plain);
            self.tally.wrapped += u32::from(is_wrapped(value));
        }
    }

    fn store(&mut self, key: usize, value: Option<Vec<u8>>) {
        match &value {
            Some(bytes) => self.desk.put(&self.keys[key], bytes),
            None => self.desk.ask::<()>(&[b"DEL", &self.keys[key]]).unwrap(),
        }
        self.values[key] = value;
    }

    fn fill(&mut self, key: usize, limit: usize, ticks: u32, holes: u32) {
        let limit = self.limit(limit);
        let mut state = State::new(&limit, 7);
        state.settle(self.now(), &limit);
        let State::TickLog(log) = &state else { unreachable!("a sliding window") };
        let r = log.resolution().get();
        let mut receipts = Vec::new();
        for tick in (0..u64::from(ticks)).rev() {
            let at = Now::from_micros(self.now_us.saturating_sub(tick * r * 1000));
            receipts.push((at, state.charge(at, &limit, 1 + u32::from(holes % 3 == 1))));
        }
        for (at, receipt) in receipts.iter().skip(1).step_by(usize::try_from(holes.max(2)).unwrap()) {
            state.refund(*at, &limit, receipt, receipt.units);
        }
        let State::TickLog(log) = state else { unreachable!("a sliding window") };
        let image = Image { log, ..Image::new(7) };
        self.store(key, Some(encode(&image)));
    }
}
