//! The world: true time, what is going to happen, and everybody in it.
//!
//! | module | is |
//! |---|---|
//! | [`network`] | messages: delayed, lost, late, doubled, cut off; what a server does with them |
//! | [`checks`] | an instance's checks and calls: flights, answers, deadlines. Mirrors `pipeline/flights`, `calls.rs` |
//! | [`leases`] | purses, and the calls that fill them. Mirrors `pipeline/leases` |
//! | [`standing`] | what it may do without the store or after a failover: ladder, local share, roll call, beats |
//! | [`faults`] | what goes wrong |
//!
//! # Invariants
//! * All randomness is of one generator, and events happen in the order of the queue: a seed replays a run.
//! * True time is microseconds since the beginning. Nobody in the world knows it but the oracle.

mod checks;
mod faults;
mod leases;
mod network;
mod standing;

use std::collections::BTreeMap;

use fastrand::Rng;
use slidegate_core::time::Millis;

use crate::broken::Broken;
use crate::decide::Party;
use crate::instance::{Clock, Instance, Waiting};
use crate::oracle::{Rule, Violation, Watch};
use crate::queue::Queue;
use crate::scene::Scene;
use crate::store::Store;

use faults::Happening;
pub(crate) use leases::Leased;
use network::{Message, Receipted};

/// Something that happens.
#[derive(Debug)]
pub(crate) enum Event {
    /// Somebody asks for permits.
    Arrive { who: usize, key: usize },
    /// A message comes to a server.
    Execute(Message),
    /// An answer comes to an instance.
    Answer(Receipted),
    /// A call is not waited for any longer.
    GiveUp { who: usize, life: u32, key: usize, number: u64 },
    /// What is left of a lease is given back.
    LeaseEnds { who: usize, life: u32, key: usize, number: u64 },
    /// An instance looks for the master.
    Connect { who: usize, life: u32 },
    /// It beats, and again and again.
    Beat { who: usize, life: u32, number: u32 },
    /// It looks whether the node answers again.
    Probe { who: usize, life: u32 },
    /// Its roll call goes on.
    Sync { who: usize, life: u32 },
    /// Something goes wrong, or is right again.
    Fault(Happening),
}

/// What is known of an instance in the store's set of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beaten {
    pub(crate) at_ms: u64,
    /// Histories that it is in sync with.
    pub(crate) in_sync: Option<u64>,
}

pub(crate) struct World {
    pub(crate) scene: Scene,
    pub(crate) broken: Broken,
    pub(crate) rng: Rng,
    pub(crate) queue: Queue<Event>,
    pub(crate) now_us: u64,
    pub(crate) store: Store,
    /// How often each server was started.
    pub(crate) lives: Vec<u32>,
    pub(crate) instances: Vec<Instance>,
    pub(crate) watches: Vec<Watch>,
    pub(crate) beats: BTreeMap<u64, Beaten>,
    /// Until when each instance and the store don't hear each other.
    pub(crate) cut_until_us: Vec<u64>,
    /// When writes were lost last, or something granted that the store does not know of.
    pub(crate) unsettled_us: Option<u64>,
    /// How far the clock is ahead by which the last master has charged.
    pub(crate) ahead_us: i64,
    pub(crate) calls: u64,
    pub(crate) next_identity: u64,
    pub(crate) trace: Option<Vec<String>>,
    pub(crate) figures: Figures,
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Checks that were asked for.
    pub asked: u64,
    /// Permits that were spent.
    pub spent: u64,
    /// Of these, granted by instances alone.
    pub local: u64,
    /// Of these, from leases.
    pub leased: u64,
    /// Script calls.
    pub calls: u64,
    /// Calls that put back what a failover had lost.
    pub put_back: u64,
    /// Writes that failovers lost.
    pub writes_lost: u64,
    /// Roll calls begun.
    pub roll_calls: u64,
}

