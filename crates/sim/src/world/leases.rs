//! Leases: what is asked of a key is taken from its purse; where that is empty, one call fills it.
//!
//! Mirrors `pipeline/leases`: `account.rs` (who is told what when a call lands) and `keeper.rs` (what is left is given
//! back). One purse for each key of an instance, as all checks cost the same in a scene with leases. What stands in the
//! way of a lease call is a flight of the same key; it leaves when that has landed.

use slidegate_core::algorithm::Receipt;
use slidegate_core::decision::Cost;
use slidegate_core::instance::purse::{CHECKS_MAX, Step};
use slidegate_core::limit::Limit;
use slidegate_core::time::Millis;

use super::network::{Body, Receipted};
use super::{Event, World};
use crate::decide::Party;
use crate::instance::{Flight, Waiting};

/// What one check costs in a scene with leases.
const COST: Cost = 1;

/// Shorter windows are not leased; in the product a lease is at most a fiftieth of the window, and of these nothing.
const LEASED_MIN: Millis = Millis(100);

/// What names the permits of a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leased {
    receipt: Receipt,
    limit: Limit,
    /// By an old master that did not know it yet.
    beside: bool,
}

impl World {
    /// How long a check of this key is leased for; `None`: not at all.
    pub(super) fn lease_of(&self, who: usize, key: usize) -> Option<Millis> {
        let window = self.instances[who].sides[key].limit.window();
        // A purse leaves a full limit alone for up to 50 ms: in so short a window that is most of it.
        if window < LEASED_MIN {
            return None;
        }
        let longest = window.get() / self.scene.lease_parts.max(1);
        let length = self.scene.lease.get().min(longest);
        (length > 0).then_some(Millis(length))
    }

    /// Somebody asks, where leases are in use. Returns whether a call of their own is to be made.
    pub(super) fn ask_purse(&mut self, who: usize, key: usize, length: Millis, waiting: Waiting) -> bool {
        let now_us = self.clock_us(who);
        let side = &mut self.instances[who].sides[key];
        let times = waiting.party.times;
        match side.purse.arrive(now_us, length, times) {
            Step::Spent => {
                side.purse.put_back(waiting.gone);
                let beside = side.leased.is_some_and(|leased| leased.beside);
                self.figures.leased += u64::from(times - waiting.gone);
                self.spend(who, key, self.now_us, times - waiting.gone, beside);
                false
            }
            Step::Dry { .. } => false,
            Step::Plain if !side.leasing => true,
            Step::Ask { .. } | Step::Plain => {
                side.leasing = true;
                side.lessees.push_back(waiting);
                self.depart(who, key);
                false
            }
        }
    }

    /// Makes the call that fills the purse, if somebody waits for it.
    pub(super) fn lease(&mut self, who: usize, key: usize) -> bool {
        let (now_us, patience_us) = (self.now_us, self.scene.timeout_us);
        let side = &mut self.instances[who].sides[key];
        side.lessees.retain(|waiting| now_us < waiting.since_us + patience_us);
        if side.lessees.is_empty() {
            side.leasing = false;
            return false;
        }
        let Some(connection) = self.instances[who].connection else {
            self.lease_fails(who, key);
            return false;
        };
        self.give_rest_back(who, key);
        let Some(length) = self.lease_of(who, key) else { return false };
        let side = &mut self.instances[who].sides[key];
        let waiting: u32 = side.lessees.iter().map(|waiting| waiting.party.times).sum();
        let asked = waiting.saturating_add(side.purse.forecast()).clamp(1, CHECKS_MAX);
        let times = asked.min(side.limit.permits().max(1));
        // Who leaves nothing behind: those who wait stay in line, and are told when the call lands.
        let all = Waiting { party: Party { cost: COST, times }, gone: 0, since_us: now_us };
        let asked = self.within_cap(who, key, &[all]);
        self.fly(who, key, connection, Vec::new(), asked, length);
        true
    }

    /// The call that fills the purse has landed.
    pub(super) fn lease_lands(
        &mut self,
        who: usize,
        key: usize,
        flight: &Flight,
        answer: &Receipted,
        (granted, receipt): (u32, Option<Receipt>),
    ) {
        let (now_us, life) = (self.clock_us(who), self.instances[who].life);
        let sent_us = self.instances[who].clock.now_us(flight.sent_us);
        let asked = flight.asked[0].times;
        let side = &mut self.instances[who].sides[key];
        side.leases += 1;
        side.purse.fill(sent_us, flight.lease, granted);
        let short = granted < asked;
        if short {
            side.purse.run_dry(sent_us, flight.lease, None);
        }
        let limit = side.limit;
        side.leased = receipt.map(|receipt| Leased { receipt, limit, beside: answer.beside });
        let (number, end_us) = (side.leases, side.purse.end_us());
        while let Some(waiting) = self.instances[who].sides[key].lessees.front().copied() {
            let by_the_call = waiting.since_us <= flight.sent_us;
            let side = &mut self.instances[who].sides[key];
            let units = waiting.party.times.min(side.purse.left());
            let enough = units == waiting.party.times || short && units > 0;
            if enough && side.purse.spend(if by_the_call { sent_us } else { now_us }, units) {
                let gone = waiting.gone.min(units);
                side.purse.put_back(gone);
                // Who waited before the call was sent is decided by it, at its instant.
                let at_us = if by_the_call { answer.executed_us } else { self.now_us };
                self.figures.leased += u64::from(units - gone);
                self.spend(who, key, at_us, units - gone, answer.beside);
            } else if !(short && (by_the_call || now_us < side.purse.dry_until_us())) {
                break;
            }
            self.instances[who].sides[key].lessees.pop_front();
        }
        let side = &mut self.instances[who].sides[key];
        side.leasing = !side.lessees.is_empty();
        let ends_us = self.now_us + end_us.saturating_sub(now_us);
        self.queue.push(ends_us, Event::LeaseEnds { who, life, key, number });
    }

    /// The call that was to fill the purse failed: so they are told.
    pub(super) fn lease_fails(&mut self, who: usize, key: usize) {
        let side = &mut self.instances[who].sides[key];
        side.leasing = false;
        let waiting: Vec<Waiting> = side.lessees.drain(..).collect();
        self.failed(who, key, &waiting);
    }

    /// A lease has ended.
    pub(super) fn lease_ends(&mut self, who: usize, key: usize, number: u64) {
        if self.instances[who].sides[key].leases == number {
            self.give_rest_back(who, key);
        }
    }

    /// What nobody spent goes back, once.
    pub(super) fn give_rest_back(&mut self, who: usize, key: usize) {
        let side = &mut self.instances[who].sides[key];
        let rest = side.purse.take_out();
        let Some(Leased { receipt, limit, .. }) = side.leased.take() else { return };
        self.give_back(who, key, &limit, Receipt { units: rest.min(receipt.units), ..receipt });
    }

    /// Permits that nobody spends go back, unless the master may not know of them: a receipt of what was lost would take
    /// what others were granted in the same tick.
    pub(super) fn give_back(&mut self, who: usize, key: usize, limit: &Limit, receipt: Receipt) {
        if receipt.units == 0 {
            return;
        }
        let instance = &mut self.instances[who];
        instance.sides[key].grants.give_back(receipt.units);
        let forgotten = instance.roll_call.as_ref().is_some_and(|roll_call| roll_call.lossy);
        if let Some(connection) = instance.connection.filter(|_| !forgotten) {
            self.send(who, connection, Body::Refund { key, limit: *limit, receipt });
        }
    }
}
