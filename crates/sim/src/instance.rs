//! An instance: what it knows. What it does with that is in [`world`](crate::world).
//!
//! Everything that decides is the product's: [`Grants`], [`RollCall`], [`Ladder`], `standing`, `share`. What is here
//! is the part of the product that keeps these per key and per node: `store/redis/ledgers.rs`, `heartbeat.rs`,
//! `pipeline/resilient`.

use std::collections::VecDeque;

use slidegate_core::instance::Era;
use slidegate_core::instance::grants::Grants;
use slidegate_core::instance::ladder::{Ladder, Thresholds};
use slidegate_core::instance::purse::Purse;
use slidegate_core::instance::roll_call::RollCall;
use slidegate_core::instance::share::Place;
use slidegate_core::ledger;
use slidegate_core::limit::Limit;
use slidegate_core::time::Millis;

use crate::decide::Party;
use crate::store::ServerId;
use crate::world::Leased;

/// Where an instance's clock begins: anywhere, as long as no age reaches back beyond it.
const CLOCK_BEGIN_US: u64 = 1_000_000_000_000;

/// A clock that never steps, and runs a little fast or slow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) begin_us: u64,
    /// Millionths.
    pub(crate) drift_ppm: i64,
}

impl Clock {
    pub(crate) const fn new(begin_us: u64, drift_ppm: i64) -> Self {
        Self { begin_us: CLOCK_BEGIN_US + begin_us, drift_ppm }
    }

    pub(crate) fn now_us(&self, true_us: u64) -> u64 {
        let true_us = i64::try_from(true_us).unwrap_or(i64::MAX);
        let drifted = true_us / 1000 * self.drift_ppm / 1000;
        self.begin_us.saturating_add_signed(true_us + drifted)
    }
}

/// A connection: to whom, and in which life of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) server: ServerId,
    pub(crate) life: u32,
    /// As `INFO` said when it was opened.
    pub(crate) replid: u64,
}

/// Checks that wait together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) party: Party,
    /// How many of them will be gone when the answer comes.
    pub(crate) gone: u32,
    pub(crate) since_us: u64,
}

/// A call under way.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    /// Names the call, for replies and deadlines.
    pub(crate) number: u64,
    pub(crate) seq: u64,
    pub(crate) aboard: Vec<Waiting>,
    /// How many of each party were asked for, where a roll call allows only some.
    pub(crate) asked: Vec<Party>,
    /// On true time.
    pub(crate) sent_us: u64,
    pub(crate) ends_us: u64,
    pub(crate) attempts: u32,
    pub(crate) connection: Connection,
    pub(crate) lease: Millis,
}

/// What is known of one key.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) limit: Limit,
    pub(crate) waiting: VecDeque<Waiting>,
    pub(crate) flight: Option<Flight>,
    pub(crate) grants: Grants,
    pub(crate) ack: u64,
    pub(crate) reset_epoch: u64,
    /// Permits granted in all: what totals are made of.
    pub(crate) total: u64,
    /// What is leased and not spent, and what names it.
    pub(crate) purse: Purse,
    pub(crate) leased: Option<Leased>,
    /// Who waits for the purse to be filled.
    pub(crate) lessees: VecDeque<Waiting>,
    /// A call that fills it is wanted, or under way.
    pub(crate) leasing: bool,
    /// How many leases there were.
    pub(crate) leases: u64,
}

impl Side {
    pub(crate) fn new(limit: Limit) -> Self {
        Self {
            limit,
            waiting: VecDeque::new(),
            flight: None,
            grants: Grants::new(),
            ack: 0,
            reset_epoch: 0,
            total: 0,
            purse: Purse::default(),
            leased: None,
            lessees: VecDeque::new(),
            leasing: false,
            leases: 0,
        }
    }

    /// What a call says about the key.
    pub(crate) fn line(&mut self, identity: u64, seq: u64, now_us: u64) -> ledger::Call {
        let lapsed = self.grants.held(now_us, self.limit.window()) == 0;
        ledger::Call { identity, seq, ack: self.ack, reset_epoch: self.reset_epoch, lapsed }
    }
}

/// A time without the store, and what the oracle has to know of it.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) era: Era,
    /// On true time.
    pub(crate) from_us: u64,
    /// The largest share of each key that was used.
    pub(crate) shares: Vec<u32>,
}