impl Figures {
    /// Adds what happened in another run.
    pub const fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.spent += other.spent;
        self.local += other.local;
        self.leased += other.leased;
        self.calls += other.calls;
        self.put_back += other.put_back;
        self.writes_lost += other.writes_lost;
        self.roll_calls += other.roll_calls;
    }
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The promise that was broken, in words; none was.
    pub fault: Option<String>,
    /// What happened.
    pub figures: Figures,
    /// Exceptions that were needed to say so.
    pub rules: Vec<Rule>,
    /// What happened, if it was to be told.
    pub trace: Vec<String>,
}

/// Runs the world of a seed to its end.
pub fn run(seed: u64, broken: Broken, tell: bool) -> Report {
    let mut world = World::new(seed, broken, tell);
    world.populate();
    while let Some((at_us, event)) = world.queue.pop() {
        if at_us > world.scene.end_us {
            break;
        }
        world.now_us = at_us;
        world.happen(event);
    }
    world.report(seed)
}

impl World {
    fn new(seed: u64, broken: Broken, tell: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let scene = Scene::draw(&mut rng, broken);
        let drift_ppm = scene.drift_ppm;
        Self {
            store: Store::new(scene.servers, scene.limits.len()),
            lives: vec![0; scene.servers],
            instances: Vec::new(),
            watches: scene.limits.iter().map(|limit| Watch::new(*limit, 2 * drift_ppm)).collect(),
            beats: BTreeMap::new(),
            cut_until_us: vec![0; scene.instances],
            unsettled_us: None,
            ahead_us: 0,
            calls: 0,
            next_identity: 1,
            trace: tell.then(Vec::new),
            figures: Figures::default(),
            queue: Queue::new(),
            now_us: 0,
            broken,
            rng,
            scene,
        }
    }

    fn populate(&mut self) {
        self.tell(|world| format!("{:?}", world.scene));
        for who in 0..self.scene.instances {
            let fresh = self.fresh_instance(0);
            self.instances.push(fresh);
            self.start_up(who);
            for key in 0..self.scene.limits.len() {
                let at_us = self.rng.u64(0..5_000);
                self.queue.push(at_us, Event::Arrive { who, key });
            }
        }
        for (at_us, fault) in std::mem::take(&mut self.scene.faults) {
            self.queue.push(at_us, Event::Fault(Happening::Begins(fault)));
        }
    }

    /// An instance that has just been started.
    fn fresh_instance(&mut self, life: u32) -> Instance {
        let drift = i64::try_from(self.scene.drift_ppm).unwrap_or_default();
        let drift_ppm = if drift > 0 { self.rng.i64(-drift..=drift) } else { 0 };
        let clock = Clock::new(self.rng.u64(0..10_000_000), drift_ppm);
        // Identities are random; their order is what gives instances their places.
        let identity = self.rng.u64(1..1 << 40) * 1_000 + self.next_identity;
        self.next_identity += 1;
        Instance::new(identity, life, clock, &self.scene.limits, self.now_us)
    }

