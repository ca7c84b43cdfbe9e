//! What an instance may do without the store, and after a failover.
//!
//! Mirrors `pipeline/resilient` (the ladder, probes, decisions of this instance alone), `heartbeat.rs` (beats, places)
//! and the link's part in roll calls: when one begins, how ledgers are brought in sync, when it is over.

use slidegate_core::instance::grants::PutBack;
use slidegate_core::instance::ladder::{Step, Transition};
use slidegate_core::instance::roll_call::{Beat, RollCall};
use slidegate_core::instance::{share, standing};
use slidegate_core::ledger;

use super::network::{Body, LIFE, Receipted};
use super::{Beaten, Event, World};
use crate::broken::Broken;
use crate::decide::Party;
use crate::instance::{Connection, Instance, Local, Pending, Standing};
use crate::oracle::{Allowance, Rule};
use crate::scene::OnFailure;

/// Between two beats, and while a roll call goes on.
const BEAT_US: u64 = 1_000_000;
const BEAT_IN_ROLL_CALL_US: u64 = 100_000;

/// Between two probes.
const PROBE_US: u64 = 50_000;

/// For how long after a roll call an instance still beats often.
const URGENT_AFTER_US: u64 = 2_000_000;

/// Between two looks at what is not in sync yet, and how long a call may take that puts back.
const SYNC_US: u64 = 5_000;
const SYNC_CALL_US: u64 = 1_000_000;

/// No call has this number: what is put back after it is nothing, and all that is learnt is what the key knows.
const NO_CALL: u64 = (1 << 53) - 1;

impl Instance {
    pub(crate) fn is_failing(&self) -> bool {
        self.ladder.step() == Step::Failing
    }
}

impl World {
    /// What a step of the ladder changes.
    pub(super) fn step(&mut self, who: usize, transition: Option<Transition>) {
        let Some(transition) = transition else { return };
        self.tell(|_| format!("instance {who}: {transition:?}"));
        let now_us = self.clock_us(who);
        let life = self.instances[who].life;
        if transition.to == Step::Failing {
            let pause_us = self.rng.u64(PROBE_US / 2..PROBE_US);
            self.queue.push(self.now_us + pause_us, Event::Probe { who, life });
            if self.scene.on_failure == OnFailure::Local {
                let era = self.instances[who].new_era(now_us);
                let shares = vec![0; self.scene.limits.len()];
                self.instances[who].local = Some(Local { era, from_us: self.now_us, shares });
            }
        }
        if transition.from == Step::Failing {
            self.leave_local(who);
        }
    }

    /// The node is there again, or the instance ends.
    pub(super) fn leave_local(&mut self, who: usize) {
        let Some(Local { from_us, shares, .. }) = self.instances[who].local.take() else { return };
        for (watch, units) in self.watches.iter_mut().zip(shares) {
            watch.allow(Allowance { rule: Rule::LocalShare, from_us, to_us: self.now_us, units });
        }
        self.unsettled_us = Some(self.now_us);
        self.begin_roll_call(who, false);
    }

    /// Decides without the store.
    pub(super) fn without_store(&mut self, who: usize, key: usize, party: Party) {
        let now_us = self.clock_us(who);
        let instance = &mut self.instances[who];
        let place = instance.place(self.scene.configured);
        let (Some(local), Some(place)) = (&mut instance.local, place) else { return };
        let era = local.era;
        let share = share::share(instance.sides[key].limit.permits(), place);
        local.shares[key] = local.shares[key].max(share);
        let seq = instance.take_seq();
        let side = &mut instance.sides[key];
        let window = side.limit.window();
        let held_then = side.grants.held_when(era, window);
        let cap = standing::local_cap(era, now_us, window, share, held_then);
        let room = standing::room(cap, side.grants.held(now_us, window));
        let units = party.times.min(room / party.cost.max(1)) * party.cost;
        if units > 0 {
            side.total += u64::from(units);
            let seq = if self.broken == Broken::Totals { side.total } else { seq };
            side.grants.accept(now_us, window, seq, units, slidegate_core::time::Millis::ZERO);
            side.ack = seq;
            self.figures.local += u64::from(units);
            self.tell(|_| {
                format!(
                    "instance {who} grants {units} of key {key} alone: cap {cap}, held {held_then:?} then"
                )
            });
            self.spend(who, key, self.now_us, units, false);
        }
    }

