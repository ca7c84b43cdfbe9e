//! Calls as this store writes them, for the benchmark of its scripts (feature `test-util`). No interface of the
//! library: it changes with the bytes of `wire`.
//!
//! An [`Instance`] is one of several that share counters, as a server sees it. Each of its calls is taken for
//! granted whole before its reply is read, so that many can be under way: so limits here have to be out of reach.

use std::sync::Arc;

use slidegate_core::check::Terms;
use slidegate_core::decision::Cost;
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_core::time::{Millis, Now};

use super::ledgers::{Accepted, Ledgers, Said};
use super::link::OwnTime;
use super::scripts;
use super::wire::{Draft, read_checks};
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
        Self(Arc::new(OwnedCheck {
            charges: charges.collect(),
            reserve: None,
            probe: false,
            lease: Millis::ZERO,
        }))
    }
}

/// A call.
#[derive(Debug)]
pub struct Sent {
    /// KEYS of the script.
    pub keys: Vec<Arc<[u8]>>,
    /// Its ARGV.
    pub args: Vec<Vec<u8>>,
    checks: Vec<Counted>,
    seq: u64,
}

/// Who calls.
#[derive(Debug)]
pub struct Instance {
    ledgers: Ledgers,
}

impl Default for Instance {
    fn default() -> Self {
        Self { ledgers: Ledgers::new(OwnTime::begin()) }
    }
}

impl Instance {
    /// One call that decides each check so many times; at `now`, after which keys live another hour, or else at the
    /// server's time.
    pub fn call(&self, checks: &[(&BenchCheck, u32)], now: Option<Now>) -> Sent {
        let checks: Vec<Counted> =
            checks.iter().map(|(check, times)| Counted { check: check.0.clone(), times: *times }).collect();
        let linger = if now.is_some() { Millis(3_600_000) } else { Millis::ZERO };
        let seq = self.ledgers.next_seq();
        let (identity, format) = (self.ledgers.identity(), scripts::FORMAT);
        let draft = Draft { now, seq, format, identity, linger };
        let line =
            |charge: &OwnedCharge| self.ledgers.line(charge.key.shared_name()).filter(|_| charge.exact);
        let call = draft.checks(&checks, line, |_| None);
        for counted in &checks {
            for charge in &counted.check.charges {
                let long = line(charge).is_some_and(|line| line.long);
                let units = charge.cost.saturating_mul(counted.times);
                self.accept(charge, seq, units, Said { reset_epoch: None, long });
            }
        }
        let args = call.args().iter().map(|arg| arg.to_vec()).collect();
        Sent { keys: call.keys, args, checks, seq }
    }

    /// Reads the reply to a call. Whether scripts/plain/ decided it all; `None`: some of it was not granted whole.
    pub fn received(&self, sent: &Sent, reply: &[u8]) -> Option<bool> {
        let told = read_checks(reply, &sent.checks)?;
        let mut plain = true;
        for (counted, told) in sent.checks.iter().zip(told) {
            let told = told.ok().filter(|told| told.decided.answer.granted == counted.times)?;
            plain &= told.reset_epochs.iter().all(Option::is_none);
            for (charge, reset_epoch) in counted.check.charges.iter().zip(&told.reset_epochs) {
                self.accept(charge, sent.seq, 0, Said { reset_epoch: *reset_epoch, long: told.long });
            }
        }
        Some(plain)
    }

    fn accept(&self, charge: &OwnedCharge, seq: u64, units: u32, said: Said) {
        if charge.exact {
            let accepted = Accepted { seq, units, lease: Millis::ZERO };
            self.ledgers.accept(charge.key.shared_name(), &charge.limit, accepted, said);
        }
    }
}
