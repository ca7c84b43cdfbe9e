//! scripts/plain/ held against check.lua: the same checks of two sets of counters, one of which goes the long way,
//! because a reservation does.
//!
//! The walks of `shapes` have the tick log with its ledgers. Here are counters of every algorithm, alone and several
//! in a check, and what is unusual to them: clocks that go back, TTLs that someone changed, values of others, limits
//! and algorithms that change.

use std::sync::Arc;

use proptest::collection::vec as vec_of;
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use slidegate_core::algorithm::bucket::Bucket;
use slidegate_core::algorithm::fixed_window::FixedWindow;
use slidegate_core::algorithm::tick_log::layout::decode;
use slidegate_core::algorithm::{Receipt, State};
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_core::time::{Millis, Now};

use super::ask::{BEGIN_US, at, check_of};
use super::desk::{Desk, LINGER};
use super::model::Told;
use super::shapes::config;
use crate::pipeline::batch::{Counted, OwnedCheck};
use crate::store::ReservationId;
use crate::store::redis::wire::{self, Reply};

const CASES: u32 = 160;

/// The same counter in both sets.
const SETS: [&str; 2] = ["plain", "any"];

#[derive(Clone, Debug)]
enum Step {
    /// In us.
    Clock(i64),
    /// Counters with a change of limit, seldom one.
    Ask {
        counters: Vec<(usize, usize)>,
        cost: u32,
        times: u32,
    },
    /// In ms; none: for ever.
    Ttl {
        key: usize,
        ttl: Option<u64>,
    },
    /// A byte of a value is turned into another; past its end, it is cut.
    Damage {
        key: usize,
        place: usize,
        byte: u8,
    },
    Settle {
        pick: usize,
        give: u32,
        more: u32,
    },
}

/// What happened how often.
#[derive(Debug, Default)]
struct Tally {
    /// Counters of plain replies by algorithm, and those of checks of several.
    plain: [u32; 5],
    several: u32,
    general: u32,
    /// Plain replies to checks that were refused, wholly or in part.
    refused: u32,
    partly: u32,
    undecided: u32,
}

struct Walk<'a> {
    desk: &'a Desk,
    tally: &'a mut Tally,
    limits: Vec<Limit>,
    now_us: u64,
    seq: u64,
    receipts: Vec<(usize, Limit, [Receipt; 2])>,
}

fn key_of(set: &str, key: usize) -> Vec<u8> {
    format!("sg:{{k}}:{set}:{key}").into_bytes()
}

fn place_of(limit: &Limit) -> usize {
    match limit.algorithm() {
        Algorithm::SlidingLog => 1,
        Algorithm::FixedWindow => 2,
        Algorithm::TokenBucket { .. } => 3,
        Algorithm::LeakyBucket { .. } => 4,
        _ => 0,
    }
}

