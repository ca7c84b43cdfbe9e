//! What this instance needs to know to decide without the store: whether its nodes can be asked, which of how many
//! instances it is, and what it was granted.
//!
//! A node is not to be asked while its ladder says that it is failing; while it is slow, if that was chosen; and none is
//! while this machine's clock decides and is wrong.

use slidegate_core::instance::Era;
use slidegate_core::instance::ladder::Step;
use slidegate_core::instance::share::Place;
use slidegate_core::limit::Limit;
use tokio::time::Instant;

use super::calls::Calls;
use super::config::OnSlowStore;
use crate::error::Fault;
use crate::pipeline::batch::{Batch, CounterKey, OwnedCheck};
use crate::pipeline::nodes::{Away, History, Nodes};
use crate::store::Check;

impl Nodes for Calls {
    fn are_troubled(&self) -> bool {
        self.link().conditions().are_troubled() || self.skew().is_too_much()
    }

    fn away(&self, lane: u16) -> Option<Away> {
        if let Some((number, since)) = self.skew().too_much_since() {
            let era = Era { number, began_us: self.micros(since) };
            return Some(Away { era, fault: Some(Fault::ClockSkew) });
        }
        let standing = self.link().standing(lane)?;
        let era = Era { number: standing.era, began_us: self.micros(standing.since) };
        match standing.step {
            Step::Normal => None,
            Step::Slow => {
                (self.on_slow_store() == OnSlowStore::Local).then_some(Away { era, fault: None })
            }
            Step::Failing => Some(Away { era, fault: Some(standing.fault) }),
        }
    }

    fn own(&self, check: &Check<'_>) -> OwnedCheck {
        Batch::own(self, check)
    }

    fn place(&self) -> Option<Place> {
        self.heartbeat().place(self.configured_instances())
    }

    fn history(&self, key: &CounterKey, limit: &Limit, era: Option<Era>, known: u64) -> History {
        let _ = (key, limit, era, known);
        History::default()
    }

    fn granted(&self, key: &CounterKey, limit: &Limit, units: u32) -> u64 {
        let _ = (key, limit, units);
        0
    }

    fn now_us(&self) -> u64 {
        self.micros(Instant::now())
    }
}
