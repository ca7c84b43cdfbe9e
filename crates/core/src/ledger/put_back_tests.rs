//! Instances with ledgers, a master whose last writes get lost, and one key. The oracle is a list of what was spent.

use std::vec;
use std::vec::Vec;

use proptest::collection::vec as vec_of;
use proptest::prelude::*;

use super::*;
use crate::algorithm::tests::world::{BEGIN_US, CASES, limit, sliding, small, worst_window};
use crate::algorithm::tick_log::layout::{decode, encode};
use crate::instance::Era;
use crate::instance::grants::Grants;
use crate::instance::standing::{roll_call_cap, room};
use crate::limit::Algorithm;
use crate::time::Millis;

#[derive(Clone, Debug)]
enum Op {
    Wait {
        share: u64,
        micros: u64,
    },
    /// One asks; its reply may get lost, or the call may be late.
    Call {
        who: usize,
        cost: u32,
        lease: u64,
        fate: u8,
    },
    Arrive {
        pick: usize,
    },
    GiveBack {
        who: usize,
    },
    /// The last so many executed calls are lost with the old master.
    Failover {
        lost: usize,
    },
    /// An instance puts back what is missing, beside its calls.
    Sync {
        who: usize,
    },
    /// The store's clock goes back.
    Back {
        millis: u64,
    },
}

fn trace() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (0u64..400, 0u64..1500).prop_map(|(share, micros)| Op::Wait { share, micros }),
        12 => (0usize..3, 1u32..4, prop_oneof![4 => Just(0u64), 1 => 1u64..20], 0u8..8)
            .prop_map(|(who, cost, lease, fate)| Op::Call { who, cost, lease, fate }),
        2 => any::<usize>().prop_map(|pick| Op::Arrive { pick }),
        1 => (0usize..3).prop_map(|who| Op::GiveBack { who }),
        2 => (1usize..12).prop_map(|lost| Op::Failover { lost }),
        3 => (0usize..3).prop_map(|who| Op::Sync { who }),
        1 => (0u64..400).prop_map(|millis| Op::Back { millis }),
    ];
    vec_of(op, 1..120)
}

/// An instance: its ledger of the key, and where it stands in a roll call.
#[derive(Clone, Default)]
struct Instance {
    ack: u64,
    grants: Grants,
    synced: bool,
}

/// Permits that were spent, each at the last instant at which they may have been.
#[derive(Clone, Copy, Debug)]
struct Spent {
    at_us: u64,
    units: u32,
    given_back: bool,
    who: usize,
    at_ms: u64,
    epoch: u32,
}

struct World {
    image: Image,
    limit: Limit,
    real_us: u64,
    behind_us: u64,
    next_seq: u64,
    era: Option<Era>,
    instances: Vec<Instance>,
    /// Calls on their way, and duplicates of such as were executed.
    network: Vec<(u32, Call, Option<PutBack>, bool)>,
    spent: Vec<Spent>,
    history: Vec<Image>,
    roll_call: bool,
}

impl World {
    fn new(limit: Limit, roll_call: bool) -> Self {
        Self {
            image: Image::new(7),
            limit,
            real_us: BEGIN_US,
            behind_us: 0,
            next_seq: 1,
            era: None,
            instances: vec![Instance::default(); 3],
            network: Vec::new(),
            spent: Vec::new(),
            history: Vec::new(),
            roll_call,
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Wait { share, micros } => self.real_us += self.limit.window().0 * share / 1000 + micros,
            Op::Call { who, cost, lease, fate } => {
                self.ask(who, cost, Millis(self.limit.window().0 * lease / 1000), fate)
            }
            Op::Arrive { pick } if !self.network.is_empty() => {
                let (cost, call, back, _) = self.network.swap_remove(pick % self.network.len());
                self.execute(cost, Millis::ZERO, &call, back.as_ref(), false);
            }
            Op::GiveBack { who } => self.give_back(who),
            Op::Failover { lost } if self.history.len() >= lost => {
                self.history.truncate(self.history.len() - lost + 1);
                self.image = self.history.pop().unwrap();
                // Nothing is sent twice: what the old master has executed does not reach the new one.
                self.network.retain(|(.., is_duplicate)| !is_duplicate);
                let number = self.era.map_or(1, |era| era.number + 1);
                let era = Era { number, began_us: self.real_us };
                self.era = Some(era);
                for instance in &mut self.instances {
                    instance.synced = false;
                    instance.grants.held_when(era, self.limit.window());
                }
                if !self.roll_call {
                    (0..3).for_each(|who| self.sync(who));
                }
            }
            Op::Sync { who } => self.sync(who),
            Op::Back { millis } => self.behind_us += millis * 1000,
            Op::Arrive { .. } | Op::Failover { .. } => {}
        }
    }

