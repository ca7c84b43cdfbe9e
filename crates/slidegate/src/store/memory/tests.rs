//! The bounds of the memory store, and the ways in which its slots could be mixed up. What every store must
//! do is in `tests/conformance`.

use std::sync::Arc;
use std::time::Duration;

use slidegate_core::check::Terms;
use slidegate_core::key::Key;

use super::*;
use crate::policy::{NamedLimit, Policy};
use crate::store::Charge;
use crate::testing::FakeClock;

mod bounds;
mod clock;
mod slots;

type FakeStore = MemoryStore<Arc<FakeClock>>;

fn store(max_keys: usize) -> (Arc<FakeClock>, FakeStore) {
    let clock = Arc::new(FakeClock::default());
    let store = MemoryStore::builder().max_keys(max_keys).clock(clock.clone()).build();
    (clock, store)
}

fn policy(limits: &str) -> Policy {
    Policy::builder("p").limits(limits).key("{client_ip}").build().unwrap()
}

fn key(value: &str) -> Key {
    Key::from_parts([("client_ip", value.as_bytes())])
}

fn charge<'a>(policy: &'a Policy, key: &'a Key, limit: &'a NamedLimit, cost: Cost) -> Charge<'a> {
    let terms = Terms { shadow: policy.is_shadow(), count_denied: policy.counts_denied() };
    Charge { counter: Counter { policy, key, limit }, cost, group: 0, terms }
}

/// Checks all limits of a policy for one key.
fn check(store: &FakeStore, policy: &Policy, value: &str, cost: Cost) -> Answer {
    try_check(store, policy, value, cost, None).unwrap()
}

fn try_check(
    store: &FakeStore,
    policy: &Policy,
    value: &str,
    cost: Cost,
    reserve: Option<ReservationId>,
) -> Result<Answer, StoreError> {
    let key = key(value);
    let charges: Vec<_> = policy.limits().iter().map(|limit| charge(policy, &key, limit, cost)).collect();
    store.check_now(&Check { times: 1, charges: &charges, reserve })
}

fn allows(store: &FakeStore, policy: &Policy, value: &str) -> bool {
    check(store, policy, value, 1).granted == 1
}

/// Permits in use under each limit of the policy, without charging.
fn used(store: &FakeStore, policy: &Policy, value: &str) -> Vec<u32> {
    check(store, policy, value, 0).outcomes.iter().map(|outcome| outcome.used).collect()
}
