//! Many instances, many keys, several nodes: what a store has to bear, and how precise it stays.
//!
//! The decisions are the product's, as in the [`world`](crate::world); the traffic is coarser: checks of one permit come
//! at random times to random instances, keys by Zipf's law, and nothing goes wrong. A call takes half the round trip
//! there and half back, whatever the load: what a node can do is for the reader to compare. An instance has one call
//! under way for each node (the product: up to four, of different keys), and remembers denials until the store's
//! `retry_after` is over (the product: a second at the most). What is over the limit is told from what was admitted, by
//! the same watch.

use std::collections::HashMap;
use std::fmt;

use fastrand::Rng;
use slidegate_core::algorithm::State;
use slidegate_core::algorithm::tick_log::layout::Image;
use slidegate_core::limit::Limit;
use slidegate_core::time::{Millis, Now};

use crate::broken::Broken;
use crate::decide::{self, Ask, Party, Told};
use crate::instance::Side;
use crate::oracle::Watch;
use crate::queue::Queue;
use crate::store::BEGIN_US;

/// How large.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Instances.
    pub instances: u32,
    /// Keys, each with a limit of its own.
    pub keys: u32,
    /// Nodes that the keys are spread over.
    pub nodes: u32,
    /// Checks in a second, over all instances.
    pub rate: u64,
    /// How long, in seconds.
    pub seconds: u64,
}

/// N permits in a second for each key.
const PERMITS: u64 = 100;
const WINDOW: Millis = Millis(1_000);
/// There and back, in microseconds.
const ROUND_TRIP_US: u64 = 500;
/// Counters of one call, as in `flights`.
const COUNTERS_MAX: usize = 64;

/// What it came to.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Checks that were asked for.
    pub checks: u64,
    /// Of these, denied without a call.
    pub remembered: u64,
    /// Admitted.
    pub admitted: u64,
    /// Calls of each node.
    pub calls: Vec<u64>,
    /// Checks that travelled with them.
    pub sent: u64,
    /// Counters that were told that they are behind, as more than 64 instances were granted permits in a window.
    pub behind: u64,
    /// Keys that were asked for twice their limit or more, and how much of it was used: least and mean, in hundredths
    /// of a percent, after the first window.
    pub hot: u64,
    /// The least.
    pub used_least: u64,
    /// The mean.
    pub used_mean: u64,
    /// The first window that held too much.
    pub violation: Option<String>,
    /// How long.
    pub seconds: u64,
}

/// A run's table, as in `docs/benchmarks.md`.
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut calls = self.calls.clone();
        calls.sort_unstable();
        let all: u64 = calls.iter().sum();
        let per_second = |count: u64| count / self.seconds.max(1);
        let (least, most) = (calls.first().copied().unwrap_or(0), calls.last().copied().unwrap_or(0));
        let middle = calls.get(calls.len() / 2).copied().unwrap_or(0);
        let percent = |part: u64, of: u64| hundredths(part * 10_000 / of.max(1));
        writeln!(f, "| | |\n|---|---|")?;
        writeln!(f, "| checks a second | {} |", per_second(self.checks))?;
        writeln!(f, "| of these admitted | {} % |", percent(self.admitted, self.checks))?;
        writeln!(
            f,
            "| denied by what the instance remembers | {} % |",
            percent(self.remembered, self.checks)
        )?;
        let of_nodes = [least, middle, most].map(per_second).map(|calls| calls.to_string()).join(" / ");
        writeln!(f, "| calls a second of a node: least / median / most | {of_nodes} |")?;
        writeln!(
            f,
            "| checks in a call, put-back included | {} |",
            hundredths(self.sent * 100 / all.max(1))
        )?;
        writeln!(f, "| counters told that they are behind, a second | {} |", per_second(self.behind))?;
        writeln!(f, "| keys asked for at least twice their limit | {} |", self.hot)?;
        let used = [self.used_least, self.used_mean].map(hundredths).join(" / ");
        writeln!(f, "| of their limits used: least / mean | {used} % |")?;
        write!(f, "| windows of more than N | {} |", self.violation.as_deref().unwrap_or("0"))
    }
}

/// 1234 as 12.34.
fn hundredths(of: u64) -> String {
    format!("{}.{:02}", of / 100, of % 100)
}

enum Event {
    Arrive,
    Execute { who: usize, node: usize },
    Land { who: usize, node: usize },
}

/// What waits for a node at one instance, and what is under way.
#[derive(Default)]
struct Lane {
    waiting: Vec<(u32, u32)>,
    aboard: Vec<(u32, u32)>,
    told: Vec<Told>,
    executed_us: u64,
    seq: u64,
    flying: bool,
}

