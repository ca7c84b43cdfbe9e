//! An instance's checks and its calls.
//!
//! Mirrors `pipeline/flights` (one call at a time for each key, equal checks are counted, what comes meanwhile leaves
//! together), `store/redis/calls.rs` (what becomes of an answer) and `ledgers.rs` (what is remembered of it).

use slidegate_core::instance::grants::PutBack;
use slidegate_core::instance::standing;
use slidegate_core::time::Millis;

use super::network::{Body, Receipted, Reply};
use super::{Event, World};
use crate::broken::Broken;
use crate::decide::{Ask, Party, Told};
use crate::instance::{Connection, Flight, Waiting};

/// How often a call is made again that decided nothing. As in `calls.rs`.
const ATTEMPTS_MAX: u32 = 3;

/// So many calls without an answer, one after another, and the connection is replaced. As in `link`.
const SILENT_CALLS_MAX: u32 = 3;

impl World {
    /// Somebody asks.
    pub(super) fn ask(&mut self, who: usize, key: usize, waiting: Waiting) {
        if self.instances[who].is_failing() {
            self.without_store(who, key, waiting.party);
            return;
        }
        let straight = match self.lease_of(who, key) {
            Some(length) => self.ask_purse(who, key, length, waiting),
            None => true,
        };
        if straight {
            self.instances[who].sides[key].waiting.push_back(waiting);
            self.depart(who, key);
        }
    }

    /// Lets those leave who wait, if no call is under way.
    pub(super) fn depart(&mut self, who: usize, key: usize) {
        let (now_us, patience_us) = (self.now_us, self.scene.timeout_us);
        let side = &mut self.instances[who].sides[key];
        if side.flight.is_some() {
            return;
        }
        let aboard: Vec<Waiting> = side.waiting.drain(..).collect();
        let aboard: Vec<Waiting> =
            aboard.into_iter().filter(|waiting| now_us < waiting.since_us + patience_us).collect();
        if aboard.is_empty() {
            if side.leasing {
                self.lease(who, key);
            }
            return;
        }
        let Some(connection) = self.instances[who].connection else {
            self.failed(who, key, &aboard);
            return;
        };
        // Who may not be granted anything is asked for nevertheless: so the key is put back to.
        let asked = self.within_cap(who, key, &aboard);
        self.fly(who, key, connection, aboard, asked, Millis::ZERO);
    }

    /// What may be asked for: in a roll call, no more than brings the instance to what it held when it began.
    pub(super) fn within_cap(&mut self, who: usize, key: usize, aboard: &[Waiting]) -> Vec<Party> {
        let mut room = self.room_in_roll_call(who, key).unwrap_or(u32::MAX);
        let cut = |waiting: &Waiting| {
            let Party { cost, times } = waiting.party;
            let times = times.min(room / cost.max(1));
            room -= times * cost;
            Party { cost, times }
        };
        aboard.iter().map(cut).collect()
    }

    fn room_in_roll_call(&mut self, who: usize, key: usize) -> Option<u32> {
        let now_us = self.clock_us(who);
        let place = self.instances[who].place(self.scene.configured);
        let instance = &mut self.instances[who];
        let roll_call = instance.roll_call.as_mut()?;
        let era = roll_call.era;
        let side = &mut instance.sides[key];
        let (window, permits) = (side.limit.window(), side.limit.permits());
        // As long as nobody was heard of.
        let share = place.map_or(permits, |place| slidegate_core::instance::share::share(permits, place));
        roll_call.shares[key] = roll_call.shares[key].max(share);
        let held_then = side.grants.held_when(era, window);
        let cap = standing::roll_call_cap(era, now_us, window, share, held_then)?;
        let room = standing::room(cap, side.grants.held(now_us, window));
        (self.broken != Broken::NoRollCall).then_some(room)
    }

    pub(super) fn fly(
        &mut self,
        who: usize,
        key: usize,
        connection: Connection,
        aboard: Vec<Waiting>,
        asked: Vec<Party>,
        lease: Millis,
    ) {
        let ends_us = self.now_us + self.scene.timeout_us;
        let flight = Flight {
            number: 0,
            seq: 0,
            aboard,
            asked,
            sent_us: self.now_us,
            ends_us,
            attempts: 1,
            connection,
            lease,
        };
        self.instances[who].sides[key].flight = Some(flight);
        self.call(who, key, None);
    }

    /// Makes the call of the flight at hand, for the first time or again.
    fn call(&mut self, who: usize, key: usize, put_back: Option<PutBack>) {
        let now_us = self.clock_us(who);
        let (exact, totals) = (self.scene.exact, self.broken == Broken::Totals);
        let instance = &mut self.instances[who];
        let (identity, seq, life) = (instance.identity, instance.take_seq(), instance.life);
        let side = &mut instance.sides[key];
        let line = exact.then(|| side.line(identity, seq, now_us));
        let line = line
            .map(|line| if totals { slidegate_core::ledger::Call { ack: side.total, ..line } } else { line });
        let limit = side.limit;
        let Some(flight) = &mut side.flight else { return };
        flight.seq = seq;
        let (connection, ends_us) = (flight.connection, flight.ends_us);
        let ask =
            Ask { limit, identity, seq, line, put_back, lease: flight.lease, parties: flight.asked.clone() };
        let number = self.send(who, connection, Body::Check { key, ask });
        if let Some(flight) = &mut self.instances[who].sides[key].flight {
            flight.number = number;
        }
        self.queue.push(ends_us, Event::GiveUp { who, life, key, number });
    }

