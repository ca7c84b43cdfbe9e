//! Leases: a permit leased at s is spent anywhere in [s, s + l], and still no window holds more than N.

use std::vec::Vec;

use proptest::prelude::*;

use super::world::{BEGIN_US, CASES, limit, sliding, small, worst_window};
use crate::algorithm::tick_log::TickLog;
use crate::algorithm::{Receipt, State};
use crate::lease::LeaseSpan;
use crate::limit::{Algorithm, Limit};
use crate::time::{Millis, Now};

/// A lease that was taken, with the microseconds at which its permits are going to be spent.
struct Lease {
    receipt: Receipt,
    spends: Vec<u64>,
}

#[derive(Clone, Debug)]
enum Op {
    Wait {
        share: u64,
        micros: u64,
    },
    /// Waits until the last denial's retry_after is over, and some microseconds more or less.
    Retry {
        micros: i64,
    },
    /// A plain check of one permit.
    Take,
    /// As many permits as fit, up to `most`, for `length` ms; each is spent at one of `spends` thousandths
    /// of the way to the end.
    Lease {
        most: u32,
        length: u64,
        spends: Vec<u64>,
    },
    /// Up to `units` permits that have not been spent yet are given back to a lease.
    GiveBack {
        pick: usize,
        units: u32,
    },
    /// The store's clock goes back by milliseconds.
    Back {
        millis: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let moment = prop_oneof![Just(0u64), Just(1000), 0u64..=1000];
    let spends = proptest::collection::vec(moment, 12);
    prop_oneof![
        4 => (0u64..400, 0u64..1500).prop_map(|(share, micros)| Op::Wait { share, micros }),
        3 => (-1100i64..1100).prop_map(|micros| Op::Retry { micros }),
        4 => Just(Op::Take),
        4 => (1u32..9, 0u64..30, spends).prop_map(|(most, length, spends)| Op::Lease { most, length, spends }),
        2 => (any::<usize>(), 1u32..4).prop_map(|(pick, units)| Op::GiveBack { pick, units }),
        1 => (0u64..400).prop_map(|millis| Op::Back { millis }),
    ]
}

struct World {
    limit: Limit,
    state: State,
    real_us: u64,
    behind_us: u64,
    leases: Vec<Lease>,
    retry_us: u64,
}

impl World {
    fn new(limit: Limit) -> Self {
        Self {
            limit,
            state: State::new(&limit, 1),
            real_us: BEGIN_US,
            behind_us: 0,
            leases: Vec::new(),
            retry_us: 0,
        }
    }

    fn now(&self) -> Now {
        Now::from_micros(self.real_us - self.behind_us)
    }

    fn log(&mut self) -> &mut TickLog {
        match &mut self.state {
            State::TickLog(log) => log,
            other => panic!("{other:?}"),
        }
    }

    fn apply(&mut self, op: &Op) {
        let (now, limit) = (self.now(), self.limit);
        match op {
            Op::Wait { share, micros } => self.real_us += limit.window().get() * share + micros,
            Op::Retry { micros } => {
                let until = self.retry_us.saturating_add_signed(*micros);
                self.real_us += until.saturating_sub(now.as_micros());
            }
            Op::Back { millis } => self.behind_us += millis * 1000,
            Op::Take => self.take(1, Millis::ZERO, &[0]),
            Op::Lease { most, length, spends } => self.take(*most, Millis(*length), spends),
            Op::GiveBack { pick, units } => {
                self.state.settle(now, &limit);
                let count = self.leases.len().max(1);
                let Some(lease) = self.leases.get_mut(pick % count) else {
                    return;
                };
                let unspent = lease.spends.iter().filter(|at| **at > self.real_us).count();
                let units = (*units).min(u32::try_from(unspent).unwrap());
                for _ in 0..self.state.refund(now, &limit, &lease.receipt, units) {
                    let next = lease.spends.iter().position(|at| *at > self.real_us).unwrap();
                    lease.spends.remove(next);
                    lease.receipt.units -= 1;
                }
            }
        }
    }

    fn take(&mut self, most: u32, length: Millis, spends: &[u64]) {
        let (now, real_us, limit) = (self.now(), self.real_us, self.limit);
        self.state.settle(now, &limit);
        let units = self.state.room(&limit, 1).min(most);
        if units == 0 {
            let retry = self.state.retry_after(now, &limit, 1).map_or(0, Millis::get);
            self.retry_us = (now.floor_ms() + retry) * 1000;
            return;
        }
        let receipt = self.log().lease(now, &limit, units, length);
        let spends = spends.iter().cycle().take(units as usize);
        let spends = spends.map(|share| real_us + length.get() * share).collect();
        self.leases.push(Lease { receipt, spends });
    }

