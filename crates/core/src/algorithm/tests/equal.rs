//! The tick log against the sorted log, and the sorted log against a list.

use std::vec::Vec;

use proptest::collection::vec as vec_of;
use proptest::prelude::*;

use super::world::{CASES, Event, Mix, World, large, limit, sliding, small, trace};
use crate::algorithm::{Receipt, State};
use crate::decision::Outcome;
use crate::limit::{Algorithm, Limit};
use crate::time::Millis;

const EVERYTHING: Mix = Mix { refunds: true, batches: true, back: true, forward: true };

fn as_log(limit: &Limit) -> Limit {
    limit.with_algorithm(Algorithm::SlidingLog).unwrap()
}

/// Limits whose ticks are 1 ms: few permits, or a short window.
fn millisecond_limits() -> impl Strategy<Value = Vec<Limit>> {
    let one = prop_oneof![
        5 => small(),
        1 => (1u64..12_000, 1u64..4096),
        1 => (1u64..=4096, 1u64..80_000),
    ];
    vec_of(one.prop_map(|(permits, window)| sliding(permits, window)), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// At ticks of 1 ms the tick log decides what the sorted log decides, and says the same: granted, used,
    /// remaining, reset_after, retry_after, receipts and what a refund gives back, whatever the clock does
    /// and however limits change.
    #[test]
    fn a_tick_log_of_1_ms_is_a_sorted_log(limits in millisecond_limits(), ops in trace(EVERYTHING)) {
        let mut ticks = World::new(&limits);
        let mut sorted = World::new(&limits.iter().map(as_log).collect::<Vec<_>>());
        for op in &ops {
            let (left, right) = (ticks.apply(op), sorted.apply(op));
            prop_assert_eq!(left, as_window(right), "{:?}", op);
        }
    }

    /// The sorted log decides and says what a plain list of units says that is searched from end to end, for
    /// clocks that do whatever they like.
    #[test]
    fn a_sorted_log_is_a_list(limits in millisecond_limits(), ops in trace(EVERYTHING)) {
        let limits: Vec<_> = limits.iter().map(as_log).collect();
        let mut sorted = World::new(&limits);
        let mut list = List::default();
        for op in &ops {
            let event = sorted.apply(op);
            let now = sorted.now();
            match event {
                Event::Checked { limit, cost, times, granted, outcome, receipt } => {
                    let expected = list.check(now.as_micros(), &limit, cost, times);
                    prop_assert_eq!((granted, outcome), expected, "{:?}", op);
                    list.stamp(receipt);
                }
                Event::Refunded { asked, given } => {
                    let super::world::Op::Refund { limit, pick, .. } = op else { unreachable!() };
                    let limit = limits[limit % limits.len()];
                    list.settle(now.as_micros(), &limit);
                    let grant = &sorted.grants[pick % sorted.grants.len()];
                    prop_assert_eq!(list.give_back(&grant.receipt, asked), given, "{:?}", op);
                }
                Event::Nothing => if let super::world::Op::Refund { limit, .. } = op {
                    list.settle(now.as_micros(), &limits[limit % limits.len()]);
                }
            }
        }
    }

    /// At longer ticks quota comes back less than r late, and never early: what the tick log counts lies
    /// between what a sorted log of the same admissions counts now, and what it counted r ago.
    #[test]
    fn longer_ticks_give_quota_back_less_than_r_late_and_never_early(
        (permits, window) in prop_oneof![small(), large()],
        share in 1u64..=400,
        automatic in any::<bool>(),
        ops in trace(Mix { batches: true, ..Mix::default() }),
    ) {
        let resolution = (!automatic).then(|| Millis((window * share / 1000).max(1)));
        let mut world = World::new(&[limit(permits, window, Algorithm::SlidingWindow { resolution })]);
        for op in &ops {
            world.apply(op);
            world.check(0, 0, 1);
            let State::TickLog(log) = &world.state else { unreachable!() };
            let floor = world.now().floor_ms();
            let counted = |window: u64| -> u32 {
                world.grants.iter().filter(|grant| grant.at_ms + window > floor).map(|grant| grant.units).sum()
            };
            prop_assert!(counted(window) <= log.used());
            prop_assert!(log.used() <= counted(window + log.resolution().get() - 1));
        }
    }

    /// When r is raised, from whatever to whatever, nothing is rounded up twice: quota is still back less
    /// than the r then in force late, and never early.
    #[test]
    fn raising_r_rounds_nothing_up_twice(
        (permits, window) in prop_oneof![small(), large()],
        shares in vec_of(1u64..=400, 2..5),
        ops in trace(Mix { batches: true, ..Mix::default() }),
    ) {
        let limits: Vec<_> = shares.iter().map(|share| {
            let resolution = Some(Millis((window * share / 1000).max(1)));
            limit(permits, window, Algorithm::SlidingWindow { resolution })
        }).collect();
        let mut world = World::new(&limits);
        let asked = |limit: &Limit| match limit.algorithm() {
            Algorithm::SlidingWindow { resolution } => resolution.unwrap().get(),
            _ => unreachable!(),
        };
        let coarsest_asked = limits.iter().map(asked).max().unwrap();
        let mut coarsest = 1;
        for op in &ops {
            world.apply(op);
            let State::TickLog(log) = &world.state else { unreachable!() };
            coarsest = coarsest.max(log.resolution().get());
            let floor = world.now().floor_ms();
            let mut settled = world.state.clone();
            settled.settle(world.now(), &limits[0]);
            let counted = |window: u64| -> u32 {
                world.grants.iter().filter(|grant| grant.at_ms + window > floor).map(|grant| grant.units).sum()
            };
            prop_assert!(counted(window) <= settled.used());
            prop_assert!(settled.used() <= counted(window + coarsest - 1));
            prop_assert!(coarsest < 2 * coarsest_asked);
        }
    }
}

/// An event of the sorted log, as the tick log would have told it.
fn as_window(event: Event) -> Event {
    match event {
        Event::Checked { limit, cost, times, granted, outcome, receipt } => Event::Checked {
            limit: limit.with_algorithm(Algorithm::SLIDING_WINDOW).unwrap(),
            cost,
            times,
            granted,
            outcome,
            receipt,
        },
        other => other,
    }
}

/// The oracle: one element for each admission, nothing ordered, everything searched. Written from the
/// promise: a charge counts from its millisecond, rounded up, until W later, rounded down; time that is
/// ahead of the clock by at most min(W, 10 s) stands still; else it moves to now, or to the next millisecond
/// if it is more than one.
#[derive(Default)]
struct List {
    held: Vec<Held>,
    last_ms: u64,
}

struct Held {
    at_ms: u64,
    units: u32,
    /// None for units that were moved: nothing can name them any more.
    receipt: Option<Receipt>,
}

impl List {
    fn used(&self) -> u64 {
        self.held.iter().map(|held| u64::from(held.units)).sum()
    }

    fn settle(&mut self, now_us: u64, limit: &Limit) {
        let (floor, ceil, window) = (now_us / 1000, now_us.div_ceil(1000), limit.window().get());
        if self.used() > 0 && self.last_ms > ceil + window.min(10_000) {
            let apart = self.held.iter().any(|held| held.units > 0 && held.at_ms != self.last_ms);
            let back = self.last_ms - ceil - u64::from(apart);
            for held in &mut self.held {
                held.at_ms -= back;
                held.receipt = None;
            }
            self.last_ms -= back;
        }
        self.held.retain(|held| held.at_ms + window > floor && held.units > 0);
    }

    fn check(&mut self, now_us: u64, limit: &Limit, cost: u32, times: u32) -> (u32, Outcome) {
        self.settle(now_us, limit);
        let (permits, ceil) = (u64::from(limit.permits()), now_us.div_ceil(1000));
        let mut granted = 0;
        for _ in 0..times {
            if cost > 0 && self.used() + u64::from(cost) > permits {
                break;
            }
            granted += 1;
            if cost > 0 {
                self.last_ms = if self.used() > 0 { self.last_ms.max(ceil) } else { ceil };
                self.held.push(Held { at_ms: self.last_ms, units: cost, receipt: None });
            }
        }
        let used = u32::try_from(self.used().min(permits)).unwrap();
        let refused = granted < times;
        let never = cost > limit.permits() || permits == 0;
        let outcome = Outcome {
            limit: limit.permits(),
            used,
            remaining: limit.permits() - used,
            reset_after: Millis(if used == 0 || permits == 0 {
                0
            } else {
                self.first_ms(now_us, limit, |count| count < u64::from(used))
            }),
            violated: refused,
            retry_after: (refused && !never)
                .then(|| Millis(self.first_ms(now_us, limit, |count| count + u64::from(cost) <= permits))),
            delay: Millis::ZERO,
        };
        (granted, outcome)
    }

    /// Milliseconds until the count, if nothing is added, first meets a condition.
    fn first_ms(&self, now_us: u64, limit: &Limit, met: impl Fn(u64) -> bool) -> u64 {
        let leaves = |held: &Held| held.at_ms + limit.window().get();
        let mut ends: Vec<u64> = self.held.iter().map(leaves).collect();
        ends.sort_unstable();
        let end = ends.into_iter().find(|end| {
            met(self.held.iter().filter(|held| leaves(held) > *end).map(|held| u64::from(held.units)).sum())
        });
        end.unwrap() - now_us / 1000
    }

    /// The admission that was listed last was given this receipt.
    fn stamp(&mut self, receipt: Option<Receipt>) {
        let Some(receipt) = receipt else { return };
        let mut units = receipt.units;
        for held in self.held.iter_mut().rev() {
            if units == 0 {
                break;
            }
            held.receipt = Some(receipt);
            units -= held.units;
        }
    }

    /// Takes out up to `asked` units of what a receipt names, and says how many.
    fn give_back(&mut self, receipt: &Receipt, asked: u32) -> u32 {
        let place = |of: &Receipt| (of.epoch, of.at_ms);
        let mut left = asked;
        for held in &mut self.held {
            if held.receipt.as_ref().map(place) == Some(place(receipt)) {
                let part = left.min(held.units);
                held.units -= part;
                left -= part;
            }
        }
        asked - left
    }
}