struct Member {
    identity: u64,
    next_seq: u64,
    lanes: Vec<Lane>,
    sides: HashMap<u32, Side>,
    /// Until when a key is known to be denied.
    denied: HashMap<u32, u64>,
}

struct Fleet {
    size: Size,
    limit: Limit,
    queue: Queue<Event>,
    rng: Rng,
    zipf: Zipf,
    images: Vec<Option<Box<Image>>>,
    members: Vec<Member>,
    watches: HashMap<u32, Watch>,
    asked: Vec<u32>,
    now_us: u64,
    load: Load,
}

/// Runs a fleet without faults.
pub fn scale(size: Size, seed: u64) -> Load {
    let mut fleet = Fleet::new(size, seed);
    fleet.queue.push(0, Event::Arrive);
    while let Some((at_us, event)) = fleet.queue.pop() {
        if at_us > size.seconds * 1_000_000 {
            break;
        }
        fleet.now_us = at_us;
        match event {
            Event::Arrive => fleet.arrive(),
            Event::Execute { who, node } => fleet.execute(who, node),
            Event::Land { who, node } => fleet.land(who, node),
        }
    }
    fleet.sum_up()
}

impl Fleet {
    fn new(size: Size, seed: u64) -> Self {
        let nodes = usize::try_from(size.nodes).unwrap_or(1);
        let member = |number: u32| Member {
            identity: u64::from(number) + 1,
            next_seq: 1,
            lanes: (0..nodes).map(|_| Lane::default()).collect(),
            sides: HashMap::new(),
            denied: HashMap::new(),
        };
        let keys = usize::try_from(size.keys).unwrap_or(1);
        Self {
            limit: Limit::new(PERMITS, WINDOW).unwrap_or_else(|_| unreachable!("a valid limit")),
            queue: Queue::new(),
            rng: Rng::with_seed(seed),
            zipf: Zipf::new(size.keys),
            images: (0..keys).map(|_| None).collect(),
            members: (0..size.instances).map(member).collect(),
            watches: HashMap::new(),
            asked: vec![0; keys],
            now_us: 0,
            load: Load { calls: vec![0; nodes], seconds: size.seconds, ..Load::default() },
            size,
        }
    }

    fn arrive(&mut self) {
        let mean_us = 2_000_000 / self.size.rate.max(1);
        // More than one in a microsecond: as many as it takes.
        let at_once = if mean_us == 0 { self.size.rate / 1_000_000 } else { 1 };
        self.queue.push(self.now_us + self.rng.u64(0..=mean_us).max(u64::from(mean_us == 0)), Event::Arrive);
        for _ in 0..at_once {
            let (who, key) = (self.rng.usize(0..self.members.len()), self.zipf.draw(&mut self.rng));
            self.ask(who, key);
        }
    }

    fn ask(&mut self, who: usize, key: u32) {
        self.load.checks += 1;
        self.asked[index(key)] += 1;
        let member = &mut self.members[who];
        if member.denied.get(&key).is_some_and(|until_us| *until_us > self.now_us) {
            self.load.remembered += 1;
            return;
        }
        let node = index(key % self.size.nodes);
        let lane = &mut member.lanes[node];
        match lane.waiting.iter_mut().find(|(waiting, _)| *waiting == key) {
            Some((_, times)) => *times += 1,
            None => lane.waiting.push((key, 1)),
        }
        self.depart(who, node);
    }

    fn depart(&mut self, who: usize, node: usize) {
        let member = &mut self.members[who];
        let lane = &mut member.lanes[node];
        if lane.flying || lane.waiting.is_empty() {
            return;
        }
        lane.flying = true;
        lane.seq = member.next_seq;
        member.next_seq += 1;
        let leaving = lane.waiting.len().min(COUNTERS_MAX);
        lane.aboard = lane.waiting.drain(..leaving).collect();
        self.load.calls[node] += 1;
        self.load.sent += lane.aboard.iter().map(|(_, times)| u64::from(*times)).sum::<u64>();
        self.queue.push(self.now_us + ROUND_TRIP_US / 2, Event::Execute { who, node });
    }