impl Walk<'_> {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Clock(us) => self.now_us = self.now_us.saturating_add_signed(*us).max(BEGIN_US / 2),
            Step::Ask { counters, cost, times } => self.ask(counters, *cost, *times),
            Step::Ttl { key, ttl } => self.each(*key, |desk, key| match ttl {
                Some(ttl) => desk.ask::<()>(&[b"PEXPIRE", key, ttl.to_string().as_bytes()]).unwrap(),
                None => desk.ask::<()>(&[b"PERSIST", key]).unwrap(),
            }),
            Step::Damage { key, place, byte } => self.each(*key, |desk, key| {
                let Ok(Some(mut value)) = desk.ask::<Option<Vec<u8>>>(&[b"GET", key]) else { return };
                // Not a tick log: what is damaged there, only who looks at it finds. Nor permits in use, by more than a few:
                // a million of them, converted to a sorted log, take this test minutes to read.
                if value.get(1) == Some(&0) || matches!(place, 8..=10 | 16..=18) {
                    return;
                }
                match value.get_mut(*place) {
                    Some(found) => *found = *byte,
                    None => drop(value.pop()),
                }
                desk.put(key, &value);
            }),
            Step::Settle { pick, give, more } => self.settle(*pick, *give, *more),
        }
    }

    fn each(&self, key: usize, change: impl Fn(&Desk, &[u8])) {
        SETS.iter().for_each(|set| change(self.desk, &key_of(set, key)));
    }

    fn ask(&mut self, counters: &[(usize, usize)], cost: u32, times: u32) {
        self.seq += 1;
        let chosen: Vec<(usize, Limit)> = (counters.iter())
            .map(|(key, change)| (*key, self.limits[(key + change) % self.limits.len()]))
            .collect();
        let [plain, any] = SETS.map(|set| {
            let names: Vec<(Vec<u8>, Limit)> =
                chosen.iter().map(|(key, limit)| (key_of(set, *key), *limit)).collect();
            let charges: Vec<(&[u8], Limit, u32)> =
                names.iter().map(|(name, limit)| (&name[..], *limit, cost)).collect();
            let mut counted = check_of(&charges, times);
            if set == SETS[1] {
                let reserve = Some(ReservationId::random());
                counted =
                    Counted { check: Arc::new(OwnedCheck { reserve, ..(*counted.check).clone() }), times };
            }
            self.desk.checks(&at(self.now_us, self.seq), &[counted]).unwrap().remove(0)
        });
        let plainly = matches!(&plain, Ok(told) if told.reset_epochs.iter().all(Option::is_none));
        self.count(&chosen, times, &plain, plainly);
        if let (Ok(one), Ok(other)) = (&plain, &any) {
            let receipts = one.decided.receipts.iter().zip(&other.decided.receipts);
            for ((key, limit), receipts) in chosen.iter().zip(receipts) {
                if let (Some(one), Some(other)) = receipts {
                    self.receipts.push((*key, *limit, [*one, *other]));
                }
            }
        }
        let decided = plain.is_ok();
        assert_eq!(Told::of(plain), Told::of(any));
        for (key, limit) in chosen {
            self.compare(key, &limit, decided);
        }
    }

    fn count(&mut self, chosen: &[(usize, Limit)], times: u32, told: &Reply, plainly: bool) {
        let Ok(wire::Told { decided, .. }) = told else {
            self.tally.undecided += 1;
            return;
        };
        // A sliding_log is told by both alike.
        if plainly || chosen.len() == 1 && place_of(&chosen[0].1) == 1 {
            chosen.iter().for_each(|(_, limit)| self.tally.plain[place_of(limit)] += 1);
            self.tally.several += u32::from(chosen.len() > 1);
            let granted = decided.answer.granted;
            self.tally.refused += u32::from(granted == 0);
            self.tally.partly += u32::from(granted > 0 && granted < times);
        } else {
            self.tally.general += 1;
        }
    }

    fn settle(&mut self, pick: usize, give: u32, more: u32) {
        if self.receipts.is_empty() {
            return;
        }
        self.seq += 1;
        let pick = pick % self.receipts.len();
        let (key, limit, receipts) = self.receipts.remove(pick);
        let [one, other] = [0, 1].map(|set| {
            let (name, draft) = (key_of(SETS[set], key), at(self.now_us, self.seq));
            let give = u32::try_from(u64::from(receipts[set].units) * u64::from(give) / 100).unwrap();
            self.desk.settle(&draft, &name, limit, receipts[set], (give, more)).unwrap()
        });
        assert_eq!(one, other, "settled");
    }

    /// What both sets hold, and for how long.
    fn compare(&self, key: usize, limit: &Limit, decided: bool) {
        let names = SETS.map(|set| key_of(set, key));
        let now = Now::from_micros(self.now_us);
        let kinds = names.each_ref().map(|name| self.desk.ask::<String>(&[b"TYPE", name]).unwrap());
        assert_eq!(kinds[0], kinds[1]);
        let expires_ms = if kinds[0] == "zset" {
            let members = names.each_ref().map(|name| {
                self.desk.ask::<Vec<String>>(&[b"ZRANGE", name, b"0", b"-1", b"WITHSCORES"]).unwrap()
            });
            assert_eq!(members[0], members[1]);
            members[0].last().unwrap().parse::<u64>().unwrap() + limit.window().get()
        } else {
            let values = names.each_ref().map(|name| self.desk.value(name));
            let [Some(one), Some(other)] = values else {
                assert!(values.iter().all(Option::is_none), "{values:?}");
                return;
            };
            if let [Ok(mut one), Ok(mut other)] = [decode(&one), decode(&other)] {
                if place_of(limit) > 0 {
                    return; // Not converted, since another counter's value is damaged.
                }
                one.settle(now, limit);
                other.settle(now, limit);
                assert_eq!((&one.log, one.reset_epoch), (&other.log, other.reset_epoch));
                return; // How long it lives, the walks compare.
            } else {
                assert_eq!(one, other);
                let Some(state) = state_of(&one, limit, now) else { return };
                // An empty one says nothing.
                if state.used() > 0 { state.expires_at_ms(limit) } else { 0 }
            }
        };
        let needed = expires_ms.saturating_sub(now.floor_ms());
        let most = needed.max(limit.window().get()) + limit.window().get().min(60_000) + LINGER.get();
        // What is not ours keeps what it has.
        for name in names.iter().filter(|_| decided) {
            let ttl = self.desk.pttl(name);
            assert!(ttl > 0, "no TTL: {}", String::from_utf8_lossy(name));
            let ttl = u64::try_from(ttl).unwrap();
            // Half a minute for a busy machine.
            assert!(
                ttl + 30_000 >= needed && ttl <= most + 1_000,
                "{}: lives for {ttl} ms, not {needed} to {most}",
                String::from_utf8_lossy(name)
            );
        }
    }
}