/// A roll call, and what the oracle has to know of it.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) era: Era,
    pub(crate) roll_call: RollCall,
    /// On true time.
    pub(crate) from_us: u64,
    /// The keys that nothing was held of.
    pub(crate) strange: Vec<bool>,
    /// The largest share of each key that was used.
    pub(crate) shares: Vec<u32>,
    /// The keys that are yet to be compared with the master; `None`: that has not begun.
    pub(crate) pending: Option<Vec<Pending>>,
    /// Everything has been put back.
    pub(crate) in_sync: bool,
    /// The master is another than before, and may not know of what was granted.
    pub(crate) lossy: bool,
}

/// A key that is being compared, and the call that asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) key: usize,
    pub(crate) number: u64,
    /// On true time.
    pub(crate) sent_us: u64,
}

/// What is known of the node, and of who else asks it.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) alive: bool,
    /// Counts its lives: what was sent to an earlier one is not for this one.
    pub(crate) life: u32,
    pub(crate) identity: u64,
    pub(crate) clock: Clock,
    pub(crate) next_seq: u64,
    pub(crate) connection: Option<Connection>,
    pub(crate) silent_calls: u32,
    pub(crate) sides: Vec<Side>,
    pub(crate) ladder: Ladder,
    pub(crate) eras: u32,
    /// Since the node was found failing.
    pub(crate) local: Option<Local>,
    /// Since the master was another, or was found again.
    pub(crate) roll_call: Option<Standing>,
    /// The history that calls were answered from last.
    pub(crate) known_replid: u64,
    /// Who was there at the last beat that was answered.
    pub(crate) heard: Vec<u64>,
    /// How many were there lately: when, and how many.
    pub(crate) counts: VecDeque<(u64, u32)>,
    /// How many beats were planned.
    pub(crate) beats: u32,
    /// Until when it beats often: others may be waiting for it yet.
    pub(crate) urgent_until_us: u64,
    /// A probe is not answered yet.
    pub(crate) probing: bool,
}

/// For so long the highest count of instances is remembered.
const REMEMBERED_US: u64 = 60_000_000;

impl Instance {
    pub(crate) fn new(identity: u64, life: u32, clock: Clock, limits: &[Limit], true_us: u64) -> Self {
        Self {
            alive: true,
            life,
            identity,
            clock,
            next_seq: 1,
            connection: None,
            silent_calls: 0,
            sides: limits.iter().map(|limit| Side::new(*limit)).collect(),
            ladder: Ladder::new(Thresholds::default(), clock.now_us(true_us)),
            eras: 0,
            local: None,
            roll_call: None,
            known_replid: 0,
            heard: Vec::new(),
            counts: VecDeque::new(),
            beats: 0,
            urgent_until_us: 0,
            probing: false,
        }
    }

    pub(crate) const fn take_seq(&mut self) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }

    pub(crate) const fn new_era(&mut self, now_us: u64) -> Era {
        self.eras += 1;
        Era { number: self.eras, began_us: now_us }
    }

    /// Takes note of who is there.
    pub(crate) fn hear(&mut self, now_us: u64, identities: Vec<u64>) {
        let count = u32::try_from(identities.len()).unwrap_or(u32::MAX);
        while self.counts.front().is_some_and(|(at_us, _)| at_us + REMEMBERED_US < now_us) {
            self.counts.pop_front();
        }
        self.counts.push_back((now_us, count));
        self.heard = identities;
    }

    /// This instance's place among those that were there, of at least as many as are configured (0: not); `None` if
    /// neither is known.
    pub(crate) fn place(&self, configured: u32) -> Option<Place> {
        let of = self.counts.iter().map(|(_, count)| *count).max().unwrap_or_default().max(configured);
        if of == 0 {
            return None;
        }
        let rank = self.heard.iter().filter(|identity| **identity < self.identity).count();
        Some(Place::new(u32::try_from(rank).unwrap_or(u32::MAX), of))
    }

    /// The history that it says it is in sync with, in its beats.
    pub(crate) fn in_sync(&self) -> Option<u64> {
        let out = self.roll_call.as_ref().is_some_and(|roll_call| !roll_call.in_sync);
        self.connection.filter(|_| !out).map(|connection| connection.replid)
    }
}
