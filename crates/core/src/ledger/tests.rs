//! Instances, a network that loses and delays, and one key. The oracle is a list of what was accepted.

use std::vec;
use std::vec::Vec;

use proptest::collection::vec as vec_of;
use proptest::prelude::*;

use super::*;
use crate::algorithm::tests::world::{BEGIN_US, CASES, limit, sliding, small, worst_window};
use crate::algorithm::tick_log::layout::{decode, encode};
use crate::limit::Algorithm;
use crate::time::Millis;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Executed, and its reply accepted.
    Answered,
    /// Executed, but the reply never arrived.
    ReplyLost,
    /// Given up, and on its way still.
    Late,
    /// Executed and accepted; a duplicate is on its way.
    Doubled,
}

#[derive(Clone, Debug)]
enum Op {
    Wait {
        share: u64,
        micros: u64,
    },
    Call {
        who: usize,
        cost: u32,
        fate: Fate,
    },
    /// A late call or duplicate arrives; nobody waits for its reply.
    Arrive {
        pick: usize,
    },
    /// The store's clock goes back by milliseconds.
    Back {
        millis: u64,
    },
    /// From now on calls bring another of the limits.
    Limit {
        pick: usize,
    },
    /// The last so many executed calls are lost with the old master.
    Failover {
        lost: usize,
    },
}

#[derive(Clone, Copy, Default)]
struct Mix {
    back: bool,
    limits: bool,
    failover: bool,
}

fn trace(mix: Mix) -> impl Strategy<Value = Vec<Op>> {
    let fate = prop_oneof![
        4 => Just(Fate::Answered),
        2 => Just(Fate::ReplyLost),
        1 => Just(Fate::Late),
        1 => Just(Fate::Doubled),
    ];
    let mut ops = vec![
        (4, (0u64..400, 0u64..1500).prop_map(|(share, micros)| Op::Wait { share, micros }).boxed()),
        (9, (0usize..4, 1u32..4, fate).prop_map(|(who, cost, fate)| Op::Call { who, cost, fate }).boxed()),
        (3, any::<usize>().prop_map(|pick| Op::Arrive { pick }).boxed()),
    ];
    if mix.back {
        let millis = prop_oneof![4 => 0u64..400, 1 => Just(3_600_000u64)];
        ops.push((1, millis.prop_map(|millis| Op::Back { millis }).boxed()));
    }
    if mix.limits {
        ops.push((1, any::<usize>().prop_map(|pick| Op::Limit { pick }).boxed()));
    }
    if mix.failover {
        ops.push((1, (1usize..6).prop_map(|lost| Op::Failover { lost }).boxed()));
    }
    vec_of(proptest::strategy::Union::new_weighted(ops), 1..90)
}

/// An instance, as far as its ledger goes.
#[derive(Clone, Default)]
struct Instance {
    seq: u64,
    ack: u64,
    /// When the last reply with a grant was accepted, in microseconds by its own clock.
    granted_us: u64,
}

/// Permits that a call took out of the key.
#[derive(Clone, Copy, Debug)]
struct Grant {
    at_us: u64,
    at_ms: u64,
    units: u32,
}

struct World {
    image: Image,
    limits: Vec<Limit>,
    limit: Limit,
    real_us: u64,
    behind_us: u64,
    instances: Vec<Instance>,
    network: Vec<(usize, u32, Call)>,
    accepted: Vec<Grant>,
    /// Of each instance the grant that it does not know of.
    lost: Vec<Option<Grant>>,
    /// The key before each executed call.
    history: Vec<Image>,
}

impl World {
    fn new(limits: &[Limit]) -> Self {
        Self {
            image: Image::new(7),
            limits: limits.to_vec(),
            limit: limits[0],
            real_us: BEGIN_US,
            behind_us: 0,
            instances: vec![Instance::default(); 4],
            network: Vec::new(),
            accepted: Vec::new(),
            lost: vec![None; 4],
            history: Vec::new(),
        }
    }

    fn now(&self) -> Now {
        Now::from_micros(self.real_us.saturating_sub(self.behind_us))
    }