    fn spent(&self) -> Vec<(u64, u32)> {
        self.leases.iter().flat_map(|lease| lease.spends.iter().map(|at| (*at, 1))).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2 * CASES))]

    /// Plain checks and leases of any length share a key; every leased permit is spent at some microsecond
    /// of [s, s + l], or given back unspent; the store's clock steps back now and then. No window of W holds
    /// more than N of the instants at which permits were really spent.
    #[test]
    fn no_window_of_real_spending_holds_more_than_n(
        (permits, window) in small(),
        resolution in prop_oneof![2 => Just(None), 1 => (1u64..=500).prop_map(Some)],
        ops in proptest::collection::vec(op(), 1..80),
    ) {
        let resolution = resolution.map(|share| Millis((window * share / 1000).max(1)));
        let limit = limit(permits, window, Algorithm::SlidingWindow { resolution });
        let mut world = World::new(limit);
        ops.iter().for_each(|op| world.apply(op));
        prop_assert!(worst_window(&world.spent(), limit.window()) <= permits);
    }

    /// While leased permits may lie in the window, what is denied is told the exact time too: one
    /// microsecond before it the cost does not fit, at it it does.
    #[test]
    fn retry_after_is_exact_with_leases((permits, window) in small(), ops in proptest::collection::vec(op(), 1..60), cost in 1u32..9) {
        let limit = sliding(permits, window);
        let mut world = World::new(limit);
        ops.iter().for_each(|op| world.apply(op));
        let now = world.now();
        world.state.settle(now, &limit);
        if cost > limit.permits() || world.state.room(&limit, cost) > 0 {
            return Ok(());
        }
        let fits_us = (now.floor_ms() + world.state.retry_after(now, &limit, cost).unwrap().get()) * 1000;
        let room = |at_us: u64| {
            let mut state = world.state.clone();
            state.settle(Now::from_micros(at_us), &limit);
            state.room(&limit, cost)
        };
        prop_assert!(fits_us > now.as_micros());
        prop_assert_eq!(room(fits_us - 1), 0);
        prop_assert!(room(fits_us) > 0);
    }
}

/// Ten permits are leased for 20 ms and spent at the very end. If they left a second after they were
/// leased, ten more would follow within 980 ms.
#[test]
fn a_lease_is_waited_for_by_everybody() {
    let limit = sliding(10, 1_000);
    let mut world = World::new(limit);
    world.real_us = 1_000_000_000_000;
    world.take(10, Millis(20), &[1000]);
    world.real_us += 1_019_999;
    world.take(1, Millis::ZERO, &[0]);
    assert_eq!(world.leases.len(), 1);
    assert_eq!(world.retry_us, 1_000_001_020_000);
    world.real_us += 1;
    world.take(1, Millis::ZERO, &[0]);
    assert_eq!(world.leases.len(), 2);
}

#[test]
fn a_window_closes_again_when_the_last_lease_is_a_window_old() {
    let limit = sliding(10, 1_000);
    let mut world = World::new(limit);
    world.real_us = 1_000_000_000_000;
    world.take(1, Millis(20), &[0]);
    world.real_us += 900_000;
    world.take(1, Millis::ZERO, &[0]);
    assert_eq!(world.log().lease_span().longest, Millis(20));
    world.real_us += 120_000;
    world.take(1, Millis::ZERO, &[0]);
    assert_eq!(world.log().lease_span(), LeaseSpan::default());
    // A later, shorter lease does not inherit the length of one that is over.
    world.take(1, Millis(5), &[0]);
    assert_eq!(world.log().lease_span().longest, Millis(5));
}

#[test]
fn a_lease_of_no_length_is_a_plain_charge() {
    let limit = sliding(10, 1_000);
    let (mut leased, mut charged) = (World::new(limit), World::new(limit));
    leased.take(3, Millis::ZERO, &[0]);
    let now = charged.now();
    charged.state.settle(now, &limit);
    charged.state.charge(now, &limit, 3);
    assert_eq!(leased.state, charged.state);
}

/// The policy drops its leases and its algorithm at once: the permits that are still out must count for as
/// long as they may be spent.
#[test]
fn a_changed_algorithm_waits_for_the_leases_of_the_old_one() {
    let limit_before = sliding(10, 1_000);
    for algorithm in [Algorithm::SlidingLog, Algorithm::TokenBucket { burst: 10 }] {
        let mut world = World::new(limit_before);
        world.real_us = 1_000_000_000_000;
        world.take(10, Millis(20), &[1000]);
        let after = limit_before.with_algorithm(algorithm).unwrap();
        let mut room = |after_us: u64| {
            let now = Now::from_micros(world.real_us + after_us);
            world.state.settle(now, &after);
            world.state.room(&after, 1)
        };
        assert_eq!(room(10_000), 0);
        assert_eq!(room(100_000), 0);
        let full_us = if algorithm == Algorithm::SlidingLog { 1_020_000 } else { 120_000 };
        assert_eq!(room(full_us - 1), 0);
        assert!(room(full_us) > 0);
    }
}