    /// A call is answered, unless it was given up before.
    pub(super) fn answered(&mut self, key: usize, answer: Receipted) {
        let (who, number) = (answer.who, answer.number);
        let now_us = self.clock_us(who);
        let side = &mut self.instances[who].sides[key];
        let Some(flight) = side.flight.take_if(|flight| flight.number == number) else { return };
        self.instances[who].silent_calls = 0;
        let round_trip_us = self.now_us - answer.sent_us;
        let transition = self.instances[who].ladder.answered(now_us, round_trip_us);
        self.step(who, transition);
        let Reply::Check { told, .. } = &answer.reply else { return };
        match told {
            Told::Decided { granted, reset_epoch } => {
                self.accept(who, key, &flight, &answer, granted, *reset_epoch);
                let instance = &mut self.instances[who];
                instance.known_replid = answer.connection.replid;
                self.depart(who, key);
            }
            Told::Stale | Told::Behind { .. } if flight.attempts < ATTEMPTS_MAX => {
                let put_back = match told {
                    Told::Behind { stored } => {
                        self.figures.put_back += 1;
                        let side = &mut self.instances[who].sides[key];
                        Some(side.grants.missing_after(now_us, side.limit.window(), *stored))
                    }
                    _ => None,
                };
                let again = Flight { attempts: flight.attempts + 1, ..flight };
                self.instances[who].sides[key].flight = Some(again);
                self.call(who, key, put_back);
            }
            Told::Stale | Told::Behind { .. } => {
                self.flight_fails(who, key, &flight);
                self.depart(who, key);
            }
        }
    }

    /// Takes note of what was granted, and hands it out.
    fn accept(
        &mut self,
        who: usize,
        key: usize,
        flight: &Flight,
        answer: &Receipted,
        granted: &[(u32, Option<slidegate_core::algorithm::Receipt>)],
        reset_epoch: u64,
    ) {
        let now_us = self.clock_us(who);
        let totals = self.broken == Broken::Totals;
        let units: u32 = granted.iter().filter_map(|(_, receipt)| receipt.map(|receipt| receipt.units)).sum();
        let side = &mut self.instances[who].sides[key];
        if units > 0 {
            if reset_epoch > side.reset_epoch {
                side.grants.clear();
            }
            side.reset_epoch = reset_epoch;
        }
        if units > 0 {
            side.total += u64::from(units);
            side.ack = flight.seq;
            let seq = if totals { side.total } else { flight.seq };
            side.grants.accept(now_us, side.limit.window(), seq, units, flight.lease);
        }
        let limit = side.limit;
        if flight.lease > Millis::ZERO {
            self.lease_lands(who, key, flight, answer, granted[0]);
            return;
        }
        for (waiting, (times, receipt)) in flight.aboard.iter().zip(granted) {
            let Some(receipt) = receipt else { continue };
            let gone = waiting.gone.min(*times) * waiting.party.cost;
            self.spend(who, key, answer.executed_us, receipt.units - gone, answer.beside);
            let receipt = slidegate_core::algorithm::Receipt { units: gone, ..*receipt };
            self.give_back(who, key, &limit, receipt);
        }
    }

    /// A call has been waited for long enough.
    pub(super) fn give_up(&mut self, who: usize, key: usize, number: u64) {
        let side = &mut self.instances[who].sides[key];
        let Some(flight) = side.flight.take_if(|flight| flight.number == number) else { return };
        side.grants.lost(flight.seq);
        self.instances[who].silent_calls += 1;
        self.flight_fails(who, key, &flight);
        if self.instances[who].silent_calls >= SILENT_CALLS_MAX {
            self.disconnected(who, flight.connection);
        }
        self.depart(who, key);
    }

    /// All aboard are told.
    pub(super) fn flight_fails(&mut self, who: usize, key: usize, flight: &Flight) {
        if flight.lease > Millis::ZERO {
            self.lease_fails(who, key);
        } else {
            self.failed(who, key, &flight.aboard);
        }
    }

    /// Checks that the store did not answer.
    pub(super) fn failed(&mut self, who: usize, key: usize, aboard: &[Waiting]) {
        let now_us = self.clock_us(who);
        let transition = self.instances[who].ladder.failed(now_us);
        self.step(who, transition);
        for waiting in aboard {
            if self.instances[who].is_failing() {
                self.without_store(who, key, waiting.party);
            }
        }
    }
}
