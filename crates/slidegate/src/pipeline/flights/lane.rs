//! The queue of one lane: which checks may leave now, and which have to wait for whom.
//!
//! A value under somebody else's lock: no IO, no clock, no waking. `W` and `R` are whoever waits, and mean
//! nothing here.
//!
//! # Rules
//! * A counter is in at most one flight at a time.
//! * Checks of one counter leave in the order in which they came. A check waits until it is first in line
//!   at *each* of its counters, or behind checks of the same flight only; so none is overtaken at a counter
//!   that it names, however long it waits for another.
//! * Equal checks that nothing of their counters separates form a [`Party`]: they travel as one, counted.
//! * What is given back goes first: it only ever makes room.
//!
//! Each step costs a few operations for each counter that it touches, however many checks wait.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use slab::Slab;
use slidegate_core::limit::Algorithm;
use smallvec::SmallVec;

use crate::pipeline::batch::{CounterKey, OwnedCharge, OwnedCheck, Taken};

/// The most counters of one call: at 4 to 10 us each, the store is busy with it for less than 1 ms, and whoever
/// else asks it waits no longer. More would share no cost that is not shared by then. A check of more counters
/// travels alone.
pub(super) const CHARGES_PER_CALL: usize = 64;

/// The most checks that wait in one lane. What stands behind so many would miss the default deadline of
/// 10 ms even if each took only some microseconds; and they hold some 5 MB.
pub(super) const QUEUE_MAX: usize = 8192;

/// The most flights under way in one lane: while one is on its way out, one is being decided, one is on its
/// way back and one is being handed out. More would only make each smaller.
pub(super) const FLIGHTS_PER_LANE: usize = 4;

/// Checks that wait for one lane.
#[derive(Debug)]
pub(super) struct Lane<W, R> {
    parties: Slab<Party<W>>,
    lines: Slab<Line>,
    /// The lines by the names of their counters. Clients choose names, and the hash is not one that
    /// withstands an attacker for long; but a lane never holds more lines than checks.
    by_key: HashTable<usize>,
    hashes: DefaultHashBuilder,
    /// Parties that may leave now, by number.
    ready: BTreeSet<(u64, usize)>,
    returns: Vec<Return<R>>,
    waiting: usize,
    next_number: u64,
    under_way: usize,
    boarding: bool,
}

/// Equal checks that travel as one.
#[derive(Debug)]
struct Party<W> {
    /// That of its first waiter.
    number: u64,
    check: Arc<OwnedCheck>,
    merges: bool,
    times: u32,
    waiters: SmallVec<[Waiter<W>; 1]>,
    /// One for each counter.
    places: SmallVec<[Place; 2]>,
    /// At how many counters it has to wait.
    blocked: usize,
}

/// Somebody who waits for an answer.
#[derive(Debug)]
pub(super) struct Waiter<W> {
    number: u64,
    /// How many equal checks they asked for.
    pub(super) times: u32,
    /// Whom to tell.
    pub(super) told: W,
}

/// A party's place in the line of a counter.
#[derive(Debug)]
struct Place {
    line: usize,
    before: Option<usize>,
    after: Option<usize>,
}

/// A counter that somebody waits for, or that is in flight.
#[derive(Debug)]
struct Line {
    key: CounterKey,
    hash: u64,
    in_flight: bool,
    first: Option<usize>,
    last: Option<usize>,
}

/// What a check took and nobody wants.
#[derive(Debug)]
pub(super) struct Return<R> {
    /// What to give back.
    pub(super) taken: SmallVec<[Taken; 2]>,
    /// Whom to tell that it was.
    pub(super) told: Option<R>,
}

/// Finds a waiter again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    party: usize,
    number: u64,
}

/// What leaves together.
#[derive(Debug)]
pub(super) struct Flight<W, R> {
    /// To be given back first.
    pub(super) returns: Vec<Return<R>>,
    /// To be decided then, in order.
    pub(super) parties: Vec<Boarded<W>>,
    /// The counters that it holds until it lands.
    pub(super) held: Held,
}

