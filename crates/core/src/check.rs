//! One check over several counters: all or nothing.
//!
//! [`decide`] is the model of what a store does atomically under its lock or in its script. It is given the
//! counters that a check names and leaves them charged, or exactly as they were.
//!
//! A check may stand for `times` equal ones that wait together; it is then granted g of them, first come
//! first served, as if they had been decided one after another at the same instant.
//!
//! ```
//! use slidegate_core::algorithm::State;
//! use slidegate_core::check::{Charge, Terms, decide};
//! use slidegate_core::limit::parse_limit;
//! use slidegate_core::time::Now;
//!
//! let (user, everybody) = (parse_limit("3/s")?, parse_limit("100/m")?);
//! let (mut of_user, mut of_all) = (State::new(&user, 0), State::new(&everybody, 0));
//! let mut charges = [
//!     Charge::new(&mut of_user, &user, 1, 0, Terms::default()),
//!     Charge::new(&mut of_all, &everybody, 1, 1, Terms::default()),
//! ];
//! // Five requests of one user at once: three pass, and only those count for everybody.
//! assert_eq!(decide(Now::from_millis(1_000), 5, &mut charges), 3);
//! assert!(charges[0].outcome.violated && !charges[1].outcome.violated);
//! assert_eq!(charges[1].outcome.remaining, 97);
//! # Ok::<(), slidegate_core::limit::ParseLimitError>(())
//! ```

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
/// * A refused check leaves every counter as it was, but for policies that refused it and count that. A cost
///   that can never pass is the caller's mistake: it is not even counted.
#[inline]
pub fn decide(now: Now, times: u32, charges: &mut [Charge<'_>]) -> u32 {
    for charge in &mut *charges {
        charge.state.settle(now, charge.limit);
        charge.room = charge.state.room(charge.limit, charge.cost).min(times);
    }
    let granted = common_room(charges, times, |charge| !charge.terms.shadow);
    for index in 0..charges.len() {
        let group = charges[index].group;
        let concerns = |charge: &Charge<'_>| charge.group == group;
        let room = common_room(charges, times, concerns);
        let never = charges.iter().any(|charge| charge.never() && (concerns(charge) || !charge.terms.shadow));
        charges[index].settle(now, times, granted, Group { room, counts_denied: !never });
    }
    granted
}

/// How many of `times` checks the chosen counters all have room for.
#[inline]
fn common_room(charges: &[Charge<'_>], times: u32, chosen: impl Fn(&Charge<'_>) -> bool) -> u32 {
    charges.iter().filter(|charge| chosen(charge)).map(|charge| charge.room).fold(times, u32::min)
}

/// What the counters of one policy come to together.
#[derive(Clone, Copy)]
struct Group {
    /// How many of the checks all of them have room for.
    room: u32,
    /// Whether its refusals may be counted at all.
    counts_denied: bool,
}

impl Charge<'_> {
    /// Whether this cost can't pass, whatever is in use. A limit of 0 is no mistake: it denies.
    fn never(&self) -> bool {
        self.limit.permits() > 0 && self.cost > self.limit.capacity()
    }

    /// Takes this counter's part of the decision and fills in what the caller is told.
    #[inline]
    fn settle(&mut self, now: Now, times: u32, granted: u32, group: Group) {
        let taken = granted.min(group.room);
        // Of checks decided one after another, the first `granted` pass. The group refuses those after its
        // room is spent; room that is left when the others refuse stays, so then it refuses none.
        let refuses = group.room < times && group.room <= granted;
        let delay = if taken > 0 { self.state.delay(now, self.limit) } else { Millis::ZERO };
        let units = taken.saturating_mul(self.cost);
        if units > 0 {
            self.receipt = Some(self.state.charge(now, self.limit, units));
        }
        if refuses && self.terms.count_denied && group.counts_denied {
            let penalty = (times - taken).saturating_mul(self.cost);
            self.state.charge(now, self.limit, penalty);
        }
        let refused = refuses && self.room == group.room;
        self.outcome = Outcome { delay, ..self.state.outcome(now, self.limit, self.cost, refused) };
    }
}

#[cfg(test)]
mod tests;