    /// Carries an op out, and says what became of a call that was executed.
    fn apply(&mut self, op: &Op) -> Option<(Call, Verdict)> {
        match *op {
            Op::Wait { share, micros } => self.real_us += self.limit.window().0 * share / 1000 + micros,
            Op::Call { who, cost, fate } => return self.call(who, cost, fate),
            Op::Arrive { pick } if !self.network.is_empty() => {
                let (who, cost, call) = self.network.swap_remove(pick % self.network.len());
                let (verdict, grant) = self.execute(cost, &call);
                if verdict == Verdict::Decide {
                    self.lost[who] = grant;
                }
                return Some((call, verdict));
            }
            Op::Back { millis } => self.behind_us += millis * 1000,
            Op::Limit { pick } => self.limit = self.limits[pick % self.limits.len()],
            Op::Failover { lost } if self.history.len() >= lost => {
                self.history.truncate(self.history.len() - lost + 1);
                self.image = self.history.pop().unwrap();
            }
            Op::Arrive { .. } | Op::Failover { .. } => {}
        }
        None
    }

    fn call(&mut self, who: usize, cost: u32, fate: Fate) -> Option<(Call, Verdict)> {
        let lapses_us = (self.limit.window().0 + self.image.log.resolution().0 + 1) * 1000;
        let instance = &mut self.instances[who];
        instance.seq += 1;
        let call = Call {
            identity: 1_000 + who as u64,
            seq: instance.seq,
            ack: instance.ack,
            reset_epoch: 0,
            lapsed: self.real_us >= instance.granted_us + lapses_us,
        };
        if fate == Fate::Late {
            self.network.push((who, cost, call));
            return None;
        }
        if fate == Fate::Doubled {
            self.network.push((who, cost, call));
        }
        let (verdict, grant) = self.execute(cost, &call);
        if verdict == Verdict::Decide {
            self.lost[who] = grant.filter(|_| fate == Fate::ReplyLost);
        }
        if let Some(grant) = grant.filter(|_| fate != Fate::ReplyLost) {
            self.accepted.push(grant);
            let instance = &mut self.instances[who];
            (instance.ack, instance.granted_us) = (call.seq, self.real_us);
        }
        Some((call, verdict))
    }

    fn execute(&mut self, cost: u32, call: &Call) -> (Verdict, Option<Grant>) {
        let (now, limit) = (self.now(), self.limit);
        self.history.push(self.image.clone());
        self.image.settle(now, &limit);
        let verdict = compare(&mut self.image, call);
        if verdict != Verdict::Decide {
            return (verdict, None);
        }
        let units = if limit.permits().saturating_sub(self.image.used()) >= cost { cost } else { 0 };
        let at_ms = self.image.charge(now, &limit, units, Millis::ZERO).at_ms;
        record(&mut self.image, now, &limit, call.identity, call.seq, units);
        // It goes through its bytes each time.
        self.image = decode(&encode(&self.image)).unwrap();
        let grant = Grant { at_us: self.real_us, at_ms, units };
        (verdict, (units > 0).then_some(grant))
    }