/// Counters in flight.
#[derive(Debug, Default)]
pub(super) struct Held(Vec<usize>);

/// A party on its flight.
#[derive(Debug)]
pub(super) struct Boarded<W> {
    pub(super) check: Arc<OwnedCheck>,
    pub(super) times: u32,
    /// In the order in which they came.
    pub(super) waiters: SmallVec<[Waiter<W>; 1]>,
}

impl<W, R> Default for Lane<W, R> {
    fn default() -> Self {
        Self {
            parties: Slab::new(),
            lines: Slab::new(),
            by_key: HashTable::new(),
            hashes: DefaultHashBuilder::default(),
            ready: BTreeSet::new(),
            returns: Vec::new(),
            waiting: 0,
            next_number: 0,
            under_way: 0,
            boarding: false,
        }
    }
}

impl<W, R> Lane<W, R> {
    /// Puts a check into the queue; `None` if it is full.
    pub(super) fn enqueue(&mut self, check: OwnedCheck, times: u32, told: W) -> Option<Ticket> {
        if self.waiting >= QUEUE_MAX {
            return None;
        }
        self.waiting += 1;
        let number = self.next_number;
        self.next_number += 1;
        let waiter = Waiter { number, times, told };
        let party = match self.party_of(&check, times) {
            Some(party) => {
                self.parties[party].times += times;
                self.parties[party].waiters.push(waiter);
                party
            }
            None => self.found(check, waiter),
        };
        Some(Ticket { party, number })
    }

    /// The waiting party that a check may join: the last one at every counter, so that nobody is overtaken.
    fn party_of(&self, check: &OwnedCheck, times: u32) -> Option<usize> {
        let key = &check.charges.first()?.key;
        let last = self.lines[self.find(key, self.hash(key))?].last?;
        let party = &self.parties[last];
        let joins = party.merges
            && *party.check == *check
            && party.times.checked_add(times).is_some()
            && party.places.iter().all(|place| self.lines[place.line].last == Some(last));
        joins.then_some(last)
    }

    /// A new party at the end of the line of each of its counters.
    fn found(&mut self, check: OwnedCheck, waiter: Waiter<W>) -> usize {
        let lines: SmallVec<[usize; 2]> = check.charges.iter().map(|charge| self.line(&charge.key)).collect();
        let party = self.parties.insert(Party {
            number: waiter.number,
            merges: merges(&check),
            check: Arc::new(check),
            times: waiter.times,
            waiters: SmallVec::from_buf([waiter]),
            places: SmallVec::new(),
            blocked: 0,
        });
        for line in lines {
            let before = self.lines[line].last.replace(party);
            match before {
                // Named twice: one place will do.
                Some(before) if before == party => continue,
                Some(before) => self.place(before, line).after = Some(party),
                None => self.lines[line].first = Some(party),
            }
            self.parties[party].blocked += usize::from(before.is_some() || self.lines[line].in_flight);
            self.parties[party].places.push(Place { line, before, after: None });
        }
        self.note_if_ready(party);
        party
    }