    fn start_up(&mut self, who: usize) {
        let life = self.instances[who].life;
        self.queue.push(self.now_us, Event::Connect { who, life });
        let pause_us = self.rng.u64(3_000..8_000);
        self.plan_beat(who, pause_us);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { who, key } => self.arrive(who, key),
            Event::Execute(message) => self.execute(message),
            Event::Answer(answer) => self.answer(answer),
            Event::GiveUp { who, life, key, number } if self.lives_on(who, life) => {
                self.give_up(who, key, number);
            }
            Event::LeaseEnds { who, life, key, number } if self.lives_on(who, life) => {
                self.lease_ends(who, key, number);
            }
            Event::Connect { who, life } if self.lives_on(who, life) => self.connect(who),
            Event::Beat { who, life, number } if self.lives_on(who, life) => self.beat(who, number),
            Event::Probe { who, life } if self.lives_on(who, life) => self.probe(who),
            Event::Sync { who, life } if self.lives_on(who, life) => self.sync(who),
            Event::Fault(happening) => self.fault(happening),
            // To somebody who is gone.
            _ => {}
        }
    }

    pub(crate) fn lives_on(&self, who: usize, life: u32) -> bool {
        self.instances[who].alive && self.instances[who].life == life
    }

    /// The time on an instance's clock.
    pub(crate) fn clock_us(&self, who: usize) -> u64 {
        self.instances[who].clock.now_us(self.now_us)
    }

    /// Somebody asks, and will again. In the quiet end everybody asks for single permits, and more than there are.
    fn arrive(&mut self, who: usize, key: usize) {
        let quiet = self.now_us > self.scene.quiet_us;
        let limit = self.scene.limits[key];
        // Of a single permit much time passes before somebody asks.
        let load = if quiet { 300 + 2_000 / u64::from(limit.permits()) } else { self.scene.load };
        let among = u64::try_from(self.scene.instances).unwrap_or(1);
        let burst =
            if self.rng.u8(0..8) == 0 { self.rng.u32(1..=limit.permits().div_ceil(3).max(1)) } else { 1 };
        // Uneven: the first instance asks for most.
        let weight = if who == 0 { 3 } else { 1 };
        let rate = u64::from(limit.permits()) * load * weight;
        let mean_us = limit.window().get() * 1000 * 100 * among * u64::from(burst) / rate.max(1);
        let pause_us = self.rng.u64(0..=2 * mean_us.max(100));
        self.queue.push(self.now_us + pause_us, Event::Arrive { who, key });
        if !self.instances[who].alive {
            return;
        }
        let cost = if self.scene.costs && !quiet { self.rng.u32(1..=limit.permits().div_ceil(4)) } else { 1 };
        let gone = (0..burst).filter(|_| self.of_thousand(self.scene.gone)).count();
        let gone = u32::try_from(gone).unwrap_or(u32::MAX);
        self.figures.asked += u64::from(burst);
        let party = Party { cost, times: burst };
        self.ask(who, key, Waiting { party, gone, since_us: self.now_us });
    }

    pub(crate) fn of_thousand(&mut self, share: u32) -> bool {
        share > 0 && self.now_us < self.scene.quiet_us && self.rng.u32(0..1_000) < share
    }

    /// Tells what happens, if anybody listens.
    pub(crate) fn tell(&mut self, what: impl FnOnce(&Self) -> String) {
        if self.trace.is_some() {
            let line = format!("{:>10} {}", self.now_us, what(self));
            if let Some(trace) = &mut self.trace {
                trace.push(line);
            }
        }
    }

    fn report(mut self, seed: u64) -> Report {
        for who in 0..self.instances.len() {
            self.leave_local(who);
            self.end_roll_call(who);
        }
        let judged: Option<Violation> =
            self.watches.iter_mut().enumerate().find_map(|(key, watch)| watch.judge(key));
        let mut fault = judged.map(|violation| violation.to_string());
        if fault.is_none() {
            fault = self.idle_key();
        }
        let mut rules: Vec<Rule> = self.watches.iter().flat_map(Watch::rules).collect();
        rules.sort_unstable();
        rules.dedup();
        let spent = self.watches.iter().map(Watch::total).sum();
        let figures = Figures { spent, ..self.figures };
        Report { seed, fault, figures, rules, trace: self.trace.unwrap_or_default() }
    }

    /// In the quiet end everything is asked for: a key of which less than this is used was locked out. Percent.
    fn idle_key(&self) -> Option<String> {
        const USED_MIN: u64 = 80;
        /// Leases of a fifth of the window, and pauses when a limit is reached.
        const USED_MIN_LEASED: u64 = 60;
        for (key, watch) in self.watches.iter().enumerate() {
            let limit = self.instances.iter().map(|instance| instance.sides[key].limit).next()?;
            let windows = 4;
            let from_us = self.scene.end_us - windows * limit.window().get() * 1000;
            let used = watch.spent_in(from_us, self.scene.end_us);
            // A window may end just before its first permits come.
            let whole = u64::from(limit.permits()) * (windows - 1);
            let least = if self.scene.lease > Millis::ZERO { USED_MIN_LEASED } else { USED_MIN };
            if used * 100 < whole * least {
                return Some(format!("key {key}: of {whole} permits only {used} were used in the quiet end"));
            }
        }
        None
    }
}