    /// Permits are spent.
    pub(super) fn spend(&mut self, who: usize, key: usize, at_us: u64, units: u32, beside: bool) {
        self.watches[key].spend(at_us, units, who);
        if beside {
            // It counts as held when its instance comes to the new master, and may be spent again until that one's
            // roll call is over.
            let to_us = at_us + 2 * self.instances[who].sides[key].limit.window().get() * 1000;
            self.watches[key].allow(Allowance { rule: Rule::SplitBrain, from_us: at_us, to_us, units });
        }
    }

    // --- connections ---------------------------------------------------------------------------------

    /// A connection is of no use any more.
    pub(super) fn disconnected(&mut self, who: usize, connection: Connection) {
        let instance = &mut self.instances[who];
        if instance.connection != Some(connection) {
            return;
        }
        instance.connection = None;
        instance.silent_calls = 0;
        let life = instance.life;
        self.queue.push(self.now_us + 2 * self.scene.way_us.0, Event::Connect { who, life });
        for key in 0..self.scene.limits.len() {
            let side = &mut self.instances[who].sides[key];
            let Some(flight) = side.flight.take_if(|flight| flight.connection == connection) else {
                continue;
            };
            side.grants.lost(flight.seq);
            self.flight_fails(who, key, &flight);
        }
    }

    /// Looks for the master.
    pub(super) fn connect(&mut self, who: usize) {
        if self.instances[who].connection.is_some() {
            return;
        }
        let life = self.instances[who].life;
        let found = self.store.master.filter(|server| self.store.servers[*server].alive);
        let Some(server) = found.filter(|_| !self.is_cut(who)) else {
            let pause_us = self.rng.u64(5_000..40_000);
            self.queue.push(self.now_us + pause_us, Event::Connect { who, life });
            return;
        };
        let replid = self.store.servers[server].replid;
        let connection = Connection { server, life: self.lives[server], replid };
        let round_trip_us = self.way_us() + self.way_us();
        let instance = &mut self.instances[who];
        instance.connection = Some(connection);
        instance.ladder.connected(round_trip_us);
        let known = instance.known_replid;
        self.tell(|_| format!("instance {who}: {connection:?}, was {known}"));
        // Whoever has just started does not know whether there was a failover a moment ago.
        if known != replid {
            self.begin_roll_call(who, true);
        }
    }

    // --- roll calls ----------------------------------------------------------------------------------

    /// The master is another one, or this instance has granted permits alone.
    fn begin_roll_call(&mut self, who: usize, lossy: bool) {
        if !self.scene.exact {
            return;
        }
        let before = self.instances[who].roll_call.as_ref().is_some_and(|roll_call| roll_call.lossy);
        let lossy = lossy || before;
        self.end_roll_call(who);
        let now_us = self.clock_us(who);
        let life = self.instances[who].life;
        let era = self.instances[who].new_era(now_us);
        let instance = &mut self.instances[who];
        let others = instance.heard.iter().copied().filter(|identity| *identity != instance.identity);
        let roll_call = RollCall::begin(others, LIFE);
        // Before anything else is granted in it.
        instance.sides.iter_mut().for_each(|side| _ = side.grants.held_when(era, side.limit.window()));
        let now_us = self.now_us;
        let none_held =
            |side: &crate::instance::Side| side.grants.clone().held_when(era, side.limit.window()).is_none();
        let strange: Vec<bool> = instance.sides.iter().map(none_held).collect();
        let shares = vec![0; strange.len()];
        let (pending, in_sync) = (None, false);
        let from_us = now_us;
        instance.roll_call =
            Some(Standing { era, roll_call, from_us, strange, shares, pending, in_sync, lossy });
        self.allow_unheard(who);
        self.figures.roll_calls += 1;
        self.tell(|world| format!("instance {who}: roll call of {:?}", world.instances[who].heard));
        self.queue.push(self.now_us, Event::Sync { who, life });
        self.plan_beat(who, 0);
    }

    /// Nobody is awaited any more, or the instance ends. What it could be granted of keys that it held nothing of is
    /// excepted.
    pub(super) fn end_roll_call(&mut self, who: usize) {
        let Some(ended) = self.instances[who].roll_call.take() else { return };
        let Standing { from_us, strange, shares, .. } = ended;
        let unsettled_us = self.unsettled_us;
        for (key, watch) in self.watches.iter_mut().enumerate() {
            let window_us = self.instances[who].sides[key].limit.window().get() * 1000;
            if strange[key] && unsettled_us.is_some_and(|at_us| at_us + window_us >= from_us) {
                let (units, to_us) = (shares[key], self.now_us.min(from_us + window_us));
                watch.allow(Allowance { rule: Rule::NoHistory, from_us, to_us, units });
            }
        }
    }