/// What a value of a few numbers says; `None`: it is none of this limit's.
fn state_of(value: &[u8], limit: &Limit, now: Now) -> Option<State> {
    let u32_at = |at: usize| Some(u32::from_be_bytes(value.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_be_bytes(value.get(at..at + 8)?.try_into().ok()?));
    match (place_of(limit), value.len()) {
        (2, 20) => {
            let window = FixedWindow::stored(u32_at(4)?, u32_at(8)?, u64_at(12)?);
            Some(State::FixedWindow(window))
        }
        // Else its remainder is counted in another window.
        (3 | 4, 36) if u64_at(8)? == limit.window().get() => {
            let bucket = Bucket::stored(u32_at(4)?, u32_at(16)?, u64_at(20)?, u64_at(28)?, now, limit);
            Some(State::Bucket(bucket))
        }
        _ => None,
    }
}

fn limit() -> impl Strategy<Value = Limit> {
    let permits =
        prop_oneof![8 => 1u64..9, 4 => 10u64..60, 1 => Just(1_000_000u64), 1 => Just(u64::from(u32::MAX))];
    let window =
        prop_oneof![4 => 1u64..60, 6 => 60u64..2_000, 1 => Just(3_600_000u64), 1 => Just(366 * 86_400_000)];
    (permits, window, 0usize..5, 1u32..12, prop_oneof![0u64..8, 0u64..2_000]).prop_map(
        |(permits, window, kind, burst, max_delay)| {
            let limit = Limit::new(permits, Millis(window)).unwrap();
            let algorithm = [
                Algorithm::SLIDING_WINDOW,
                Algorithm::SlidingLog,
                Algorithm::FixedWindow,
                Algorithm::TokenBucket { burst },
                Algorithm::LeakyBucket { max_delay: Millis(max_delay) },
            ][kind];
            limit.with_algorithm(algorithm).unwrap_or(limit)
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let clock = prop_oneof![
        8 => 0i64..3_000,
        6 => 0i64..400_000,
        1 => 0i64..4_000_000_000,
        3 => -1_500i64..0,
        1 => -20_000_000i64..0,
    ];
    let change = prop_oneof![24 => Just(0usize), 1 => 1usize..4];
    let counters = vec_of((0usize..4, change), 1..4).prop_map(|mut counters| {
        counters.sort_unstable();
        counters.dedup_by_key(|(key, _)| *key);
        counters
    });
    let alone = (0usize..4).prop_map(|key| vec![(key, 0)]);
    let ask = (
        prop_oneof![3 => alone.boxed(), 3 => counters.boxed()],
        prop_oneof![6 => Just(1u32), 2 => 2u32..5],
        prop_oneof![4 => Just(1u32), 2 => 2u32..6],
    )
        .prop_map(|(counters, cost, times)| Step::Ask { counters, cost, times });
    let ttl = prop_oneof![
        Just(None),
        Just(Some(100_000_000u64)),
        Just(Some(2_000_000_000_000)),
        Just(Some(30_000))
    ];
    let damage =
        (0usize..4, prop_oneof![0usize..4, 0usize..40], prop_oneof![Just(0u8), Just(1), any::<u8>()]);
    prop_oneof![
        20 => clock.prop_map(Step::Clock),
        40 => ask,
        2 => (0usize..4, ttl).prop_map(|(key, ttl)| Step::Ttl { key, ttl }),
        2 => damage.prop_map(|(key, place, byte)| Step::Damage { key, place, byte }),
        3 => (any::<usize>(), 0u32..=100, 0u32..2).prop_map(|(pick, give, more)| Step::Settle { pick, give, more }),
    ]
}

/// Whatever a plain check meets: it is decided, told and stored as by check.lua.
#[test]
fn plain_checks_are_decided_as_any() {
    let desk = Desk::new();
    let tally = std::cell::RefCell::new(Tally::default());
    let trace = (vec_of(limit(), 4), vec_of(step(), 1..80));
    let outcome = TestRunner::new(config(CASES)).run(&trace, |(limits, steps)| {
        desk.clear();
        let mut tally = tally.borrow_mut();
        let mut walk =
            Walk { desk: &desk, tally: &mut tally, limits, now_us: BEGIN_US, seq: 1, receipts: Vec::new() };
        steps.iter().for_each(|step| walk.take(step));
        Ok(())
    });
    if let Err(TestError::Fail(reason, (limits, steps))) = outcome {
        let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
        panic!("{reason}\nunder {limits:?}:\n{}", steps.join("\n"));
    }
    let tally = tally.into_inner();
    eprintln!("{tally:?}");
    let counts = tally.plain.into_iter().chain([tally.several, tally.refused, tally.partly, tally.undecided]);
    assert!(counts.min().unwrap() > 10, "{tally:?}");
}