    fn call(&mut self, who: usize) -> Call {
        let (seq, window) = (self.next_seq, self.limit.window());
        self.next_seq += 1;
        let instance = &mut self.instances[who];
        let lapsed = instance.grants.held(self.real_us, window) == 0;
        Call { identity: 1_000 + who as u64, seq, ack: instance.ack, reset_epoch: 0, lapsed }
    }

    /// What the instance may ask for, by where it stands.
    fn cap(&mut self, who: usize) -> u32 {
        if self.instances.iter().all(|instance| instance.synced) {
            return u32::MAX;
        }
        let (Some(era), window) = (self.era, self.limit.window()) else { return u32::MAX };
        let grants = &mut self.instances[who].grants;
        let held = grants.held_when(era, window);
        // Without a history it may have a share; none here, so that the sum is N.
        let cap = roll_call_cap(era, self.real_us, window, 0, held);
        cap.map_or(u32::MAX, |cap| room(cap, grants.held(self.real_us, window)))
    }

    fn ask(&mut self, who: usize, cost: u32, lease: Millis, fate: u8) {
        if self.cap(who) < cost {
            return;
        }
        let mut back = None;
        for _ in 0..3 {
            let call = self.call(who);
            if fate == 0 {
                self.instances[who].grants.lost(call.seq);
                self.network.push((cost, call, back, false));
                return;
            }
            if fate == 1 {
                self.network.push((cost, call, back.clone(), true));
            }
            let (verdict, receipt) = self.execute(cost, lease, &call, back.as_ref(), false);
            if fate == 2 {
                self.instances[who].grants.lost(call.seq);
                return;
            }
            match verdict {
                Verdict::Behind { stored } => {
                    let (real_us, window) = (self.real_us, self.limit.window());
                    back = Some(self.instances[who].grants.missing_after(real_us, window, stored));
                }
                Verdict::Stale { .. } => back = None,
                Verdict::Decide => {
                    if receipt.units > 0 {
                        self.accept(who, call.seq, receipt, lease);
                    }
                    return;
                }
            }
        }
        panic!("told to put back again and again");
    }

    fn accept(&mut self, who: usize, seq: u64, receipt: crate::algorithm::Receipt, lease: Millis) {
        let instance = &mut self.instances[who];
        instance.ack = seq;
        instance.grants.accept(self.real_us, self.limit.window(), seq, receipt.units, lease);
        let at_us = self.real_us + lease.0 * 1000;
        let (units, at_ms, epoch) = (receipt.units, receipt.at_ms, receipt.epoch);
        self.spent.push(Spent { at_us, units, given_back: false, who, at_ms, epoch });
    }

    /// The last grant that one was given and that is not leased: it turns out that nobody needs it.
    fn give_back(&mut self, who: usize) {
        let (now, limit) = (self.now(), self.limit);
        let Some(spent) = self.spent.iter_mut().rev().find(|spent| spent.who == who && !spent.given_back)
        else {
            return;
        };
        spent.given_back = true;
        let spent = *spent;
        self.instances[who].grants.give_back(spent.units);
        // In a roll call nothing is given back to the store: the receipt may be of what it has lost, and would take
        // what others were granted in the same tick.
        if self.era.is_some() && self.instances.iter().any(|instance| !instance.synced) {
            return;
        }
        self.history.push(self.image.clone());
        let receipt =
            crate::algorithm::Receipt { epoch: spent.epoch, at_ms: spent.at_ms, units: spent.units };
        let mut state = crate::algorithm::State::TickLog(self.image.log.clone());
        state.refund(now, &limit, &receipt, receipt.units);
        let crate::algorithm::State::TickLog(log) = state else { unreachable!() };
        self.image.adopt(log);
    }

