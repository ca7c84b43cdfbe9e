//! Everything that one key holds in Redis: a tick log, and the ledger rows that name its ticks.
//!
//! The log renames its ticks now and then: when the clock steps back, when r is raised, when an empty log begins
//! anew. Rows that stayed behind would name someone else's permits, and what is taken back from a lost reply
//! would be taken from them. So an image is settled and charged through here, never its log alone.
//!
//! Deciding by the rows is not here ([`ledger`](crate::ledger)), nor are the bytes ([`layout`](super::layout)).
//!
//! # Invariants
//! * At most one row for each identity. The order of rows means nothing.
//! * No row's tick is later than the log's last. A row that outlives its window names nothing, and stays for its
//!   sequence number; its tick is known modulo 2^32, so once in 2^32 ticks it would look young again.

use alloc::vec::Vec;

use super::{TickLog, low_32};
use crate::algorithm::Receipt;
use crate::ledger::Row;
use crate::limit::Limit;
use crate::time::{Millis, Now};

/// Everything that one key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The counters.
    pub log: TickLog,
    /// When the key was last reset, in milliseconds on the store's clock and higher each time; 0 if never.
    /// Ledgers from before it are dropped, not restored.
    pub reset_epoch: u64,
    /// What is remembered of each instance's last call.
    pub ledger: Vec<Row>,
}

/// How ticks are named.
struct Axis {
    last_tick: u64,
    r_ms: u32,
    epoch: u32,
    used: u32,
}

impl Image {
    /// What a key holds that is not there. `epoch` as for [`State::new`](crate::algorithm::State::new).
    pub const fn new(epoch: u32) -> Self {
        Self { log: TickLog::new(epoch), reset_epoch: 0, ledger: Vec::new() }
    }

    /// Permits in use.
    pub const fn used(&self) -> u32 {
        self.log.used()
    }

    /// Brings log and rows up to `now`. Everything else expects it to have been called with the same `now` and
    /// `limit`.
    pub fn settle(&mut self, now: Now, limit: &Limit) {
        if self.log.used > 0 {
            let shift = low_32(self.log.step_back(now, limit));
            self.ledger.iter_mut().for_each(|row| row.tick = row.tick.wrapping_sub(shift));
        }
        let before = self.axis();
        self.log.settle(now, limit);
        self.follow(&before);
    }

    /// Takes `units`, which may be spent until `lease` from now; see [`TickLog::lease`]. Whether they fit is
    /// the caller's to ask first.
    pub fn charge(&mut self, now: Now, limit: &Limit, units: u32, lease: Millis) -> Receipt {
        let before = self.axis();
        let receipt = self.log.lease(now, limit, units, lease);
        self.follow(&before);
        receipt
    }

    /// Puts permits back that a failover has lost, by how long ago they were spent, the oldest first; some of them may
    /// be spent until `lease` from now. Returns how many have not left the window.
    pub(crate) fn put_back(
        &mut self,
        now: Now,
        limit: &Limit,
        entries: &[(Millis, u32)],
        lease: Millis,
    ) -> u32 {
        let before = self.axis();
        let units = self.log.put_back(now, limit, entries, lease);
        self.follow(&before);
        units
    }

    /// Puts the log in the place of its settled original after a decision charged it elsewhere, as in
    /// [`check::decide`](crate::check::decide).
    pub fn adopt(&mut self, log: TickLog) {
        let before = self.axis();
        self.log = log;
        self.follow(&before);
    }

    /// Takes back up to `units` of the tick with these low 32 bits; returns how many.
    pub(crate) fn take_back(&mut self, tick: u32, units: u32) -> u32 {
        self.log.give_back(self.age_ticks(tick), units)
    }

    /// The low 32 bits of the last tick.
    pub(crate) const fn last_tick(&self) -> u32 {
        low_32(self.log.last_tick)
    }

    /// How many ticks lie between this one and the last.
    pub(crate) const fn age_ticks(&self, tick: u32) -> u64 {
        self.last_tick().wrapping_sub(tick) as u64
    }

    /// Whether permits of this tick have left the window.
    pub(crate) fn has_left(&self, tick: u32, now: Now, limit: &Limit) -> bool {
        let end_ms = self.log.end_ms(self.log.last_tick.saturating_sub(self.age_ticks(tick)));
        self.log.lease_span().leaves_at_ms(end_ms, limit.window()) <= now.floor_ms()
    }

    const fn axis(&self) -> Axis {
        Axis {
            last_tick: self.log.last_tick,
            r_ms: self.log.r_ms,
            epoch: self.log.epoch,
            used: self.log.used,
        }
    }

    /// Renames the ticks of the rows as the log has renamed its own; a step back is done already.
    fn follow(&mut self, before: &Axis) {
        let log = &self.log;
        let began_anew = before.used == 0 && log.epoch != before.epoch;
        if began_anew || log.used == 0 && log.r_ms != before.r_ms {
            // The log was empty: no row names a permit. Its ticks go back, or mean other times; the clock will
            // come to what the rows name again, and find someone else's permits there.
            let tick = self.last_tick();
            self.ledger.iter_mut().for_each(|row| (row.count, row.tick) = (0, tick));
        } else if log.r_ms != before.r_ms {
            let factor = u64::from(log.r_ms / before.r_ms).max(1);
            for row in &mut self.ledger {
                let age = low_32(before.last_tick).wrapping_sub(row.tick);
                row.tick = low_32(before.last_tick.saturating_sub(u64::from(age)).div_ceil(factor));
            }
        }
    }
}
