//! The modelled store: a master and its replicas, each with keys and a clock of its own, and a journal between them.
//!
//! Mirrors what Redis promises, and no more: a master answers before its replicas have heard of it. A write reaches
//! each of them some time later, in order; what has not when the master is lost, is lost with it. A replica that is
//! promoted goes on with what it has, under a new `replid`. Values end with their TTL.
//!
//! # Invariants
//! * One master is known as such at any time, or none. An old one that was not told takes writes (split brain).
//! * Clocks of servers may differ, and step; they run at the rate of true time.

use slidegate_core::algorithm::tick_log::layout::Image;
use slidegate_core::limit::Limit;
use slidegate_core::time::Now;

use crate::decide;

/// When the simulation begins, on every clock that is right: some Wednesday, between two milliseconds.
pub(crate) const BEGIN_US: u64 = 1_700_000_000_123_457;

/// A server, as a place: it keeps its number over restarts.
pub(crate) type ServerId = usize;

/// A value, and until when it is kept unless it is used again.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    image: Image,
    limit: Limit,
    touched_ms: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    keys: Vec<Option<Value>>,
    /// How far the clock is ahead of true time.
    pub(crate) ahead_us: i64,
    /// Names the history that the server has; another one after each promotion and restart.
    pub(crate) replid: u64,
    pub(crate) alive: bool,
    /// Takes writes: it believes that it is the master.
    pub(crate) writable: bool,
    /// Writes of the journal that it has applied.
    applied: usize,
    /// When the last write that was sent to it arrives.
    arrives_us: u64,
    /// No write arrives before this.
    pub(crate) held_until_us: u64,
}

/// A write on its way to the replicas.
#[derive(Debug)]
struct Write {
    key: usize,
    value: Option<Value>,
    /// When it arrives, for each server.
    arrives_us: Vec<u64>,
}

/// All servers of one shard of keys.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) servers: Vec<Server>,
    pub(crate) master: Option<ServerId>,
    journal: Vec<Write>,
    next_replid: u64,
}

impl Store {
    pub(crate) fn new(servers: usize, keys: usize) -> Self {
        let server = |place: usize| Server {
            keys: vec![None; keys],
            ahead_us: 0,
            replid: 1,
            alive: true,
            writable: place == 0,
            applied: 0,
            arrives_us: 0,
            held_until_us: 0,
        };
        Self {
            servers: (0..servers).map(server).collect(),
            master: Some(0),
            journal: Vec::new(),
            next_replid: 2,
        }
    }

    /// What the server's clock says.
    pub(crate) fn clock(&self, server: ServerId, true_us: u64) -> Now {
        Now::from_micros((BEGIN_US + true_us).saturating_add_signed(self.servers[server].ahead_us))
    }

    /// Runs a script on one value of a server that takes writes. `lag_us` is how long the write takes to each replica.
    pub(crate) fn execute<T>(
        &mut self,
        server: ServerId,
        key: usize,
        limit: &Limit,
        true_us: u64,
        lag_us: impl FnMut(ServerId) -> u64,
        script: impl FnOnce(&mut Image, Now) -> T,
    ) -> T {
        let now = self.clock(server, true_us);
        let slot = &mut self.servers[server].keys[key];
        if slot.as_ref().is_some_and(|value| value.has_ended(now)) {
            *slot = None;
        }
        let value = slot.get_or_insert_with(|| Value {
            image: Image::new(decide::epoch_at(now)),
            limit: *limit,
            touched_ms: 0,
        });
        let told = script(&mut value.image, now);
        (value.limit, value.touched_ms) = (*limit, now.floor_ms());
        let value = value.clone();
        if self.master == Some(server) && self.servers.len() > 1 {
            self.replicate(server, key, Some(value), true_us, lag_us);
        }
        told
    }