    fn sync(&mut self, who: usize) {
        let row = self.image.ledger.iter().find(|row| row.identity == 1_000 + who as u64);
        let stored = row.map_or(0, |row| row.seq);
        let call = self.call(who);
        let back = self.instances[who].grants.missing_after(self.real_us, self.limit.window(), stored);
        self.execute(0, Millis::ZERO, &call, Some(&back), true);
        self.instances[who].synced = true;
    }

    fn now(&self) -> Now {
        Now::from_micros(self.real_us.saturating_sub(self.behind_us))
    }

    fn execute(
        &mut self,
        cost: u32,
        lease: Millis,
        call: &Call,
        back: Option<&PutBack>,
        only: bool,
    ) -> (Verdict, crate::algorithm::Receipt) {
        let (now, limit) = (self.now(), self.limit);
        self.history.push(self.image.clone());
        self.image.settle(now, &limit);
        let verdict = match back {
            Some(back) => put_back(&mut self.image, now, &limit, call, back, only),
            None => compare(&mut self.image, call),
        };
        let mut units = 0;
        if verdict == Verdict::Decide {
            self.image.settle(now, &limit);
            units = if limit.permits().saturating_sub(self.image.used()) >= cost { cost } else { 0 };
        }
        let receipt = self.image.charge(now, &limit, units, lease);
        if verdict == Verdict::Decide {
            record(&mut self.image, now, &limit, call.identity, call.seq, units);
        }
        // It goes through its bytes each time.
        self.image = decode(&encode(&self.image)).unwrap();
        (verdict, receipt)
    }

    fn worst_window(&self) -> u64 {
        let kept = self.spent.iter().filter(|spent| !spent.given_back);
        let mut spent: Vec<(u64, u32)> = kept.map(|spent| (spent.at_us, spent.units)).collect();
        spent.sort_unstable();
        worst_window(&spent, self.limit.window())
    }
}