    /// Decides what is aboard; whoever is behind puts back in a call of its own, which is counted.
    fn execute(&mut self, who: usize, node: usize) {
        let now = Now::from_micros(BEGIN_US + self.now_us);
        let (limit, now_us) = (self.limit, self.now_us);
        let Member { identity, lanes, sides, .. } = &mut self.members[who];
        let lane = &mut lanes[node];
        lane.told.clear();
        for (key, times) in &lane.aboard {
            let image =
                self.images[index(*key)].get_or_insert_with(|| Box::new(Image::new(decide::epoch_at(now))));
            let side = sides.entry(*key).or_insert_with(|| Side::new(limit));
            let line = Some(side.line(*identity, lane.seq, CLOCK_BEGIN_US + now_us));
            let parties = vec![Party { cost: 1, times: *times }];
            let (identity, seq, lease) = (*identity, lane.seq, Millis::ZERO);
            let mut ask = Ask { limit, identity, seq, line, put_back: None, lease, parties };
            let mut told = decide::check(image, now, &ask, Broken::Nothing);
            if let Told::Behind { stored } = told {
                self.load.behind += 1;
                self.load.calls[node] += 1;
                ask.put_back = Some(side.grants.missing_after(CLOCK_BEGIN_US + now_us, WINDOW, stored));
                told = decide::check(image, now, &ask, Broken::Nothing);
            }
            lane.told.push(told);
        }
        lane.executed_us = now_us;
        self.queue.push(now_us + ROUND_TRIP_US / 2, Event::Land { who, node });
    }

    fn land(&mut self, who: usize, node: usize) {
        let (now_us, limit) = (self.now_us, self.limit);
        let Member { lanes, sides, denied, .. } = &mut self.members[who];
        let lane = &mut lanes[node];
        lane.flying = false;
        for ((key, times), told) in lane.aboard.drain(..).zip(lane.told.drain(..)) {
            let Told::Decided { granted, .. } = told else { continue };
            let units = granted[0].0;
            if units > 0
                && let Some(side) = sides.get_mut(&key)
            {
                side.grants.accept(CLOCK_BEGIN_US + now_us, WINDOW, lane.seq, units, Millis::ZERO);
                side.ack = lane.seq;
                let watch = self.watches.entry(key).or_insert_with(|| Watch::new(limit, 0));
                watch.spend(lane.executed_us, units, who);
                self.load.admitted += u64::from(units);
            }
            if units < times
                && let Some(image) = &self.images[index(key)]
            {
                let then = Now::from_micros(BEGIN_US + lane.executed_us);
                let wait = State::TickLog(image.log.clone()).retry_after(then, &limit, 1).unwrap_or(WINDOW);
                // Counted from when the call was sent.
                denied.insert(key, lane.executed_us - ROUND_TRIP_US / 2 + wait.get() * 1000);
            }
        }
        self.depart(who, node);
    }

    fn sum_up(mut self) -> Load {
        let seconds = self.size.seconds;
        let (from_us, to_us) = (1_000_000, seconds * 1_000_000);
        let mut used = Vec::new();
        for (key, watch) in &mut self.watches {
            if let Some(violation) = watch.judge(index(*key)) {
                self.load.violation = Some(violation.to_string());
            }
            if u64::from(self.asked[index(*key)]) >= 2 * PERMITS * seconds {
                used.push(watch.spent_in(from_us, to_us) * 10_000 / (PERMITS * (seconds - 1).max(1)));
            }
        }
        self.load.hot = u64::try_from(used.len()).unwrap_or(u64::MAX);
        self.load.used_least = used.iter().copied().min().unwrap_or_default();
        self.load.used_mean = used.iter().sum::<u64>() / self.load.hot.max(1);
        self.load
    }
}

/// Ages reach back beyond the beginning.
const CLOCK_BEGIN_US: u64 = 1_000_000_000;

fn index(key: u32) -> usize {
    usize::try_from(key).unwrap_or(usize::MAX)
}

/// Keys by rank: the chance of rank k falls as 1/k^1.1.
struct Zipf {
    /// Up to and with each rank.
    sums: Vec<u64>,
}

impl Zipf {
    fn new(keys: u32) -> Self {
        const EXPONENT: f64 = 1.1;
        let mut sum = 0;
        let sums = (1..=keys).map(|rank| {
            let weight = 1e12 / f64::from(rank).powf(EXPONENT);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 1e12")]
            let weight = weight as u64;
            sum += weight;
            sum
        });
        Self { sums: sums.collect() }
    }

    fn draw(&self, rng: &mut Rng) -> u32 {
        let whole = self.sums.last().copied().unwrap_or(1);
        let at = rng.u64(0..whole);
        u32::try_from(self.sums.partition_point(|sum| *sum <= at)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_fleet_uses_its_limits_and_exceeds_none() {
        let size = Size { instances: 100, keys: 10_000, nodes: 4, rate: 50_000, seconds: 4 };
        let load = scale(size, 1);
        assert_eq!(load.violation, None);
        assert!(load.hot > 10 && load.used_mean > 9_000, "{load}");
    }
}