    /// Nobody can await an instance of which nobody has heard: one that was started since the last beat, when the set of
    /// instances is lost too.
    fn allow_unheard(&mut self, who: usize) {
        let now_us = self.now_us;
        for other in 0..self.scene.instances {
            let identity = self.instances[other].identity;
            if self.instances[who].heard.contains(&identity) || self.beats.contains_key(&identity) {
                continue;
            }
            for (key, watch) in self.watches.iter_mut().enumerate() {
                let window_us = self.instances[other].sides[key].limit.window().get() * 1000;
                let units = watch.spent_by(other, now_us.saturating_sub(window_us));
                let (rule, to_us) = (Rule::Unheard, now_us + window_us);
                watch.allow(Allowance { rule, from_us: now_us, to_us, units });
            }
        }
    }

    /// Puts back what the master does not know of, key by key, beside the checks.
    pub(super) fn sync(&mut self, who: usize) {
        let (true_us, timeout_us, life) = (self.now_us, self.scene.timeout_us, self.instances[who].life);
        let now_us = self.clock_us(who);
        let instance = &mut self.instances[who];
        let Some(roll_call) = instance.roll_call.as_mut().filter(|roll_call| !roll_call.in_sync) else {
            return;
        };
        self.queue.push(true_us + SYNC_US, Event::Sync { who, life });
        // Until then an answer of the old master may be accepted.
        let Some(connection) = instance.connection.filter(|_| true_us >= roll_call.from_us + timeout_us)
        else {
            return;
        };
        let active = instance.sides.iter_mut().enumerate().filter_map(|(key, side)| {
            let held = side.grants.held(now_us, side.limit.window());
            (held > 0).then_some(Pending { key, number: 0, sent_us: 0 })
        });
        let pending = roll_call.pending.get_or_insert_with(|| active.collect()).clone();
        let silent = |pending: &&Pending| pending.number == 0 || pending.sent_us + SYNC_CALL_US < true_us;
        for Pending { key, .. } in pending.iter().filter(silent) {
            self.ask_known(who, *key, connection, NO_CALL);
        }
        if pending.is_empty() {
            self.in_sync(who);
        }
    }

    /// Asks a key what it knows, and tells it what it does not if it knows of no call after `stored`.
    fn ask_known(&mut self, who: usize, key: usize, connection: Connection, stored: u64) {
        let now_us = self.clock_us(who);
        let totals = self.broken == Broken::Totals;
        let instance = &mut self.instances[who];
        let (identity, seq) = (instance.identity, instance.take_seq());
        let side = &mut instance.sides[key];
        let line = side.line(identity, seq, now_us);
        let call = if totals { ledger::Call { ack: 0, ..line } } else { line };
        let limit = side.limit;
        let back = match stored {
            NO_CALL => PutBack { stored, ..PutBack::default() },
            _ => side.grants.missing_after(now_us, limit.window(), stored),
        };
        let number = self.send(who, connection, Body::PutBack { key, limit, call, back });
        let sent_us = self.now_us;
        let roll_call = self.instances[who].roll_call.as_mut();
        let mut pending = roll_call.into_iter().flat_map(|roll_call| roll_call.pending.iter_mut().flatten());
        if let Some(pending) = pending.find(|pending| pending.key == key) {
            *pending = Pending { key, number, sent_us };
        }
    }

    /// A key has said what it knows.
    pub(super) fn compared(&mut self, who: usize, key: usize, number: u64, known: Option<u64>) {
        let now_us = self.clock_us(who);
        let instance = &mut self.instances[who];
        let Some(connection) = instance.connection else { return };
        let asked = instance.roll_call.as_ref().and_then(|roll_call| roll_call.pending.as_ref());
        if !asked.is_some_and(|asked| asked.iter().any(|asked| (asked.key, asked.number) == (key, number))) {
            return;
        }
        let identity = instance.identity;
        let line = instance.sides[key].line(identity, 0, now_us);
        if let Some(stored) = known.filter(|stored| !line.lapsed && *stored < line.ack) {
            self.figures.put_back += 1;
            self.ask_known(who, key, connection, stored);
            return;
        }
        let Some(roll_call) = &mut instance.roll_call else { return };
        let Some(pending) = &mut roll_call.pending else { return };
        pending.retain(|pending| pending.key != key);
        if pending.is_empty() {
            self.in_sync(who);
        }
    }

