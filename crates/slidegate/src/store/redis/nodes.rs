//! What this instance needs to know to decide without the store: whether its nodes can be asked, which of how many
//! instances it is, and what it was granted.
//!
//! A node is not to be asked while its ladder says that it is failing; while it is slow, if that was chosen; and none is
//! while this machine's clock decides and is wrong.

use std::time::Duration;

use slidegate_core::instance::Era;
use slidegate_core::instance::ladder::Step;
use slidegate_core::instance::share::Place;
use slidegate_core::limit::Limit;

use super::calls::Calls;
use super::config::OnSlowStore;
use super::link::ConditionFigures;
use crate::error::Fault;
use crate::pipeline::batch::{Batch, CounterKey, OwnedCheck};
use crate::pipeline::nodes::{Away, History, Nodes};
use crate::store::Check;

impl Calls {
    /// How each node does.
    pub(super) fn condition_figures(&self) -> Vec<(String, ConditionFigures)> {
        self.link.condition_figures()
    }

    /// This machine's clock less the server's, in milliseconds: 0 where the server's decides.
    pub(super) fn skew_ms(&self) -> i64 {
        self.skew.ms()
    }
}

impl Nodes for Calls {
    fn are_troubled(&self) -> bool {
        self.link.conditions().are_troubled() || self.skew.is_too_much()
    }

    fn away(&self, lane: u16) -> Option<Away> {
        if let Some(era) = self.skew.too_much_since() {
            return Some(Away { era, fault: Some(Fault::ClockSkew) });
        }
        let standing = self.link.standing(lane)?;
        let fault = (standing.step == Step::Failing).then_some(standing.fault);
        standing.away.map(|era| Away { era, fault })
    }

    fn doubt(&self, lane: u16) -> Option<Era> {
        self.link.doubt(lane)
    }

    fn own(&self, check: &Check<'_>) -> OwnedCheck {
        Batch::own(self, check)
    }

    fn slow_round_trip(&self, lane: u16) -> Option<Duration> {
        if self.on_slow_store != OnSlowStore::Lease {
            return None;
        }
        let standing = self.link.standing(lane).filter(|standing| standing.step == Step::Slow)?;
        Some(standing.round_trip)
    }

    fn place(&self) -> Option<Place> {
        self.heartbeat.place(self.instances)
    }

    fn history(&self, key: &CounterKey, limit: &Limit, era: Option<Era>, known: u64) -> History {
        self.ledgers.history(key.shared_name(), limit, era, known)
    }

    fn granted(&self, key: &CounterKey, limit: &Limit, era: Option<Era>, units: u32) -> u64 {
        self.link.masters().granted();
        self.ledgers.grant_locally(key.shared_name(), limit, era, units)
    }

    fn now_us(&self) -> u64 {
        self.link.masters().time().now_us()
    }
}