    /// Permits of these that count now, at ticks of 1 ms.
    fn counted<'a>(&self, grants: impl Iterator<Item = &'a Grant>) -> u32 {
        let floor_ms = self.now().floor_ms();
        grants.filter(|grant| grant.at_ms + self.limit.window().0 > floor_ms).map(|grant| grant.units).sum()
    }

    fn worst_window(&self) -> u64 {
        let spent: Vec<(u64, u32)> = self.accepted.iter().map(|grant| (grant.at_us, grant.units)).collect();
        worst_window(&spent, self.limit.window())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// Replies are lost, calls and duplicates arrive late. Used is always what the instances accepted within
    /// the window, and of each at most one grant more: the last, if it does not know of it. Nobody is told
    /// that he is behind while no write is lost.
    #[test]
    fn used_is_what_was_accepted_and_the_last_lost_grant_of_each(
        (permits, window) in small(),
        ops in trace(Mix::default()),
    ) {
        let mut world = World::new(&[sliding(permits, window)]);
        for op in &ops {
            let verdict = world.apply(op).map(|(_, verdict)| verdict);
            prop_assert!(!matches!(verdict, Some(Verdict::Behind { .. })), "{op:?}");
            let mut settled = world.image.clone();
            settled.settle(world.now(), &world.limit);
            let expected = world.counted(world.accepted.iter()) + world.counted(world.lost.iter().flatten());
            prop_assert_eq!(settled.used(), expected, "{:?}", op);
        }
        prop_assert!(world.worst_window() <= permits);
    }

    /// With a clock that steps back and resolutions that change besides, so that all ticks are renamed: no
    /// window of real time holds more than N accepted permits, because nothing is taken back from others.
    #[test]
    fn no_window_holds_more_than_n_accepted_permits(
        (permits, window) in small(),
        shares in vec_of(prop_oneof![Just(0u64), 1u64..400], 1..4),
        ops in trace(Mix { back: true, limits: true, ..Mix::default() }),
    ) {
        let limits: Vec<Limit> = shares.iter().map(|share| {
            let resolution = (*share > 0).then(|| Millis((window * share / 1000).max(1)));
            limit(permits, window, Algorithm::SlidingWindow { resolution })
        }).collect();
        let mut world = World::new(&limits);
        for op in &ops {
            world.apply(op);
        }
        prop_assert!(world.worst_window() <= permits);
    }

    /// What a row names is the tick that its permits went to, however ticks are renamed: for a window of real
    /// time taking a lost grant back frees all of it.
    #[test]
    fn a_lost_grant_is_found_again_whatever_its_tick_is_called(
        (permits, window) in small(),
        shares in vec_of(1u64..400, 2..4),
        ops in trace(Mix { back: true, limits: true, ..Mix::default() }),
    ) {
        let limits: Vec<Limit> = shares.iter().map(|share| {
            let resolution = Some(Millis((window * share / 1000).max(1)));
            limit(permits, window, Algorithm::SlidingWindow { resolution })
        }).collect();
        let mut world = World::new(&limits);
        for op in &ops {
            world.apply(op);
            let mut image = world.image.clone();
            image.settle(world.now(), &world.limit);
            for row in image.ledger.clone() {
                let who = usize::try_from(row.identity - 1_000).unwrap();
                if world.lost[who].is_some_and(|lost| world.real_us < lost.at_us + window * 1000) {
                    prop_assert_eq!(image.take_back(row.tick, row.count), row.count, "{:?}", op);
                }
            }
        }
    }

    /// Writes are lost with an old master. Whoever was granted what the new one does not know of is told so,
    /// and nothing is changed; everybody else is decided.
    #[test]
    fn whoever_lost_grants_with_an_old_master_is_told(
        (permits, window) in small(),
        ops in trace(Mix { failover: true, ..Mix::default() }),
    ) {
        let mut world = World::new(&[sliding(permits, window)]);
        for op in &ops {
            let Some((call, verdict)) = world.apply(op) else { continue };
            let before = world.history.last().unwrap();
            let stored = before.ledger.iter().find(|row| row.identity == call.identity).map_or(0, |row| row.seq);
            let expected = if stored > 0 && call.seq <= stored {
                Verdict::Stale { stored }
            } else if stored < call.ack && !call.lapsed {
                Verdict::Behind { stored }
            } else {
                Verdict::Decide
            };
            prop_assert_eq!(verdict, expected);
            if verdict != Verdict::Decide {
                let mut untouched = before.clone();
                untouched.settle(world.now(), &world.limit);
                prop_assert_eq!(&world.image, &untouched);
            }
        }
    }
}

fn call(identity: u64, seq: u64, ack: u64) -> Call {
    Call { identity, seq, ack, reset_epoch: 0, lapsed: false }
}

/// One call from front to back.
fn ask(image: &mut Image, at_ms: u64, limit: &Limit, call: &Call, units: u32) -> Verdict {
    let now = Now::from_millis(at_ms);
    image.settle(now, limit);
    let verdict = compare(image, call);
    if verdict == Verdict::Decide {
        let units = units.min(limit.permits() - image.used());
        image.charge(now, limit, units, Millis::ZERO);
        record(image, now, limit, call.identity, call.seq, units);
    }
    verdict
}

#[test]
fn a_lost_grant_is_taken_back_once_and_the_row_says_0_when_nothing_is_granted() {
    let limit = sliding(5, 1_000);
    let mut image = Image::new(1);
    ask(&mut image, 1_000_000, &limit, &call(1, 1, 0), 2);
    ask(&mut image, 1_000_001, &limit, &call(2, 1, 0), 3);
    ask(&mut image, 1_000_002, &limit, &call(1, 2, 0), 0);
    assert_eq!(image.used(), 3);
    let tick = 1_000_001;
    assert_eq!(image.ledger[0], Row { identity: 1, seq: 2, count: 0, tick });
    // A row that says 0 stays as it is: there is nothing more to take back.
    ask(&mut image, 1_000_003, &limit, &call(1, 3, 0), 0);
    assert_eq!(image.used(), 3);
    // The lost call comes again, after all.
    assert_eq!(ask(&mut image, 1_000_004, &limit, &call(1, 1, 0), 2), Verdict::Stale { stored: 2 });
    assert_eq!(image.used(), 3);
}

