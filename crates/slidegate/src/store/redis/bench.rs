//! Calls as this store writes them, for the benchmark of its scripts (feature `test-util`). No interface of the
//! library: it changes with the bytes of `wire`.
//!
//! An [`Instance`] is one of several that share counters, as a server sees it. Each of its calls is taken for
//! granted whole and its reply for received, as ledgers see it: so limits here have to be out of reach.

use std::sync::Arc;

use slidegate_core::check::Terms;
use slidegate_core::decision::Cost;
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_core::time::{Millis, Now};

use super::ledgers::Ledgers;
use super::scripts;
use super::wire::Draft;
use crate::pipeline::batch::{Counted, CounterKey, OwnedCharge, OwnedCheck};

/// The text of the script that decides checks.
#[must_use]
pub fn check_script() -> &'static str {
    &scripts::CHECK.text
}

/// One check of the counters of one policy.
#[derive(Clone, Debug)]
pub struct BenchCheck(Arc<OwnedCheck>);

impl BenchCheck {
    /// Takes `cost` from a counter for each limit, called as given. `exact`: with ledgers, where the algorithm
    /// has them.
    #[must_use]
    pub fn new(counters: &[(String, Limit)], cost: Cost, exact: bool) -> Self {
        let charges = counters.iter().map(|(name, limit)| OwnedCharge {
            key: CounterKey::new(name.as_bytes(), 0),
            limit: *limit,
            cost,
            group: 0,
            terms: Terms::default(),
            exact: exact && matches!(limit.algorithm(), Algorithm::SlidingWindow { .. }),
        });
        Self(Arc::new(OwnedCheck { charges: charges.collect(), reserve: None, probe: false }))
    }
}

/// Who calls.
#[derive(Debug)]
pub struct Instance {
    ledgers: Ledgers,
}

impl Default for Instance {
    fn default() -> Self {
        Self { ledgers: Ledgers::new() }
    }
}

impl Instance {
    /// The keys and arguments of one call that decides each check so many times; at `now`, after which keys live
    /// another hour, or else at the server's time.
    pub fn call(&self, checks: &[(&BenchCheck, u32)], now: Option<Now>) -> (Vec<Arc<[u8]>>, Vec<Vec<u8>>) {
        let counted: Vec<Counted> =
            checks.iter().map(|(check, times)| Counted { check: check.0.clone(), times: *times }).collect();
        let linger = if now.is_some() { Millis(3_600_000) } else { Millis::ZERO };
        let seq = self.ledgers.next_seq();
        let (identity, format) = (self.ledgers.identity(), scripts::FORMAT);
        let draft = Draft { now, seq, format, identity, linger, lease: Millis::ZERO };
        let line =
            |charge: &OwnedCharge| self.ledgers.line(charge.key.shared_name()).filter(|_| charge.exact);
        let call = draft.checks(&counted, line, |_| None);
        for charge in counted.iter().flat_map(|counted| &counted.check.charges) {
            if charge.exact {
                self.ledgers.accept(charge.key.shared_name(), seq, None, charge.limit.window());
            }
        }
        let args = call.args().iter().map(|arg| arg.to_vec()).collect();
        (call.keys, args)
    }
}
