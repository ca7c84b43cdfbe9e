use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::pipeline::model;

/// What a plain list would do: the oracle, which looks at everything each time.
#[derive(Default)]
struct List {
    /// Who waits, by arrival, and for which counters.
    waiting: Vec<(usize, Vec<usize>)>,
    in_flight: HashSet<usize>,
}

impl List {
    /// All that leave, first come first served: who has to stay keeps its counters.
    fn depart(&mut self) -> Vec<usize> {
        let mut taken: HashSet<usize> = self.in_flight.clone();
        let mut leaves = Vec::new();
        self.waiting.retain(|(who, keys)| {
            let stays = keys.iter().any(|key| taken.contains(key));
            if stays {
                taken.extend(keys);
            } else {
                leaves.push((*who, keys.clone()));
            }
            stays
        });
        self.in_flight.extend(leaves.iter().flat_map(|(_, keys)| keys));
        leaves.into_iter().map(|(who, _)| who).collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask { keys: Vec<usize>, cost: u32, shadow: bool },
    Cancel(prop::sample::Index),
    Depart,
    Land(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let keys = proptest::collection::hash_set(0usize..6, 1..4).prop_map(|keys| keys.into_iter().collect());
    let step = prop_oneof![
        6 => (keys, 1u32..3, proptest::bool::weighted(0.2))
            .prop_map(|(keys, cost, shadow)| Step::Ask { keys, cost, shadow }),
        2 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        2 => Just(Step::Depart),
        2 => any::<prop::sample::Index>().prop_map(Step::Land),
    ];
    proptest::collection::vec(step, 1..120)
}

fn check(keys: &[usize], cost: u32, shadow: bool) -> OwnedCheck {
    let mut check = model::check(keys.iter().map(|key| model::charge(&format!("k{key}"), 0, 9, 1000)));
    for charge in &mut check.charges {
        charge.cost = cost;
        charge.terms.shadow = shadow;
    }
    check
}

fn keys_of(check: &OwnedCheck) -> Vec<usize> {
    let key = |charge: &OwnedCharge| usize::from(charge.key.name()[1] - b'0');
    check.charges.iter().map(key).collect()
}

/// A lane, and what is in flight: who, and for which counters.
#[derive(Default)]
struct Desk {
    lane: Lane<usize, ()>,
    list: List,
    flights: Vec<(Held, Vec<usize>)>,
    /// Counters in the order in which they were told to leave.
    left: Vec<(usize, Vec<usize>)>,
}

impl Desk {
    fn depart(&mut self) -> Result<(), TestCaseError> {
        let expected: HashSet<usize> = self.list.depart().into_iter().collect();
        self.lane.under_way += 1;
        let Some(flight) = self.lane.depart() else {
            prop_assert!(expected.is_empty());
            return Ok(());
        };
        let mut aboard = HashSet::new();
        let mut keys = Vec::new();
        for party in &flight.parties {
            keys.extend(keys_of(&party.check));
            let times: u32 = party.waiters.iter().map(|waiter| waiter.times).sum();
            prop_assert_eq!(party.times, times);
            for waiter in &party.waiters {
                aboard.insert(waiter.told);
                self.left.push((waiter.told, keys_of(&party.check)));
            }
        }
        prop_assert_eq!(aboard, expected);
        self.flights.push((flight.held, keys));
        Ok(())
    }

    fn land(&mut self, at: usize) {
        let (held, keys) = self.flights.swap_remove(at);
        keys.iter().for_each(|key| _ = self.list.in_flight.remove(key));
        self.lane.land(held);
        self.lane.boarding = false;
        self.lane.under_way = self.flights.len();
    }
}

fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut desk = Desk::default();
    let mut tickets = Vec::new();
    for step in steps {
        match step {
            // As many as one flight can take, as the list knows of no end to one.
            Step::Ask { .. } if desk.list.waiting.len() >= CHARGES_PER_CALL / 3 => {}
            Step::Ask { keys, cost, shadow } => {
                let who = tickets.len();
                tickets.push(desk.lane.enqueue(check(&keys, cost, shadow), 1, who).unwrap());
                desk.list.waiting.push((who, keys));
            }
            Step::Cancel(index) if !tickets.is_empty() => {
                let who = index.index(tickets.len());
                let waits = desk.list.waiting.iter().any(|(other, _)| *other == who);
                desk.list.waiting.retain(|(other, _)| *other != who);
                prop_assert_eq!(desk.lane.cancel(tickets[who]), waits);
            }
            Step::Depart => desk.depart()?,
            Step::Land(index) if !desk.flights.is_empty() => desk.land(index.index(desk.flights.len())),
            Step::Cancel(_) | Step::Land(_) => {}
        }
        prop_assert_eq!(desk.lane.waiting, desk.list.waiting.len());
    }
    while !desk.flights.is_empty() || !desk.list.waiting.is_empty() {
        desk.depart()?;
        desk.land(0);
    }
    let mut last = [None; 6];
    for (who, keys) in desk.left {
        for key in keys {
            prop_assert!(last[key].replace(who) < Some(who), "nobody is overtaken");
        }
    }
    let lane = desk.lane;
    prop_assert!(lane.parties.is_empty() && lane.lines.is_empty() && lane.by_key.is_empty());
    prop_assert!(lane.ready.is_empty() && lane.waiting == 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whatever comes, goes, leaves and lands: the same leave as by looking at a plain list from its head,
    /// where who has to stay keeps its counters from those behind; in order; and in the end nothing is left.
    #[test]
    fn the_same_leave_as_from_a_plain_list(steps in steps()) {
        run(steps)?;
    }
}

/// A check of two busy counters is not starved by those of one: it keeps both, once it waits.
#[test]
fn a_check_of_several_counters_is_not_starved() {
    let mut lane: Lane<&str, ()> = Lane::default();
    lane.enqueue(check(&[0], 1, false), 1, "flies").unwrap();
    let first = lane.depart_as_runner();
    lane.enqueue(check(&[0, 1], 1, false), 1, "waits").unwrap();
    lane.enqueue(check(&[1], 1, false), 1, "behind").unwrap();
    assert!(!lane.wants_runner(), "nobody may leave before it");
    lane.land(first.held);
    let second = lane.depart().unwrap();
    let aboard: Vec<&str> =
        second.parties.iter().flat_map(|party| &party.waiters).map(|waiter| waiter.told).collect();
    assert_eq!(aboard, ["waits", "behind"]);
}

#[test]
fn what_is_given_back_goes_first_and_waits_for_its_counter() {
    let mut lane: Lane<&str, &str> = Lane::default();
    lane.enqueue(check(&[0], 1, false), 1, "flies").unwrap();
    let first = lane.depart_as_runner();
    lane.enqueue(check(&[0], 1, false), 1, "waits").unwrap();
    let receipt = slidegate_core::algorithm::Receipt { epoch: 1, at_ms: 1, units: 1 };
    let back = |key: usize| Return {
        taken: check(&[key], 1, false).taken(&[Some(receipt)]),
        told: Some(["0", "1"][key]),
    };
    lane.give_back(back(0));
    lane.give_back(back(0));
    assert!(!lane.wants_runner(), "its counter is in flight");
    lane.give_back(back(1));
    assert!(lane.wants_runner());
    let second = lane.depart().unwrap();
    let told = |flight: &Flight<&str, &'static str>| -> Vec<&str> {
        flight.returns.iter().filter_map(|back| back.told).collect()
    };
    assert_eq!((told(&second), second.parties.len()), (vec!["1"], 0));
    lane.land(second.held);
    assert!(lane.depart().is_none());
    lane.land(first.held);
    let third = lane.depart().unwrap();
    assert_eq!((told(&third), third.parties.len()), (vec!["0", "0"], 1));
}

#[test]
fn those_who_wait_can_be_told_that_nothing_will_come() {
    let mut lane: Lane<usize, ()> = Lane::default();
    for who in 0..5 {
        lane.enqueue(check(&[who % 2, 2], 1, false), 1, who).unwrap();
    }
    let mut told = lane.evacuate();
    told.sort_unstable();
    assert_eq!(told, [0, 1, 2, 3, 4]);
    assert!(lane.lines.is_empty() && lane.ready.is_empty() && lane.waiting == 0);
}

impl<W: std::fmt::Debug, R: std::fmt::Debug> Lane<W, R> {
    fn depart_as_runner(&mut self) -> Flight<W, R> {
        assert!(self.wants_runner());
        self.depart().unwrap()
    }
}