#[test]
fn a_denial_writes_no_row() {
    let limit = sliding(1, 1_000);
    let mut image = Image::new(1);
    ask(&mut image, 1_000_000, &limit, &call(1, 1, 0), 1);
    let before = image.clone();
    for seq in 2..5 {
        ask(&mut image, 1_000_000 + seq, &limit, &call(1, seq, 1), 1);
        ask(&mut image, 1_000_000 + seq, &limit, &call(2, seq, 0), 1);
    }
    assert_eq!(image, before);
}

/// A missing row means lost writes, unless the instance has nothing that it could put back, or the key was reset
/// and must not get it back.
#[test]
fn a_missing_row_is_no_loss_after_a_reset_or_a_window() {
    let verdict = |of: Call| compare(&mut Image { reset_epoch: 5, ..Image::new(1) }, &of);
    let lost = Call { reset_epoch: 5, ..call(1, 9, 8) };
    assert_eq!(verdict(lost), Verdict::Behind { stored: 0 });
    assert_eq!(verdict(Call { lapsed: true, ..lost }), Verdict::Decide);
    assert_eq!(verdict(Call { reset_epoch: 4, ..lost }), Verdict::Decide);
    assert_eq!(verdict(Call { ack: 0, ..lost }), Verdict::Decide);
}

#[test]
fn an_older_row_is_no_loss_after_a_window() {
    let limit = sliding(5, 1_000);
    let mut image = Image::new(1);
    ask(&mut image, 1_000_000, &limit, &call(1, 3, 0), 1);
    assert_eq!(ask(&mut image, 1_000_001, &limit, &call(1, 9, 8), 1), Verdict::Behind { stored: 3 });
    let lapsed = Call { lapsed: true, ..call(1, 9, 8) };
    assert_eq!(ask(&mut image, 1_000_001, &limit, &lapsed, 1), Verdict::Decide);
}

#[test]
fn a_full_ledger_loses_what_has_left_and_else_the_oldest() {
    let limit = sliding(1_000, 1_000);
    let mut image = Image::new(1);
    for identity in 0..64 {
        ask(&mut image, 1_000_000 + identity, &limit, &call(identity, 1, 0), 1);
    }
    assert_eq!(image.ledger.len(), ROWS_MAX);
    // None has left: the oldest makes way.
    ask(&mut image, 1_000_100, &limit, &call(64, 1, 0), 1);
    assert_eq!(image.ledger.len(), ROWS_MAX);
    assert!(image.ledger.iter().all(|row| row.identity != 0));
    // Rows 1 to 10 have left.
    ask(&mut image, 1_001_010, &limit, &call(65, 1, 0), 1);
    assert_eq!(image.ledger.len(), ROWS_MAX - 10 + 1);
    assert!(image.ledger.iter().all(|row| row.identity > 10));
}

/// A grant was lost and slid out; the clock went back while the log was empty, and came to the same millisecond
/// again. There it would have taken back what somebody else had been granted: 2 N in one window.
#[test]
fn what_was_lost_before_an_empty_log_began_anew_is_not_taken_from_others() {
    let limit = sliding(5, 1_000);
    let mut image = Image::new(1);
    ask(&mut image, 1_000_000, &limit, &call(1, 1, 0), 5);
    image.settle(Now::from_millis(1_001_000), &limit);
    assert_eq!(image.used(), 0);
    ask(&mut image, 999_000, &limit, &call(2, 1, 0), 1);
    ask(&mut image, 1_000_000, &limit, &call(2, 2, 1), 5);
    assert_eq!(image.used(), 5);
    ask(&mut image, 1_000_001, &limit, &call(1, 2, 0), 0);
    assert_eq!(image.used(), 5);
}

/// The same with ticks that became shorter: a tick of 2 ms has the number of another one of 1 ms.
#[test]
fn what_was_lost_under_other_ticks_is_not_taken_from_others() {
    let coarse = limit(5, 1_000, Algorithm::SlidingWindow { resolution: Some(Millis(2)) });
    let fine = sliding(5, 1_000);
    let mut image = Image::new(1);
    ask(&mut image, 2_000_000, &coarse, &call(1, 1, 0), 5);
    image.settle(Now::from_millis(2_001_000), &coarse);
    image.settle(Now::from_millis(2_001_000), &fine);
    // An hour back while the log is empty.
    ask(&mut image, 1_000_000, &fine, &call(2, 1, 0), 5);
    ask(&mut image, 1_000_001, &fine, &call(1, 2, 0), 0);
    assert_eq!(image.used(), 5);
}
