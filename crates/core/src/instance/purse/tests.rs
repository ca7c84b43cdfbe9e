//! Purses of several instances over one tick log: what is spent when, by clocks that drift.

use std::collections::BinaryHeap;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::algorithm::{Receipt, State};
use crate::decision::Cost;
use crate::limit::Limit;
use crate::time::Now;

const BEGIN_US: u64 = 1_700_000_000_123_457;

/// What happens at an instant of the store's clock. Ordered by time only.
#[derive(Debug)]
struct Event {
    at_us: u64,
    number: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Arrives { instance: usize },
    Decided { instance: usize, call: Call },
    Landed { instance: usize, call: Call },
    Ends { instance: usize, number: u64 },
    Returned { receipt: Receipt, units: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Call {
    number: u64,
    sent_us: u64,
    asked: u32,
    /// Zero: a plain call.
    length: Millis,
    granted: u32,
    receipt: Receipt,
    retry_after: Option<Millis>,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
/// The earliest first.
impl Ord for Event {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (other.at_us, other.number).cmp(&(self.at_us, self.number))
    }
}

#[derive(Default)]
struct Instance {
    purse: Purse,
    /// Parts of a million by which its clock is faster than the store's, and how far ahead it is.
    drift: i64,
    ahead_us: u64,
    waiting: usize,
    calling: bool,
    lease: Option<Call>,
}

impl Instance {
    /// Its own clock at an instant of the store's, rounded down as a reading is.
    fn clock(&self, at_us: u64) -> u64 {
        let passed = i128::from(at_us - BEGIN_US);
        let drifted = passed + passed * i128::from(self.drift) / 1_000_000;
        self.ahead_us + u64::try_from(drifted).unwrap()
    }
}

struct World {
    limit: Limit,
    length: Millis,
    state: State,
    instances: Vec<Instance>,
    events: BinaryHeap<Event>,
    numbers: u64,
    /// To the store and back, in microseconds.
    trip_us: (u64, u64),
    /// When permits were spent, on the store's clock.
    spent: Vec<u64>,
    calls: u64,
}

impl World {
    fn new(limit: Limit, length: Millis, clocks: &[(i64, u64)], trip_us: (u64, u64)) -> Self {
        let instance = |(drift, ahead_us): &(i64, u64)| Instance {
            drift: *drift,
            ahead_us: *ahead_us,
            ..Instance::default()
        };
        Self {
            limit,
            length,
            state: State::new(&limit, 1),
            instances: clocks.iter().map(instance).collect(),
            events: BinaryHeap::new(),
            numbers: 0,
            trip_us,
            spent: Vec::new(),
            calls: 0,
        }
    }

    fn at(&mut self, at_us: u64, what: What) {
        self.numbers += 1;
        self.events.push(Event { at_us, number: self.numbers, what });
    }

    fn run(&mut self) {
        while let Some(Event { at_us, what, .. }) = self.events.pop() {
            match what {
                What::Arrives { instance } => self.arrives(at_us, instance),
                What::Decided { instance, call } => self.decided(at_us, instance, call),
                What::Landed { instance, call } => self.landed(at_us, instance, &call),
                What::Ends { instance, number } => self.ends(at_us, instance, number),
                What::Returned { receipt, units } => {
                    self.state.settle(Now::from_micros(at_us), &self.limit);
                    self.state.refund(Now::from_micros(at_us), &self.limit, &receipt, units);
                }
            }
        }
    }

    fn arrives(&mut self, at_us: u64, instance: usize) {
        let one = &mut self.instances[instance];
        let step = one.purse.arrive(one.clock(at_us), self.length, 1);
        match step {
            Step::Spent => self.spent.push(at_us),
            Step::Dry { .. } => {}
            Step::Ask { .. } | Step::Plain => {
                one.waiting += 1;
                if !one.calling {
                    self.ask(at_us, instance, step == Step::Plain);
                }
            }
        }
    }

    fn ask(&mut self, at_us: u64, instance: usize, plain: bool) {
        self.take_out(at_us, instance);
        let one = &mut self.instances[instance];
        one.calling = true;
        let waiting = u32::try_from(one.waiting).unwrap();
        let (asked, length) =
            if plain { (waiting, Millis::ZERO) } else { (waiting + one.purse.forecast(), self.length) };
        let receipt = Receipt { epoch: 0, at_ms: 0, units: 0 };
        self.numbers += 1;
        let number = self.numbers;
        let call =
            Call { number, sent_us: one.clock(at_us), asked, length, granted: 0, receipt, retry_after: None };
        self.calls += 1;
        self.at(at_us + self.trip_us.0, What::Decided { instance, call });
    }

    fn decided(&mut self, at_us: u64, instance: usize, call: Call) {
        let (now, limit) = (Now::from_micros(at_us), self.limit);
        self.state.settle(now, &limit);
        let granted = self.state.room(&limit, 1).min(call.asked);
        let State::TickLog(log) = &mut self.state else { unreachable!() };
        let receipt = log.lease(now, &limit, granted, call.length);
        let retry_after = if granted < call.asked { self.state.retry_after(now, &limit, 1) } else { None };
        let call = Call { granted, receipt, retry_after, ..call };
        self.at(at_us + self.trip_us.1, What::Landed { instance, call });
    }

    fn landed(&mut self, at_us: u64, instance: usize, call: &Call) {
        let short = call.granted < call.asked;
        let one = &mut self.instances[instance];
        one.calling = false;
        let now_us = one.clock(at_us);
        if call.length == Millis::ZERO {
            // Admitted at the instant of the decision, whenever it is told: as without leases.
            let granted = one.waiting.min(call.granted as usize);
            one.waiting -= granted;
            let decided_us = at_us - self.trip_us.1;
            self.spent.extend(core::iter::repeat_n(decided_us, granted));
            if short {
                one.waiting = 0;
            } else if one.waiting > 0 {
                self.ask(at_us, instance, true);
            }
            return;
        }
        one.purse.fill(call.sent_us, call.length, call.granted);
        if short {
            one.purse.run_dry(call.sent_us, call.length, call.retry_after);
        }
        one.lease = Some(*call);
        while one.waiting > 0 && one.purse.spend(now_us, 1) {
            one.waiting -= 1;
            self.spent.push(at_us);
        }
        let ends_us = at_us + call.length.0 * 2000;
        let number = call.number;
        if short {
            one.waiting = 0;
        } else if one.waiting > 0 {
            self.ask(at_us, instance, false);
        }
        self.at(ends_us, What::Ends { instance, number });
    }

    fn ends(&mut self, at_us: u64, instance: usize, number: u64) {
        if self.instances[instance].lease.is_some_and(|lease| lease.number == number) {
            self.take_out(at_us, instance);
        }
    }

    fn take_out(&mut self, at_us: u64, instance: usize) {
        let one = &mut self.instances[instance];
        let units = one.purse.take_out();
        if let Some(Call { receipt, .. }) = one.lease.take().filter(|_| units > 0) {
            self.at(at_us + self.trip_us.0, What::Returned { receipt, units });
        }
    }

    /// Counted by hand: the most permits that were spent in any window.
    fn worst_window(&self) -> usize {
        let mut spent = self.spent.clone();
        spent.sort_unstable();
        let window_us = self.limit.window().0 * 1000;
        let within = |(at, end): (usize, &u64)| {
            let first = spent.partition_point(|other| other + window_us <= *end);
            at + 1 - first
        };
        spent.iter().enumerate().map(within).max().unwrap_or_default()
    }
}

fn limit(permits: u64, window: u64) -> Limit {
    Limit::new(permits, Millis(window)).unwrap()
}

prop_compose! {
    fn clock()(drift in -450i64..=450, ahead in 0u64..5_000_000) -> (i64, u64) { (drift, ahead) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Any number of instances with clocks that drift by half of what leases allow for, any demand, plain checks
    /// among leases, unspent leases given back: no window of W on the store's clock holds more than N checks at
    /// the instants at which they were really spent.
    #[test]
    fn no_window_of_spending_holds_more_than_n(
        permits in 1u64..60,
        length in 1u64..25,
        factor in 50u64..80,
        clocks in proptest::collection::vec(clock(), 1..5),
        trip_us in (1u64..4000, 1u64..4000),
        pauses in proptest::collection::vec((0u64..60, any::<u16>(), 0usize..8), 1..300),
    ) {
        let limit = limit(permits, length * factor);
        let mut world = World::new(limit, Millis(length), &clocks, trip_us);
        let mut at_us = BEGIN_US;
        for (pause, micros, instance) in pauses {
            // Rushes, and now and then a pause of up to a window.
            let pause_us = if pause == 0 { limit.window().0 * 500 } else { pause * 20 };
            at_us += pause_us + u64::from(micros % 1000);
            world.at(at_us, What::Arrives { instance: instance % clocks.len() });
        }
        world.run();
        prop_assert!(world.worst_window() <= usize::try_from(permits).unwrap());
    }

    /// Steady demand of twice the limit: what is spent is the limit, less W + l instead of W, less half a lease for
    /// the pause of a purse that is dry, less two milliseconds in which ticks and calls are on their way.
    #[test]
    fn steady_demand_uses_the_limit(instances in 1usize..5, ahead in 0u64..1_000_000) {
        let (limit, length) = (limit(1000, 1000), Millis(20));
        let clocks: Vec<(i64, u64)> = (0..instances).map(|at| (0, ahead * at as u64)).collect();
        let mut world = World::new(limit, length, &clocks, (150, 150));
        let seconds = 12;
        for number in 0..seconds * 2000 {
            let at_us = BEGIN_US + number * 500;
            world.at(at_us, What::Arrives { instance: usize::try_from(number).unwrap() % instances });
        }
        world.run();
        let (spent, most) = (world.spent.len() as u64, seconds * 1000);
        prop_assert!(spent * (1000 + 20 + 10 + 2) >= most * 1000, "{spent} of {most}");
        // And with a tenth of the calls: each instance asks once in half a lease at the most.
        prop_assert!(world.calls <= seconds * 1000 / 10 * instances as u64 + 200, "{} calls", world.calls);
        prop_assert!(world.worst_window() <= 1000);
    }
}

/// What the end of a lease is for: a purse that believes in a longer lease than the store granted spends more
/// than N in a window.
#[test]
fn a_lease_that_is_spent_late_exceeds_the_limit() {
    let worst = |believed: u64| {
        let limit = limit(10, 100);
        let (mut state, mut purse) = (State::new(&limit, 1), Purse::default());
        let mut spent = Vec::new();
        for ms in 0..300u64 {
            let now = Now::from_millis(1_700_000_000_000 + ms);
            state.settle(now, &limit);
            let granted = state.room(&limit, 1);
            if granted > 0 {
                let State::TickLog(log) = &mut state else { unreachable!() };
                log.lease(now, &limit, granted, Millis(2));
                purse.fill(now.as_micros(), Millis(believed), granted);
            }
            // The first as late as it may, those after it at once.
            if purse.end_us() < now.as_micros() + 1000 || ms >= 100 {
                while purse.spend(now.as_micros(), 1) {
                    spent.push(ms);
                }
            }
        }
        let within = |end: &u64| spent.iter().filter(|at| **at <= *end && end - **at < 100).count();
        spent.iter().map(within).max().unwrap()
    };
    assert_eq!(worst(2), 10);
    assert_eq!(worst(50), 20);
}

#[test]
fn who_is_asked_seldom_leases_nothing() {
    let mut purse = Purse::default();
    for second in 1..20 {
        assert_eq!(purse.arrive(second * 1_000_000, Millis(20), 1), Step::Plain);
    }
}

#[test]
fn a_rush_is_met_at_the_fourth_check() {
    let mut purse = Purse::default();
    let steps: Vec<Step> = (0..5).map(|at| purse.arrive(1_000_000 + at * 100, Millis(20), 1)).collect();
    assert_eq!(steps[..3], [Step::Plain; 3]);
    assert_eq!(steps[3..], [Step::Ask { forecast: 4 }, Step::Ask { forecast: 5 }]);
}

#[test]
fn a_lease_ends_a_thousandth_early_and_not_a_microsecond_later() {
    let mut purse = Purse::default();
    purse.fill(1_000_000, Millis(20), 2);
    assert_eq!(purse.end_us(), 1_019_980);
    assert!(purse.spend(1_019_979, 1));
    assert!(!purse.spend(1_019_980, 1));
    assert_eq!(purse.take_out(), 1);
    assert_eq!(purse.take_out(), 0);
}

#[test]
fn a_dry_purse_denies_for_half_a_lease_and_never_longer_than_others_may_give_back() {
    let dry_us = |length: u64, retry_after: Option<Millis>| {
        let mut purse = Purse::default();
        purse.run_dry(1_000_000, Millis(length), retry_after);
        purse.dry_until_us() - 1_000_000
    };
    assert_eq!(dry_us(20, Some(Millis(1))), 10_000);
    assert_eq!(dry_us(20, Some(Millis(31))), 31_000);
    assert_eq!(dry_us(20, Some(Millis(400))), 50_000);
    assert_eq!(dry_us(1_000, Some(Millis(1))), 50_000);
    assert_eq!(dry_us(20, None), 50_000);
    let mut purse = Purse::default();
    purse.run_dry(1_000_000, Millis(20), Some(Millis(1)));
    assert_eq!(purse.arrive(1_002_500, Millis(20), 1), Step::Dry { for_us: 7_500 });
    assert_ne!(purse.arrive(1_010_000, Millis(20), 1), Step::Dry { for_us: 0 });
}

#[test]
fn what_an_abandoned_check_was_given_goes_to_the_next() {
    let mut purse = Purse::default();
    purse.fill(1_000, Millis(20), 1);
    assert!(purse.spend(2_000, 1));
    assert!(!purse.spend(2_000, 1));
    purse.put_back(1);
    assert!(purse.spend(3_000, 1));
}

#[test]
fn nothing_overflows() {
    let mut purse = Purse::default();
    for now_us in [0, 1, u64::MAX / 2, u64::MAX] {
        for length in [Millis::ZERO, Millis(1), Millis(u64::MAX)] {
            purse.arrive(now_us, length, u32::MAX);
            purse.fill(now_us, length, u32::MAX);
            purse.run_dry(now_us, length, Some(Millis(u64::MAX)));
            purse.put_back(u32::MAX);
            let cost: Cost = purse.forecast();
            assert!(cost <= CHECKS_MAX);
            assert!(!purse.is_idle(now_us, Millis(u64::MAX)));
        }
    }
}
