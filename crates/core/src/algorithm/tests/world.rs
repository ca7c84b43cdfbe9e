//! A small world: one counter, a list of limits that it may be held to, real time in microseconds, and a
//! store whose clock may differ from it. It keeps the list of what was admitted when, which is all that
//! the oracles look at.

use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use proptest::collection::vec as vec_of;
use proptest::prelude::*;
use proptest::strategy::Union;

use crate::algorithm::{Receipt, State};
use crate::check::{Charge, Terms, decide};
use crate::decision::Outcome;
use crate::limit::{Algorithm, Limit};
use crate::time::{Millis, Now};

/// Where every world begins: some Wednesday, between two milliseconds.
pub(crate) const BEGIN_US: u64 = 1_700_000_000_123_457;

/// The midnight (UTC) that the stories begin at.
pub(crate) const MIDNIGHT_MS: u64 = 19_675 * 86_400_000;

/// Cases of each property, so that all of them together take seconds. `PROPTEST_CASES`, where it is set, is
/// used instead; a hundred thousand have been run.
pub(crate) const CASES: u32 = 4096;

pub(crate) fn sliding(permits: u64, window: u64) -> Limit {
    Limit::new(permits, Millis(window)).unwrap()
}

pub(crate) fn limit(permits: u64, window: u64, algorithm: Algorithm) -> Limit {
    sliding(permits, window).with_algorithm(algorithm).unwrap()
}

/// One thing that happens. Shares scale with the first limit, so that traces fill any window.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Time passes: so many thousandths of W, and microseconds.
    Wait { share: u64, micros: u64 },
    /// Time passes until the last denied check fits, and some microseconds more or less.
    Retry { micros: i64 },
    /// `times` checks of a cost in permits and hundredths of N, under one of the limits.
    Check { limit: usize, cost: u32, share: u32, times: u32 },
    /// Hundredths of what an earlier admission still holds are given back.
    Refund { limit: usize, pick: usize, share: u32 },
    /// The store's clock is set, by so many thousandths of W and microseconds.
    Step { share: i64, micros: i64 },
}

/// What may happen in a trace besides checks and time passing.
#[derive(Clone, Copy, Default)]
pub(crate) struct Mix {
    pub(crate) refunds: bool,
    pub(crate) batches: bool,
    pub(crate) back: bool,
    pub(crate) forward: bool,
}

pub(crate) fn trace(mix: Mix) -> impl Strategy<Value = Vec<Op>> {
    let times = if mix.batches { 4u32 } else { 1 };
    let wait = prop_oneof![
        3 => (0u64..60, 0u64..1500),
        2 => (Just(0u64), 0u64..1500),
        1 => (0u64..700, 0u64..1500),
    ]
    .prop_map(|(share, micros)| Op::Wait { share, micros });
    let check = (
        any::<usize>(),
        prop_oneof![1 => Just(0u32), 8 => 1u32..3, 1 => 3u32..12],
        prop_oneof![3 => Just(0u32), 1 => 0u32..60],
        1..=times,
    )
        .prop_map(|(limit, cost, share, times)| Op::Check { limit, cost, share, times });
    let retry = (-1100i64..1100).prop_map(|micros| Op::Retry { micros });
    let refund = (any::<usize>(), any::<usize>(), 0u32..=100).prop_map(|(limit, pick, share)| Op::Refund {
        limit,
        pick,
        share,
    });
    let back = prop_oneof![
        3 => (-800i64..=0, -2000i64..=0),
        1 => (-5000i64..=0, -2000i64..=0),
        1 => (Just(-1_000_000i64), -2000i64..=0),
    ];
    let forward = (0i64..5000, 0i64..2000);
    let step = |(share, micros)| Op::Step { share, micros };

    let mut ops: Vec<(u32, BoxedStrategy<Op>)> =
        vec![(6, wait.boxed()), (10, check.boxed()), (3, retry.boxed())];
    if mix.refunds {
        ops.push((3, refund.boxed()));
    }
    if mix.back {
        ops.push((2, back.prop_map(step).boxed()));
    }
    if mix.forward {
        ops.push((1, forward.prop_map(step).boxed()));
    }
    vec_of(Union::new_weighted(ops), 1..90)
}

/// N and W small enough to be full all the time.
pub(crate) fn small() -> impl Strategy<Value = (u64, u64)> {
    (prop_oneof![1 => Just(0u64), 20 => 1u64..9], 1u64..60)
}

/// N and W so large that ticks are longer than a millisecond.
pub(crate) fn large() -> impl Strategy<Value = (u64, u64)> {
    (4097u64..12_000, 8192u64..80_000)
}

/// A `sliding_window` or `sliding_log` limit, with every kind of resolution.
pub(crate) fn any_sliding() -> impl Strategy<Value = Limit> {
    let resolution = prop_oneof![
        2 => Just(None),
        1 => (1u64..=1000).prop_map(Some),
    ];
    let window = (prop_oneof![4 => small().boxed(), 1 => large().boxed()], resolution).prop_map(
        |((permits, window), share)| {
            let resolution = share.map(|share| Millis((window * share / 1000).max(1)));
            limit(permits, window, Algorithm::SlidingWindow { resolution })
        },
    );
    let log = small().prop_map(|(permits, window)| limit(permits, window, Algorithm::SlidingLog));
    prop_oneof![4 => window, 1 => log]
}

