//! One check over several counters: all or nothing.
//!
//! [`decide`] is the model of what a store does atomically under its lock or in its script. It is given the
//! counters that a check names and leaves them charged, or exactly as they were.
//!
//! A check may stand for `times` equal ones that wait together; it is then granted g of them, first come
//! first served, as if they had been decided one after another at the same instant.

use crate::algorithm::{Receipt, State};
use crate::decision::{Cost, Outcome};
use crate::limit::Limit;
use crate::time::{Millis, Now};

/// One counter of a check, and what it came to.
#[derive(Debug)]
pub struct Charge<'a> {
    /// The counter.
    pub state: &'a mut State,
    /// The limit that it is held to.
    pub limit: &'a Limit,
    /// What one check takes.
    pub cost: Cost,
    /// Counters of one policy share a group.
    pub group: u16,
    /// What the group's refusal means.
    pub terms: Terms,
    /// Filled by [`decide`].
    pub outcome: Outcome,
    /// Filled by [`decide`]: what was taken, for a refund.
    pub receipt: Option<Receipt>,
    /// How many checks this counter had room for.
    room: u32,
}

/// How a policy takes part in a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Terms {
    /// Decides and counts as if alone, and never denies anybody.
    pub shadow: bool,
    /// A check that this policy refuses is charged all the same, as a penalty.
    pub count_denied: bool,
}

impl<'a> Charge<'a> {
    /// A charge that has not been decided.
    pub fn new(state: &'a mut State, limit: &'a Limit, cost: Cost, group: u16, terms: Terms) -> Self {
        Self { state, limit, cost, group, terms, outcome: Outcome::default(), receipt: None, room: 0 }
    }
}

/// Decides `times` equal checks at once and returns how many are granted.
///
/// * Enforced limits are charged for what is granted, or not at all.
/// * A shadow policy is charged for as many of the granted checks as it would have let pass itself, so that
///   its count is that of the same policy enforced; it holds nobody back.
/// * A refused check leaves every counter as it was, but for policies that refused it and count that.
pub fn decide(now: Now, times: u32, charges: &mut [Charge<'_>]) -> u32 {
    for charge in &mut *charges {
        charge.state.settle(now, charge.limit);
        charge.room = charge.state.room(charge.limit, charge.cost).min(times);
    }
    let granted = common_room(charges, times, |charge| !charge.terms.shadow);
    for index in 0..charges.len() {
        let group = charges[index].group;
        let group_room = common_room(charges, times, |charge| charge.group == group);
        charges[index].settle(now, times, granted, group_room);
    }
    granted
}

/// How many of `times` checks the chosen counters all have room for.
fn common_room(charges: &[Charge<'_>], times: u32, chosen: impl Fn(&Charge<'_>) -> bool) -> u32 {
    charges.iter().filter(|charge| chosen(charge)).map(|charge| charge.room).fold(times, u32::min)
}

impl Charge<'_> {
    /// Takes this counter's part of the decision and fills in what the caller is told.
    fn settle(&mut self, now: Now, times: u32, granted: u32, group_room: u32) {
        let taken = if self.terms.shadow { granted.min(group_room) } else { granted };
        let group_refuses = group_room < times && (self.terms.shadow || group_room == granted);
        let delay = if taken > 0 { self.state.delay(now, self.limit) } else { Millis::ZERO };
        if taken > 0 && self.cost > 0 {
            self.receipt = Some(self.state.charge(now, self.limit, taken.saturating_mul(self.cost)));
        }
        if group_refuses && self.terms.count_denied {
            self.state.charge(now, self.limit, (times - taken).saturating_mul(self.cost));
        }
        let refused = group_refuses && self.room == group_room;
        self.outcome = Outcome { delay, ..self.state.outcome(now, self.limit, self.cost, refused) };
    }
}

#[cfg(test)]
mod tests;