    fn replicate(
        &mut self,
        from: ServerId,
        key: usize,
        value: Option<Value>,
        true_us: u64,
        mut lag_us: impl FnMut(ServerId) -> u64,
    ) {
        let arrives_us = (0..self.servers.len()).map(|place| {
            let server = &mut self.servers[place];
            if place != from {
                let arrives_us = true_us + lag_us(place);
                server.arrives_us = server.arrives_us.max(arrives_us).max(server.held_until_us);
            }
            server.arrives_us
        });
        let arrives_us = arrives_us.collect();
        self.journal.push(Write { key, value, arrives_us });
    }

    /// Applies what has arrived at a replica.
    fn catch_up(&mut self, place: ServerId, true_us: u64) {
        let server = &mut self.servers[place];
        while let Some(write) = self.journal.get(server.applied)
            && write.arrives_us[place] <= true_us
        {
            server.keys[write.key].clone_from(&write.value);
            server.applied += 1;
        }
    }

    /// Every write that is under way arrives.
    pub(crate) fn flush(&mut self, true_us: u64) {
        for place in 0..self.servers.len() {
            self.journal.iter_mut().for_each(|write| write.arrives_us[place] = true_us);
            self.servers[place].arrives_us = true_us;
        }
    }

    /// Makes a replica the master; everybody else follows it from now on, or as soon as they are told. Returns how many
    /// writes it lacks.
    pub(crate) fn promote(&mut self, place: ServerId, true_us: u64, demote_others: bool) -> usize {
        self.catch_up(place, true_us);
        let lacks = self.journal.len().saturating_sub(self.servers[place].applied);
        self.journal.clear();
        self.servers[place].writable = true;
        self.renew_history(place);
        self.master = Some(place);
        for other in 0..self.servers.len() {
            let told = demote_others || !self.servers[other].writable;
            if other != place && told && self.servers[other].alive {
                self.follow(other, place, true_us);
            } else if other != place {
                self.servers[other].applied = usize::MAX;
            }
        }
        lacks
    }

    /// Lets a server follow the master from now on: a full copy, and what is written after that.
    pub(crate) fn follow(&mut self, place: ServerId, master: ServerId, true_us: u64) {
        let (keys, replid) = (self.servers[master].keys.clone(), self.servers[master].replid);
        let applied = self.journal.len();
        let server = &mut self.servers[place];
        (server.keys, server.replid, server.applied) = (keys, replid, applied);
        (server.writable, server.arrives_us) = (false, true_us);
    }

    /// Ends a server.
    pub(crate) fn kill(&mut self, place: ServerId) {
        let server = &mut self.servers[place];
        (server.alive, server.writable) = (false, false);
        // It hears of no write before it follows somebody again.
        server.applied = usize::MAX;
        if self.master == Some(place) {
            self.master = None;
        }
    }

    /// A master comes back without what it had: nobody had it write to a disk.
    pub(crate) fn come_back_empty(&mut self, place: ServerId, true_us: u64) {
        self.journal.clear();
        let server = &mut self.servers[place];
        server.keys.fill(None);
        (server.alive, server.writable) = (true, true);
        self.renew_history(place);
        self.master = Some(place);
        for other in 0..self.servers.len() {
            if other != place && self.servers[other].alive {
                self.follow(other, place, true_us);
            }
        }
    }

    fn renew_history(&mut self, place: ServerId) {
        self.servers[place].replid = self.next_replid;
        self.next_replid += 1;
    }
}

impl Server {
    /// What it holds under a key.
    pub(crate) fn value(&self, key: usize) -> Option<&Image> {
        self.keys[key].as_ref().map(|value| &value.image)
    }
}

impl Value {
    /// Whether the TTL is over. It is set from when the last admitted permit leaves.
    fn has_ended(&self, now: Now) -> bool {
        // The usual case, without a look at the log.
        let window = self.limit.window().get();
        if now.floor_ms() <= self.touched_ms + window {
            return false;
        }
        let touched = Now::from_millis(self.touched_ms);
        self.touched_ms + decide::keeps_ms(&self.image, touched, &self.limit) < now.floor_ms()
    }
}