/// What was admitted, and what of it has not been given back.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    /// In real time.
    pub(crate) at_us: u64,
    /// In whole milliseconds of the store's clock, rounded up.
    pub(crate) at_ms: u64,
    pub(crate) units: u32,
    pub(crate) receipt: Receipt,
    /// Was at least a window old at some later check or refund, by the W of that one.
    pub(crate) expired: bool,
}

/// What came of an [`Op`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Nothing,
    Checked { limit: Limit, cost: u32, times: u32, granted: u32, outcome: Outcome, receipt: Option<Receipt> },
    Refunded { asked: u32, given: u32 },
}

pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) limits: Vec<Limit>,
    pub(crate) real_us: u64,
    pub(crate) skew_us: i64,
    pub(crate) grants: Vec<Grant>,
    retry_us: Option<u64>,
}

impl World {
    pub(crate) fn new(limits: &[Limit]) -> Self {
        Self {
            state: State::new(&limits[0], 7),
            limits: limits.to_vec(),
            real_us: BEGIN_US,
            skew_us: 0,
            grants: Vec::new(),
            retry_us: None,
        }
    }

    /// One check, so many milliseconds after midnight: whether it passed, and what it was told.
    pub(crate) fn ask(&mut self, at_ms: u64, limit: &Limit, cost: u32) -> (bool, Outcome) {
        self.real_us = (MIDNIGHT_MS + at_ms) * 1000;
        self.limits = vec![*limit];
        match self.check(0, cost, 1) {
            Event::Checked { granted, outcome, .. } => (granted == 1, outcome),
            other => panic!("{other:?}"),
        }
    }

    /// How many of `times` checks pass, one after another at one instant.
    pub(crate) fn flood(&mut self, at_ms: u64, limit: &Limit, times: usize) -> usize {
        (0..times).filter(|_| self.ask(at_ms, limit, 1).0).count()
    }

    /// What the store's clock says.
    pub(crate) fn now(&self) -> Now {
        Now::from_micros(self.real_us.saturating_add_signed(self.skew_us))
    }

    pub(crate) fn apply(&mut self, op: &Op) -> Event {
        let (permits, window) = (self.limits[0].permits(), self.limits[0].window().get());
        match *op {
            Op::Wait { share, micros } => self.real_us += window * share + micros,
            Op::Retry { micros } => {
                let until = self.retry_us.map_or(0, |retry| retry.saturating_add_signed(micros));
                self.real_us += until.saturating_sub(self.now().as_micros());
            }
            Op::Step { share, micros } => {
                let window = i64::try_from(window).unwrap();
                self.skew_us += window * share + micros;
            }
            Op::Check { limit, cost, share, times } => {
                return self.check(limit, cost + permits / 100 * share, times);
            }
            Op::Refund { limit, pick, share } => return self.refund(limit, pick, share),
        }
        Event::Nothing
    }

    /// Marks what is a window old, in continuous time, by the limit of this call.
    fn expire(&mut self, limit: &Limit) {
        for grant in &mut self.grants {
            grant.expired |= self.real_us - grant.at_us >= limit.window().get() * 1000;
        }
    }

    pub(crate) fn check(&mut self, limit: usize, cost: u32, times: u32) -> Event {
        let (now, limit) = (self.now(), self.limits[limit % self.limits.len()]);
        self.expire(&limit);
        let mut charges = [Charge::new(&mut self.state, &limit, cost, 0, Terms::default())];
        let granted = decide(now, times, &mut charges);
        let [charge] = charges;
        let (outcome, receipt) = (charge.outcome, charge.receipt);
        if let Some(receipt) = receipt {
            self.grants.push(Grant {
                at_us: self.real_us,
                at_ms: now.ceil_ms(),
                units: granted * cost,
                receipt,
                expired: false,
            });
        }
        if let Some(retry) = outcome.retry_after {
            self.retry_us = Some((now.floor_ms() + retry.get()) * 1000);
        }
        Event::Checked { limit, cost, times, granted, outcome, receipt }
    }

    fn refund(&mut self, limit: usize, pick: usize, share: u32) -> Event {
        let (now, limit) = (self.now(), self.limits[limit % self.limits.len()]);
        self.expire(&limit);
        self.state.settle(now, &limit);
        let count = self.grants.len().max(1);
        let Some(grant) = self.grants.get_mut(pick % count) else {
            return Event::Nothing;
        };
        let asked = (grant.units * share).div_ceil(100);
        let given = self.state.refund(now, &limit, &grant.receipt, asked);
        grant.units -= given;
        grant.receipt.units -= given;
        Event::Refunded { asked, given }
    }

    /// The oracle: what was admitted in `(real - W, real]` of continuous real time and not given back, and
    /// had not expired under a shorter window before.
    pub(crate) fn held(&self, window: Millis) -> u64 {
        let reach = window.get() * 1000;
        self.grants
            .iter()
            .filter(|grant| !grant.expired && self.real_us - grant.at_us < reach)
            .map(|grant| u64::from(grant.units))
            .sum()
    }
}

/// The most units in any `(t - W, t]` of a list of (microsecond, units): only the instants in the list can
/// be the worst.
pub(crate) fn worst_window(spent: &[(u64, u32)], window: Millis) -> u64 {
    let mut spent: Box<[(u64, u32)]> = spent.into();
    spent.sort_unstable();
    let (mut from, mut held, mut worst) = (0, 0, 0);
    for &(at, units) in &spent {
        held += u64::from(units);
        while at - spent[from].0 >= window.get() * 1000 {
            held -= u64::from(spent[from].1);
            from += 1;
        }
        worst = worst.max(held);
    }
    worst
}