fn any_limit() -> impl Strategy<Value = Limit> {
    (small(), prop_oneof![2 => Just(0u64), 1 => 1u64..400]).prop_map(|((permits, window), share)| match share
    {
        0 => sliding(permits, window),
        _ => limit(
            permits,
            window,
            Algorithm::SlidingWindow { resolution: Some(Millis((window * share / 1000).max(1))) },
        ),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// Replies get lost, calls come late, grants are given back, clocks go back, and masters take their last writes
    /// with them. As long as all put back what they know before anybody asks again, no window of continuous time
    /// holds more than N spent permits.
    #[test]
    fn no_window_holds_more_than_n_when_all_have_put_back(limit in any_limit(), ops in trace()) {
        let mut world = World::new(limit, false);
        for op in &ops {
            world.apply(op);
        }
        prop_assert!(world.worst_window() <= u64::from(limit.permits()), "{}", world.worst_window());
    }

    /// The same if they put back one after another, and until the last has done so, each stays below what it held
    /// when the master changed.
    #[test]
    fn no_window_holds_more_than_n_during_a_roll_call(limit in any_limit(), ops in trace()) {
        let mut world = World::new(limit, true);
        for op in &ops {
            world.apply(op);
        }
        prop_assert!(world.worst_window() <= u64::from(limit.permits()), "{}", world.worst_window());
    }

    /// What is put back lies where it would lie had it been charged when it was spent, whatever else is in the log;
    /// and the bytes can be read again.
    #[test]
    fn what_is_put_back_lies_where_it_would_have_been_charged(
        charges in vec_of((0u64..1_500, 1u32..4, any::<bool>()), 1..60),
        r in prop_oneof![Just(1u64), 2u64..50],
    ) {
        let limit = limit(1_000, 1_000, Algorithm::SlidingWindow { resolution: Some(Millis(r)) });
        let mut charges = charges;
        charges.sort_by_key(|(ago, ..)| std::cmp::Reverse(*ago));
        let now_ms = 1_700_000_000_000;
        let (mut whole, mut part) = (Image::new(7), Image::new(7));
        for (ago, units, lost) in &charges {
            let then = Now::from_millis(now_ms - ago);
            whole.settle(then, &limit);
            whole.charge(then, &limit, *units, Millis::ZERO);
            part.settle(then, &limit);
            if !lost {
                part.charge(then, &limit, *units, Millis::ZERO);
            }
        }
        let now = Now::from_millis(now_ms);
        let lost: Vec<(Millis, u32)> =
            charges.iter().filter(|(.., lost)| *lost).map(|(ago, units, _)| (Millis(*ago), *units)).collect();
        part.settle(now, &limit);
        whole.settle(now, &limit);
        part.put_back(now, &limit, &lost, Millis::ZERO);
        let expected = whole.used();
        prop_assert_eq!(part.used(), expected);
        prop_assert_eq!(&decode(&encode(&part)).unwrap(), &part);
        for later in [1, 200, 500, 990] {
            let later = Now::from_millis(now_ms + later);
            let (mut part, mut whole) = (part.clone(), whole.clone());
            part.settle(later, &limit);
            whole.settle(later, &limit);
            prop_assert_eq!(part.used(), whole.used());
        }
    }
}

fn call(seq: u64, ack: u64) -> Call {
    Call { identity: 1, seq, ack, reset_epoch: 0, lapsed: false }
}

fn back(stored: u64, accepted: bool, entries: &[(Millis, u32)]) -> PutBack {
    PutBack { stored, accepted, entries: entries.to_vec(), lease: Millis::ZERO }
}

#[test]
fn putting_back_is_once_only_and_takes_out_what_was_never_accepted() {
    let limit = sliding(10, 1_000);
    let now = Now::from_millis(1_000_000);
    let mut image = Image::new(7);
    image.settle(now, &limit);
    image.charge(now, &limit, 2, Millis::ZERO);
    record(&mut image, now, &limit, 1, 3, 2);
    // Call 3 was never answered; 4 was, and is lost.
    let put = back(3, false, &[(Millis(100), 5)]);
    assert_eq!(put_back(&mut image, now, &limit, &call(5, 4), &put, false), Verdict::Decide);
    assert_eq!(image.used(), 5);
    assert_eq!(image.ledger[0], Row { identity: 1, seq: 5, count: 0, tick: image.last_tick() });
    // The same call once more, and another that was made when it was known that 3 was the last.
    assert_eq!(put_back(&mut image, now, &limit, &call(5, 4), &put, false), Verdict::Stale { stored: 5 });
    assert_eq!(put_back(&mut image, now, &limit, &call(6, 4), &put, false), Verdict::Decide);
    assert_eq!(put_back(&mut image, now, &limit, &call(7, 4), &put, true), Verdict::Stale { stored: 5 });
    assert_eq!(image.used(), 5);
}

/// A call that only puts back is made while a check's reply may be on its way: it must not take that for lost.
#[test]
fn who_only_puts_back_takes_nothing_for_lost() {
    let limit = sliding(10, 1_000);
    let now = Now::from_millis(1_000_000);
    let mut image = Image::new(7);
    image.settle(now, &limit);
    image.charge(now, &limit, 2, Millis::ZERO);
    record(&mut image, now, &limit, 1, 8, 2);
    let put = back(3, true, &[(Millis(100), 5)]);
    assert_eq!(put_back(&mut image, now, &limit, &call(9, 4), &put, true), Verdict::Stale { stored: 8 });
    assert_eq!(image.used(), 2);
}

#[test]
fn more_than_n_may_be_put_back_and_then_nothing_fits() {
    let limit = sliding(3, 1_000);
    let now = Now::from_millis(1_000_000);
    let mut image = Image::new(7);
    image.settle(now, &limit);
    image.charge(now, &limit, 3, Millis::ZERO);
    let put = back(0, true, &[(Millis(2_000), 7), (Millis(999), 2), (Millis(0), 2)]);
    assert_eq!(put_back(&mut image, now, &limit, &call(5, 4), &put, false), Verdict::Decide);
    assert_eq!(image.used(), 7, "and not what is older than the window");
    let later = Now::from_millis(1_000_001);
    image.settle(later, &limit);
    assert_eq!(image.used(), 5);
}

#[test]
fn a_key_that_was_reset_gets_nothing_back() {
    let limit = sliding(3, 1_000);
    let now = Now::from_millis(1_000_000);
    let mut image = Image { reset_epoch: 9, ..Image::new(7) };
    let put = back(0, true, &[(Millis(10), 2)]);
    assert_eq!(put_back(&mut image, now, &limit, &call(5, 4), &put, false), Verdict::Decide);
    assert_eq!((image.used(), image.ledger.len()), (0, 0));
}
