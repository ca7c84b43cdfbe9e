//! What the resilient stage asks of what lies below: whether there is anybody to ask, and what this instance needs to
//! know to decide by itself.
//!
//! Instants are microseconds on the instance's own clock, which never steps ([`Nodes::now_us`]).

use std::time::Duration;

use slidegate_core::instance::Era;
use slidegate_core::instance::share::Place;
use slidegate_core::limit::Limit;

use super::batch::{CounterKey, OwnedCheck};
use crate::error::Fault;
use crate::store::Check;

/// The nodes of a shared store, and this instance among those that share it.
pub(crate) trait Nodes: Send + Sync + 'static {
    /// Whether [`away`](Self::away) may say anything, of any lane. Asked for each check, so no more than a few loads.
    fn are_troubled(&self) -> bool;

    /// Whether checks of a lane are to be decided without the store, and since when.
    fn away(&self, lane: u16) -> Option<Away>;

    /// How long the node of a lane takes to answer, if it is slow and permits are to be leased for it.
    fn slow_round_trip(&self, lane: u16) -> Option<Duration>;

    /// A check was not decided that needed this lane's node, although it was held to be well: the era in which the check
    /// is answered. It is the same one until a call is answered. `None`: nobody serves the lane.
    fn doubt(&self, lane: u16) -> Option<Era>;

    /// The check in the store's terms.
    fn own(&self, check: &Check<'_>) -> OwnedCheck;

    /// The instance's place among all; `None` if it does not know how many there are.
    fn place(&self) -> Option<Place>;

    /// What the instance was granted of a counter, `known` being the newest grant that the caller knows of (0: none).
    /// Without an era, what it holds is what it holds now.
    fn history(&self, key: &CounterKey, limit: &Limit, era: Option<Era>, known: u64) -> History;

    /// Takes note of a grant that the instance made by itself in this era, so that the store learns of it later.
    /// What it held when the era began is known without it. Returns the
    /// grant's number, or 0 if there is no room to remember it.
    fn granted(&self, key: &CounterKey, limit: &Limit, era: Option<Era>, units: u32) -> u64;

    /// The instance's clock.
    fn now_us(&self) -> u64;
}

/// A node that is not to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Away {
    /// Since it isn't.
    pub(crate) era: Era,
    /// What it failed with; `None` if it is slow.
    pub(crate) fault: Option<Fault>,
}

/// What an instance knows of its grants of a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// The number of the newest; 0 if there is none, or none are kept.
    pub(crate) newest: u64,
    /// What it held in the window when the era began; `None`: nothing.
    pub(crate) held_when: Option<u32>,
    /// All of them in the window, the oldest first, if the newest is another than the caller knows: when they were
    /// spent at the latest, and how many.
    pub(crate) grants: Option<Vec<(u64, u32)>>,
}
