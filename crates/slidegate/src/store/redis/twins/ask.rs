//! Short ways to ask a [`Desk`].

use std::sync::Arc;

use ::redis::RedisResult;
use slidegate_core::algorithm::Receipt;
use slidegate_core::check::Terms;
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_core::time::{Millis, Now};

use super::desk::{Desk, LINGER};
use crate::pipeline::batch::{Counted, CounterKey, OwnedCharge, OwnedCheck};
use crate::store::redis::scripts::{CHECK, FORMAT, RESET, SETTLE};
use crate::store::redis::wire;
use crate::store::redis::wire::{Draft, Reply, Settle, read_checks, read_settled};

/// Some Wednesday, in microseconds.
pub(super) const BEGIN_US: u64 = 1_700_000_000_123_457;

/// One limit of every algorithm.
pub(super) fn every_algorithm(permits: u64, window: u64) -> [Limit; 5] {
    let limit = Limit::new(permits, Millis(window)).unwrap();
    let burst = u32::try_from(permits.max(1)).unwrap();
    [
        Algorithm::SLIDING_WINDOW,
        Algorithm::SlidingLog,
        Algorithm::FixedWindow,
        Algorithm::TokenBucket { burst },
        Algorithm::LeakyBucket { max_delay: Millis(window) },
    ]
    .map(|algorithm| limit.with_algorithm(algorithm).unwrap())
}

/// A call at an instant, of an instance that keeps no ledger.
pub(super) fn at(now_us: u64, seq: u64) -> Draft {
    Draft { now: Some(Now::from_micros(now_us)), seq, format: FORMAT, identity: *b"instance", linger: LINGER }
}

/// A call at the server's own time.
pub(super) fn by_server(seq: u64) -> Draft {
    Draft { now: None, linger: Millis::ZERO, ..at(0, seq) }
}

/// A check of counters, each of its own policy.
pub(super) fn check_of(charges: &[(&[u8], Limit, u32)], times: u32) -> Counted {
    let charges = charges.iter().zip(0..).map(|((key, limit, cost), group)| OwnedCharge {
        key: CounterKey::new(*key, 0),
        limit: *limit,
        cost: *cost,
        group,
        terms: Terms::default(),
        exact: false,
    });
    let check = OwnedCheck { charges: charges.collect(), reserve: None, probe: false, lease: Millis::ZERO };
    Counted { check: Arc::new(check), times }
}

pub(super) fn one(key: &[u8], limit: Limit, cost: u32) -> Counted {
    check_of(&[(key, limit, cost)], 1)
}

/// How many were granted; `None`: not decided.
pub(super) fn granted(reply: &Reply) -> Option<u32> {
    match reply {
        Ok(wire::Told { decided, .. }) => Some(decided.answer.granted),
        Err(_) => None,
    }
}

impl Desk {
    pub(super) fn checks(&self, draft: &Draft, checks: &[Counted]) -> RedisResult<Vec<Reply>> {
        let reply = self.run(&CHECK, &draft.checks(checks, |_| None, |_| None))?;
        Ok(read_checks(&reply, checks).expect("a reply"))
    }

    /// How many of one check were granted.
    #[track_caller]
    pub(super) fn granted(&self, draft: &Draft, check: Counted) -> u32 {
        granted(&self.checks(draft, &[check]).unwrap()[0]).expect("a decision")
    }

    /// What was given back and charged.
    pub(super) fn settle(
        &self,
        draft: &Draft,
        key: &[u8],
        limit: Limit,
        receipt: Receipt,
        (give_back, charge): (u32, u32),
    ) -> RedisResult<(u32, u32)> {
        let part = Settle { key: Arc::from(key), limit, receipt, give_back, charge };
        let reply = self.run(&SETTLE, &draft.settle(&[part]))?;
        Ok(read_settled(&reply, 1).expect("a reply")[0])
    }

    pub(super) fn reset(&self, draft: &Draft, key: &[u8], limit: &Limit) -> RedisResult<()> {
        self.run(&RESET, &draft.reset(Arc::from(key), limit)).map(drop)
    }
}