    /// Everything has been put back: whoever waits for that is to hear it.
    fn in_sync(&mut self, who: usize) {
        if let Some(roll_call) = &mut self.instances[who].roll_call {
            roll_call.in_sync = true;
        }
        self.tell(|_| format!("instance {who} is in sync"));
        self.close_roll_call(who);
    }

    fn close_roll_call(&mut self, who: usize) {
        let over = |roll_call: &Standing| roll_call.in_sync && roll_call.roll_call.is_over();
        if self.instances[who].roll_call.as_ref().is_some_and(over) {
            self.end_roll_call(who);
            self.instances[who].urgent_until_us = self.now_us + URGENT_AFTER_US;
            self.tell(|_| format!("instance {who}: the roll call is over"));
        }
    }

    /// Says that it is there, and will again. A roll call that begins does not wait for the next time.
    pub(super) fn beat(&mut self, who: usize, number: u32) {
        let instance = &self.instances[who];
        if number != instance.beats {
            return;
        }
        if let Some(connection) = instance.connection {
            let in_sync = instance.in_sync();
            self.send(who, connection, Body::Beat { in_sync });
        }
        let instance = &self.instances[who];
        let urgent = instance.roll_call.is_some() || self.now_us < instance.urgent_until_us;
        let every_us = if urgent { BEAT_IN_ROLL_CALL_US } else { BEAT_US };
        let pause_us = self.rng.u64(every_us * 8 / 10..every_us);
        self.plan_beat(who, pause_us);
    }

    pub(super) fn plan_beat(&mut self, who: usize, pause_us: u64) {
        let instance = &mut self.instances[who];
        instance.beats += 1;
        let (life, number) = (instance.life, instance.beats);
        self.queue.push(self.now_us + pause_us, Event::Beat { who, life, number });
    }

    pub(super) fn beat_answered(&mut self, who: usize, now_ms: u64, beats: &[(u64, Beaten)]) {
        let now_us = self.clock_us(who);
        let instance = &mut self.instances[who];
        let own = instance.identity;
        instance.hear(now_us, beats.iter().map(|(identity, _)| *identity).collect());
        let (Some(connection), Some(Standing { roll_call, .. })) =
            (instance.connection, &mut instance.roll_call)
        else {
            return;
        };
        let beats: Vec<Beat> = (beats.iter())
            .filter(|(identity, _)| *identity != own)
            .map(|(identity, beat)| Beat {
                identity: *identity,
                at_ms: beat.at_ms,
                in_sync: beat.in_sync == Some(connection.replid),
            })
            .collect();
        roll_call.heard(now_ms, &beats);
        self.close_roll_call(who);
    }

    // --- probes --------------------------------------------------------------------------------------

    pub(super) fn probe(&mut self, who: usize) {
        if !self.instances[who].is_failing() {
            return;
        }
        let now_us = self.clock_us(who);
        let instance = &mut self.instances[who];
        let life = instance.life;
        let unanswered = instance.probing;
        instance.probing = instance.connection.is_some();
        let connection = instance.connection;
        if unanswered || connection.is_none() {
            let transition = instance.ladder.probe_failed(now_us);
            self.step(who, transition);
            if unanswered && let Some(connection) = connection {
                self.disconnected(who, connection);
            }
        }
        if let Some(connection) = connection {
            self.send(who, connection, Body::Probe);
        }
        let pause_us = self.rng.u64(PROBE_US / 2..PROBE_US);
        self.queue.push(self.now_us + pause_us, Event::Probe { who, life });
    }

    pub(super) fn probe_answered(&mut self, who: usize, answer: &Receipted) {
        let now_us = self.clock_us(who);
        let round_trip_us = self.now_us - answer.sent_us;
        let instance = &mut self.instances[who];
        if instance.connection != Some(answer.connection) {
            return;
        }
        instance.probing = false;
        let transition = instance.ladder.probe_answered(now_us, round_trip_us);
        self.step(who, transition);
    }
}