    /// Takes a waiter out of the queue. `false` if it left already, or never was there.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> bool {
        let Some(party) = self.parties.get_mut(ticket.party) else { return false };
        let Ok(at) = party.waiters.binary_search_by_key(&ticket.number, |waiter| waiter.number) else {
            return false;
        };
        party.times -= party.waiters.remove(at).times;
        self.waiting -= 1;
        if party.waiters.is_empty() {
            self.dissolve(ticket.party);
        }
        true
    }

    /// Takes a party that nobody waits for out of its lines.
    fn dissolve(&mut self, id: usize) {
        let party = self.parties.remove(id);
        if party.blocked == 0 {
            self.ready.remove(&(party.number, id));
        }
        for Place { line, before, after } in party.places {
            match before {
                Some(before) => self.place(before, line).after = after,
                None => self.lines[line].first = after,
            }
            match after {
                Some(after) => self.place(after, line).before = before,
                None => self.lines[line].last = before,
            }
            match (before, after) {
                (None, Some(after)) if !self.lines[line].in_flight => self.unblock(after),
                (None, None) => self.close_if_idle(line),
                _ => {}
            }
        }
    }

    /// Everybody who waits, to be told that nothing will come.
    pub(super) fn evacuate(&mut self) -> Vec<W> {
        let ids: Vec<usize> = self.parties.iter().map(|(id, _)| id).collect();
        let mut left = Vec::with_capacity(self.waiting);
        for id in ids {
            let waiters = std::mem::take(&mut self.parties[id].waiters);
            left.extend(waiters.into_iter().map(|waiter| waiter.told));
            self.dissolve(id);
        }
        self.waiting = 0;
        self.returns.clear();
        left
    }

    /// Takes up what shall be given back with one of the next flights.
    pub(super) fn give_back(&mut self, back: Return<R>) {
        self.returns.push(back);
    }

    /// Whether somebody has to be sent for what waits. The one who is sent [departs](Self::depart) soon;
    /// until then nobody else need be.
    pub(super) fn wants_runner(&mut self) -> bool {
        let wants = !self.boarding && self.under_way < FLIGHTS_PER_LANE && self.has_work();
        if wants {
            self.boarding = true;
            self.under_way += 1;
        }
        wants
    }

    fn has_work(&self) -> bool {
        !self.ready.is_empty() || self.returns.iter().any(|back| self.is_free(back, &Held::default()))
    }

    /// Whether no counter of it is in flight, but for those of this flight.
    fn is_free(&self, back: &Return<R>, held: &Held) -> bool {
        let elsewhere = |line: usize| self.lines[line].in_flight && !held.0.contains(&line);
        let line = |taken: &Taken| self.find(&taken.key, self.hash(&taken.key));
        !back.taken.iter().filter_map(line).any(elsewhere)
    }

    /// All that may leave now, as far as one call holds it. With `None` the runner has ended.
    pub(super) fn depart(&mut self) -> Option<Flight<W, R>> {
        self.boarding = false;
        let mut flight = Flight { returns: Vec::new(), parties: Vec::new(), held: Held::default() };
        let mut space = self.board_returns(&mut flight);
        while let Some((_, id)) = self.ready.first().copied() {
            let charges = self.parties[id].places.len().max(1);
            let empty = flight.parties.is_empty() && flight.returns.is_empty();
            if charges > space && !empty {
                break;
            }
            space = space.saturating_sub(charges);
            self.ready.pop_first();
            self.board(id, &mut flight);
        }
        self.hold_back(&flight.held);
        if flight.parties.is_empty() && flight.returns.is_empty() {
            self.under_way -= 1;
            return None;
        }
        Some(flight)
    }

    /// Boards what is given back; returns how many counters there is space for still.
    fn board_returns(&mut self, flight: &mut Flight<W, R>) -> usize {
        let mut space = CHARGES_PER_CALL;
        for back in std::mem::take(&mut self.returns) {
            let charges = back.taken.len();
            if !self.is_free(&back, &flight.held) || (charges > space && !flight.returns.is_empty()) {
                self.returns.push(back);
                continue;
            }
            space = space.saturating_sub(charges);
            for taken in &back.taken {
                let line = self.line(&taken.key);
                self.hold(line, &mut flight.held);
            }
            flight.returns.push(back);
        }
        space
    }

    /// Takes a party from the head of its lines onto the flight. Those behind it may follow it there.
    fn board(&mut self, id: usize, flight: &mut Flight<W, R>) {
        let party = self.parties.remove(id);
        self.waiting -= party.waiters.len();
        for Place { line, after, .. } in party.places {
            self.hold(line, &mut flight.held);
            self.lines[line].first = after;
            match after {
                Some(after) => {
                    self.place(after, line).before = None;
                    self.unblock(after);
                }
                None => self.lines[line].last = None,
            }
        }
        flight.parties.push(Boarded { check: party.check, times: party.times, waiters: party.waiters });
    }

    fn hold(&mut self, line: usize, held: &mut Held) {
        if !self.lines[line].in_flight {
            self.lines[line].in_flight = true;
            held.0.push(line);
        }
    }

    /// Who is first in line at a counter of the flight and not aboard has to wait until it lands.
    fn hold_back(&mut self, held: &Held) {
        for &line in &held.0 {
            if let Some(first) = self.lines[line].first {
                let party = &mut self.parties[first];
                if party.blocked == 0 {
                    self.ready.remove(&(party.number, first));
                }
                party.blocked += 1;
            }
        }
    }

    /// Frees the counters of a flight that has ended. `true` if its runner shall [depart](Self::depart)
    /// again, for what came up meanwhile; else the runner has ended.
    pub(super) fn land(&mut self, held: Held) -> bool {
        for line in held.0 {
            self.lines[line].in_flight = false;
            match self.lines[line].first {
                Some(first) => self.unblock(first),
                None => self.close_if_idle(line),
            }
        }
        let again = !self.boarding;
        if again {
            self.boarding = true;
        } else {
            self.under_way -= 1;
        }
        again
    }

    /// The one who was to depart ends without. `true` if no other runner is left.
    pub(super) const fn abort(&mut self) -> bool {
        self.boarding = false;
        self.under_way -= 1;
        self.under_way == 0
    }

    fn unblock(&mut self, id: usize) {
        self.parties[id].blocked -= 1;
        self.note_if_ready(id);
    }

    fn note_if_ready(&mut self, id: usize) {
        let party = &self.parties[id];
        if party.blocked == 0 {
            self.ready.insert((party.number, id));
        }
    }

    /// The place of a party in a line that it stands in.
    fn place(&mut self, party: usize, line: usize) -> &mut Place {
        let places = &mut self.parties[party].places;
        let at = places.iter().position(|place| place.line == line);
        &mut places[at.unwrap_or_default()]
    }

    fn hash(&self, key: &CounterKey) -> u64 {
        self.hashes.hash_one(key.name())
    }

    fn find(&self, key: &CounterKey, hash: u64) -> Option<usize> {
        self.by_key.find(hash, |line| self.lines[*line].key == *key).copied()
    }

    /// The line of a counter: a new one, if nobody has asked for it yet.
    fn line(&mut self, key: &CounterKey) -> usize {
        let hash = self.hash(key);
        if let Some(line) = self.find(key, hash) {
            return line;
        }
        let line =
            self.lines.insert(Line { key: key.clone(), hash, in_flight: false, first: None, last: None });
        let lines = &self.lines;
        self.by_key.insert_unique(hash, line, |line| lines[*line].hash);
        line
    }

    fn close_if_idle(&mut self, line: usize) {
        let Line { in_flight, first, hash, .. } = self.lines[line];
        if in_flight || first.is_some() {
            return;
        }
        if let Ok(entry) = self.by_key.find_entry(hash, |other| *other == line) {
            entry.remove();
        }
        self.lines.remove(line);
    }
}

/// Whether equal checks can be answered by counting them: each is then told exactly what it would have been
/// told alone. Shadow policies and penalties go on being charged past the first refusal, and in a leaky
/// bucket each waits for another time; but a look changes nothing for the next.
fn merges(check: &OwnedCheck) -> bool {
    let plain = |charge: &OwnedCharge| {
        !charge.terms.shadow
            && !charge.terms.count_denied
            && !matches!(charge.limit.algorithm(), Algorithm::LeakyBucket { .. })
    };
    let looks = check.charges.iter().all(|charge| charge.cost == 0);
    check.reserve.is_none() && !check.probe && (looks || check.charges.iter().all(plain))
}

#[cfg(test)]
mod tests;
