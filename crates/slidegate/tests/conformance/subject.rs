//! What is checked: the counters of one policy for one key, and ways to ask a store about them.

use slidegate::Policy;
use slidegate::core::check::Terms;
use slidegate::core::decision::{Cost, Outcome};
use slidegate::core::key::Key;
use slidegate::core::limit::{Algorithm, Limit};
use slidegate::policy::PolicyBuilder;
use slidegate::store::{Answer, Charge, Check, Counter, ReservationId, Store};

/// A policy and a key.
#[derive(Clone)]
pub(crate) struct Subject {
    policy: Policy,
    key: Key,
}

impl Subject {
    /// A policy `p` with these limits, and a key.
    pub(crate) fn new(limits: &str) -> Self {
        Self::of(Policy::builder("p").limits(limits))
    }

    /// A policy `p` with one limit under an algorithm, and a key.
    pub(crate) fn under(algorithm: Algorithm, limit: &str) -> Self {
        let limit: Limit = limit.parse().unwrap();
        Self::of(Policy::builder("p").limit(None, limit.with_algorithm(algorithm).unwrap()))
    }

    pub(crate) fn of(policy: PolicyBuilder) -> Self {
        let policy = policy.build().unwrap();
        // One for each policy, so that the counters of several lie in several slots of a cluster.
        let key = Key::from_parts([("of", policy.name().as_bytes())]);
        Self { policy, key }
    }

    /// The same policy for another key.
    pub(crate) fn keyed(&self, parts: &[(&str, &[u8])]) -> Self {
        Self { policy: self.policy.clone(), key: Key::from_parts(parts.iter().copied()) }
    }

    pub(crate) fn counter(&self, limit: usize) -> Counter<'_> {
        Counter { policy: &self.policy, key: &self.key, limit: &self.policy.limits()[limit] }
    }

    pub(crate) fn charges(&self, cost: Cost, group: u16) -> impl Iterator<Item = Charge<'_>> {
        let terms = Terms { shadow: self.policy.is_shadow(), count_denied: self.policy.counts_denied() };
        let limits = 0..self.policy.limits().len();
        limits.map(move |limit| Charge { counter: self.counter(limit), cost, group, terms })
    }

    /// One check at a cost.
    pub(crate) async fn check(&self, store: &impl Store, cost: Cost) -> Answer {
        check_all(store, &[(self, cost)]).await
    }

    /// Whether one check at a cost of 1 is allowed.
    pub(crate) async fn allows(&self, store: &impl Store) -> bool {
        self.check(store, 1).await.granted == 1
    }

    /// What a peek says of each limit.
    pub(crate) async fn peek(&self, store: &impl Store) -> Vec<Outcome> {
        self.check(store, 0).await.outcomes.into_vec()
    }

    /// Permits in use under each limit.
    pub(crate) async fn used(&self, store: &impl Store) -> Vec<u32> {
        self.peek(store).await.iter().map(|outcome| outcome.used).collect()
    }

    /// How many of `tries` checks, one after another, are allowed.
    pub(crate) async fn count_allowed(&self, store: &impl Store, tries: u32) -> u32 {
        let mut allowed = 0;
        for _ in 0..tries {
            allowed += self.check(store, 1).await.granted;
        }
        allowed
    }

    /// A reservation, if it is granted.
    pub(crate) async fn reserve(&self, store: &impl Store, cost: Cost) -> Option<ReservationId> {
        reserve_all(store, &[(self, cost)]).await
    }
}

/// One check of several subjects, each a group of its own.
pub(crate) async fn check_all(store: &impl Store, subjects: &[(&Subject, Cost)]) -> Answer {
    ask(store, subjects, 1, None).await
}

/// A reservation over several subjects, if it is granted.
pub(crate) async fn reserve_all(store: &impl Store, subjects: &[(&Subject, Cost)]) -> Option<ReservationId> {
    let id = ReservationId::random();
    (ask(store, subjects, 1, Some(id)).await.granted == 1).then_some(id)
}

/// `times` equal checks of several subjects, each a group of its own.
pub(crate) async fn ask(
    store: &impl Store,
    subjects: &[(&Subject, Cost)],
    times: u32,
    reserve: Option<ReservationId>,
) -> Answer {
    let groups = (0..).zip(subjects);
    let charges: Vec<_> = groups.flat_map(|(group, (subject, cost))| subject.charges(*cost, group)).collect();
    let answer = store.check(&Check { times, charges: &charges, reserve }).await.unwrap();
    assert_eq!(answer.outcomes.len(), charges.len());
    answer
}
