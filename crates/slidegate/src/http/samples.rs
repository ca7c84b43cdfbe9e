//! Decisions for tests of what is said about them.

use std::sync::Arc;
use std::time::Duration;

use slidegate_core::decision::Outcome;
use slidegate_core::time::Millis;

use crate::decision::{Decision, Mode, Part};
use crate::testing::FakeClock;
use crate::{Limiter, MemoryStore, Policy};

pub(super) type Clocked = Limiter<MemoryStore<Arc<FakeClock>>>;

/// A limiter of these policies, and the clock that it goes by.
pub(super) fn limiter(policies: impl IntoIterator<Item = Policy>) -> (Arc<FakeClock>, Clocked) {
    let clock = Arc::new(FakeClock::default());
    // Small, since property tests make many.
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build();
    let limiter = Limiter::builder().policies(policies).store(store).build().unwrap();
    (clock, limiter)
}

/// A policy of one key for everybody.
pub(super) fn policy(name: &str, limits: &str) -> Policy {
    Policy::builder(name).limits(limits).build().unwrap()
}

/// A decision that a store might come to, without the store.
pub(super) fn decision(mode: Mode, parts: impl IntoIterator<Item = (Policy, Vec<Outcome>)>) -> Decision {
    let parts = parts.into_iter().map(|(policy, outcomes)| Part {
        policy: Arc::new(Arc::new(policy)),
        set: 0,
        outcomes: outcomes.into(),
    });
    let parts: smallvec::SmallVec<[Part; 1]> = parts.collect();
    let denied = parts
        .iter()
        .filter(|part| !part.policy.is_shadow())
        .flat_map(|part| &part.outcomes)
        .any(|outcome| outcome.violated);
    Decision::new(!denied, mode, parts)
}

/// An outcome that lets a check pass.
pub(super) fn passed(limit: u32, used: u32, reset_ms: u64) -> Outcome {
    Outcome {
        limit,
        used,
        remaining: limit.saturating_sub(used),
        reset_after: Millis(reset_ms),
        ..Outcome::default()
    }
}

/// An outcome that denies one until `retry_ms` are over; `None`: for ever.
pub(super) fn denied(limit: u32, used: u32, reset_ms: u64, retry_ms: Option<u64>) -> Outcome {
    Outcome { violated: true, retry_after: retry_ms.map(Millis), ..passed(limit, used, reset_ms) }
}

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
