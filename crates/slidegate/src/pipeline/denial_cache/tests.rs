//! The stage over a memory store, both on tokio's clock, which stands still until a test moves it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slidegate_core::time::Now;

use super::*;
use crate::clock::Clock;
use crate::policy::{Policy, PolicyBuilder};
use crate::{Ask, Decision, Limiter, MemoryStore};

mod bounds;
mod promises;

/// Tokio's clock as a store's.
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Now {
        Now::from_micros(1_767_225_600_000_000 + u64::try_from(self.0.elapsed().as_micros()).unwrap())
    }
}

/// A store at some distance, that counts what it is asked.
struct Far {
    inner: MemoryStore<TokioClock>,
    calls: AtomicU32,
}

impl Far {
    fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Store for Far {
    async fn check(&self, check: &Check<'_>) -> Result<Answer, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.inner.check(check).await
    }

    async fn settle(&self, id: ReservationId, actual: Cost) -> Result<Settled, StoreError> {
        self.inner.settle(id, actual).await
    }

    async fn reset(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        self.inner.reset(counter).await
    }
}

type Cached = DenialCache<Arc<Far>>;

/// A store, and how instances in front of it are made.
fn store() -> Arc<Far> {
    let inner = MemoryStore::builder().max_keys(100_000).clock(TokioClock(Instant::now())).build();
    Arc::new(Far { inner, calls: AtomicU32::new(0) })
}

fn policy(name: &str, limits: &str) -> PolicyBuilder {
    Policy::builder(name).limits(limits).key("{client_ip}")
}

/// An instance with a cache of its own.
fn instance<const N: usize>(store: &Arc<Far>, policies: [PolicyBuilder; N]) -> Limiter<Arc<Cached>> {
    limiter(&Arc::new(DenialCache::new(store.clone(), true)), policies)
}

fn limiter<const N: usize>(cache: &Arc<Cached>, policies: [PolicyBuilder; N]) -> Limiter<Arc<Cached>> {
    let policies = policies.map(|policy| policy.build().unwrap());
    Limiter::builder().policies(policies).store(cache.clone()).build().unwrap()
}

async fn ask<S: Store>(limiter: &Limiter<S>, policy: &str, cost: Cost) -> Decision {
    limiter.check_all(&[Ask::new(policy, &["203.0.113.7"]).cost(cost)]).await.unwrap()
}

async fn pass(ms: u64) {
    tokio::time::advance(Duration::from_millis(ms)).await;
}

fn mode_and_wait(decision: &Decision) -> (Mode, Option<u64>) {
    (decision.mode(), decision.retry_after().map(Millis::get))
}

#[tokio::test(start_paused = true)]
async fn an_attack_on_one_key_costs_one_call_for_each_bound() {
    let (store, limits) = (store(), "5/1m");
    let limiter = instance(&store, [policy("p", limits)]);
    let mut allowed = 0;
    for _ in 0..10_000 {
        allowed += u32::from(ask(&limiter, "p", 1).await.is_allowed());
    }
    assert_eq!((allowed, store.calls()), (5, 6));
    assert_eq!(limiter.store().figures(), DenialFigures { hits: 9_994, remembered: 1, entries: 1 });
    for second in 1..=10 {
        pass(BOUND.get()).await;
        for _ in 0..100 {
            assert!(!ask(&limiter, "p", 1).await.is_allowed());
        }
        assert_eq!(store.calls(), 6 + second);
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_counts_down_and_who_waits_passes() {
    let store = store();
    let limiter = instance(&store, [policy("p", "2/300ms")]);
    assert!(ask(&limiter, "p", 2).await.is_allowed());
    pass(100).await;
    assert_eq!(mode_and_wait(&ask(&limiter, "p", 1).await), (Mode::Normal, Some(200)));
    pass(50).await;
    let denied = ask(&limiter, "p", 1).await;
    let (mode, wait) = mode_and_wait(&denied);
    assert_eq!((mode, denied.violated().count()), (Mode::Cached, 1));
    // Counted from the end of the microsecond in which the store had answered.
    assert_eq!(wait, Some(151));
    let outcome = denied.limits().next().unwrap().outcome;
    assert_eq!((outcome.limit, outcome.used, outcome.remaining), (2, 2, 0));
    assert_eq!(outcome.reset_after, Millis(151));
    pass(wait.unwrap()).await;
    assert!(ask(&limiter, "p", 1).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn the_last_millisecond_is_the_stores_own() {
    let store = store();
    let limiter = instance(&store, [policy("p", "1/300ms")]);
    assert!(ask(&limiter, "p", 1).await.is_allowed());
    assert!(!ask(&limiter, "p", 1).await.is_allowed());
    pass(298).await;
    assert_eq!(ask(&limiter, "p", 1).await.mode(), Mode::Cached);
    pass(1).await;
    assert_eq!(mode_and_wait(&ask(&limiter, "p", 1).await), (Mode::Normal, Some(1)));
    pass(1).await;
    assert!(ask(&limiter, "p", 1).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_smaller_cost_is_asked_for_and_each_larger_one_once() {
    let store = store();
    let limiter = instance(&store, [policy("p", "10/1m")]);
    assert!(ask(&limiter, "p", 8).await.is_allowed());
    pass(10).await;
    assert!(!ask(&limiter, "p", 5).await.is_allowed());
    for cost in [7, 9] {
        assert_eq!(ask(&limiter, "p", cost).await.mode(), Mode::Normal);
        assert_eq!(ask(&limiter, "p", cost).await.mode(), Mode::Cached);
    }
    assert!(ask(&limiter, "p", 1).await.is_allowed());
    // What it took makes the others' waits longer: they are told anew.
    assert_eq!(mode_and_wait(&ask(&limiter, "p", 10).await), (Mode::Normal, Some(60_000)));
    assert_eq!(mode_and_wait(&ask(&limiter, "p", 9).await), (Mode::Normal, Some(59_990)));
}

#[tokio::test(start_paused = true)]
async fn costs_without_end_are_denied_by_their_neighbours() {
    let store = store();
    let limiter = instance(&store, [policy("p", "1000/1m")]);
    assert!(ask(&limiter, "p", 1000).await.is_allowed());
    for cost in [1000, 10, 500, 100] {
        assert_eq!(ask(&limiter, "p", cost).await.mode(), Mode::Normal);
    }
    let calls = store.calls();
    for cost in 10..=1000 {
        assert_eq!(ask(&limiter, "p", cost).await.mode(), Mode::Cached, "{cost}");
    }
    assert_eq!(store.calls(), calls);
    assert_eq!(ask(&limiter, "p", 9).await.mode(), Mode::Normal);
}

#[tokio::test(start_paused = true)]
async fn what_asking_again_would_change_is_asked_again() {
    let store = store();
    let penal = policy("penal", "1/1m").count_denied(true);
    let limiter = instance(&store, [penal, policy("watched", "1/1m").shadow(true), policy("p", "1/1m")]);
    for name in ["penal", "watched", "p"] {
        let _ = ask(&limiter, name, 1).await;
        let calls = store.calls();
        let modes = [ask(&limiter, name, 1).await.mode(), ask(&limiter, name, 1).await.mode()];
        let peek = ask(&limiter, name, 0).await.mode();
        let repeated = if name == "p" { Mode::Cached } else { Mode::Normal };
        assert_eq!((modes, peek), ([Mode::Normal, repeated], Mode::Normal), "{name}");
        assert_eq!(store.calls() - calls, if name == "p" { 2 } else { 3 });
    }
    // A policy that counts denied requests must see those of a check with others, too.
    let both = [Ask::new("penal", &["203.0.113.8"]), Ask::new("p", &["203.0.113.8"])];
    for _ in 0..5 {
        assert_eq!(limiter.check_all(&both).await.unwrap().mode(), Mode::Normal);
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_zero_is_repeated_without_a_wait() {
    let store = store();
    let limiter = instance(&store, [policy("p", "0/1m")]);
    assert_eq!(mode_and_wait(&ask(&limiter, "p", 1).await), (Mode::Normal, None));
    assert_eq!(mode_and_wait(&ask(&limiter, "p", 1).await), (Mode::Cached, None));
    pass(BOUND.get()).await;
    assert_eq!(ask(&limiter, "p", 1).await.mode(), Mode::Normal);
}

#[tokio::test(start_paused = true)]
async fn keys_policies_and_combinations_have_denials_of_their_own() {
    let store = store();
    let limiter = instance(&store, [policy("p", "1/1m"), policy("q", "9/1m")]);
    for _ in 0..2 {
        let _ = ask(&limiter, "p", 1).await;
    }
    assert_eq!(ask(&limiter, "p", 1).await.mode(), Mode::Cached);
    assert!(limiter.check("p", &["203.0.113.8"]).await.unwrap().is_allowed());
    assert!(ask(&limiter, "q", 1).await.is_allowed());
    let both = [Ask::new("q", &["203.0.113.7"]), Ask::new("p", &["203.0.113.7"])];
    let modes = [(); 2].map(|()| ready(limiter.check_all(&both)).unwrap().mode());
    assert_eq!(modes, [Mode::Normal, Mode::Cached]);
    let decision = limiter.check_all(&both).await.unwrap();
    let told: Vec<_> = decision.limits().map(|state| (state.outcome.violated, state.outcome.used)).collect();
    assert_eq!(told, [(false, 1), (true, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_limit_is_another_limit() {
    let store = store();
    let cache = Arc::new(DenialCache::new(store.clone(), true));
    let before = limiter(&cache, [policy("p", "1/1m")]);
    for _ in 0..3 {
        let _ = ask(&before, "p", 1).await;
    }
    assert_eq!(cache.figures().hits, 1);
    let watching = limiter(&cache, [policy("p", "1/1m").shadow(true)]);
    assert!(ask(&watching, "p", 1).await.is_allowed());
    assert!(ask(&limiter(&cache, [policy("p", "2/1m")]), "p", 1).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_reset_through_this_instance_is_known_at_once() {
    let store = store();
    let (here, there) = (instance(&store, [policy("p", "1/1m")]), instance(&store, [policy("p", "1/1m")]));
    let full = || async {
        pass(1).await;
        let _ = ask(&here, "p", 1).await;
        assert!(!ask(&here, "p", 1).await.is_allowed());
        assert_eq!(ask(&here, "p", 1).await.mode(), Mode::Cached);
    };
    full().await;
    here.reset("p", &["203.0.113.7"]).await.unwrap();
    full().await;
    assert_eq!(store.calls(), 4);
    // Through another one it is not, for as long as the bound says and no longer.
    there.reset("p", &["203.0.113.7"]).await.unwrap();
    pass(BOUND.get() - 1).await;
    assert_eq!(ask(&here, "p", 1).await.mode(), Mode::Cached);
    pass(1).await;
    assert!(ask(&here, "p", 1).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_denial_that_was_on_its_way_during_a_reset_is_void() {
    let memory = Memory::new();
    let policy = policy("p", "1/1m").build().unwrap();
    let key = slidegate_core::key::Key::EMPTY;
    let counter = Counter { policy: &policy, key: &key, limit: &policy.limits()[0] };
    let charges = [crate::store::Charge { counter, cost: 1, group: 0, terms: policy.terms() }];
    let question =
        |asked_us| Question { name: memory.naming.of_check(&charges), charges: &charges, asked_us };
    let outcome = slidegate_core::decision::Outcome {
        violated: true,
        retry_after: Some(Millis(60_000)),
        ..Default::default()
    };
    let outcomes = [outcome].into_iter().collect();
    let denial = Answer { granted: 0, outcomes, mode: Mode::Normal, certainty: Certainty::Exact };
    memory.learn(&question(1_000), false, &denial, 3_000);
    assert!(matches!(memory.find(&question(4_000)), Found::Denied(_)));
    memory.returns.reset(memory.naming.of_counter(&counter).place, 5_000);
    assert!(matches!(memory.find(&question(5_001)), Found::Nothing));
    memory.learn(&question(4_999), false, &denial, 7_000);
    assert!(matches!(memory.find(&question(7_001)), Found::Nothing));
    memory.learn(&question(5_001), false, &denial, 7_000);
    assert!(matches!(memory.find(&question(7_001)), Found::Denied(_)));
}

/// In a cluster: refused because of a check that was refused itself, and is giving back what it took.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_may_pass_is_not_repeated() {
    let memory = Memory::new();
    let policy = policy("p", "1/1m").build().unwrap();
    let key = slidegate_core::key::Key::EMPTY;
    let counter = Counter { policy: &policy, key: &key, limit: &policy.limits()[0] };
    let charges = [crate::store::Charge { counter, cost: 1, group: 0, terms: policy.terms() }];
    let question =
        |asked_us| Question { name: memory.naming.of_check(&charges), charges: &charges, asked_us };
    let retry_after = Some(Millis(60_000));
    let outcome = slidegate_core::decision::Outcome { violated: true, retry_after, ..Default::default() };
    for certainty in [Certainty::Passing, Certainty::Unconfirmed, Certainty::Exact] {
        let outcomes = [outcome].into_iter().collect();
        let denial = Answer { granted: 0, outcomes, mode: Mode::Normal, certainty };
        memory.learn(&question(1_000), false, &denial, 3_000);
        let repeated = matches!(memory.find(&question(4_000)), Found::Denied(_));
        assert_eq!(repeated, certainty == Certainty::Exact);
    }
}

#[tokio::test(start_paused = true)]
async fn policies_that_reserve_are_held_to_the_short_bound() {
    let store = store();
    let (here, there) = (instance(&store, [policy("p", "9/1m")]), instance(&store, [policy("p", "9/1m")]));
    let asks = [Ask::new("p", &["203.0.113.7"]).cost(9)];
    let (_, reservation) = there.reserve(&asks).await.unwrap();
    pass(1).await;
    // This instance has not seen it reserve: the long bound.
    for mode in [Mode::Normal, Mode::Cached] {
        assert_eq!(ask(&here, "p", 9).await.mode(), mode);
    }
    pass(BOUND_RETURNING.get()).await;
    assert_eq!(ask(&here, "p", 9).await.mode(), Mode::Cached);
    // Now it does, so that denial is void.
    let (denied, none) = here.reserve(&asks).await.unwrap();
    assert!(none.is_none() && denied.mode() == Mode::Normal);
    pass(1).await;
    for mode in [Mode::Normal, Mode::Cached] {
        assert_eq!(here.reserve(&asks).await.unwrap().0.mode(), mode);
    }
    // Given back through the other one: noticed after the short bound.
    let _ = reservation.unwrap().refund().await.unwrap();
    pass(BOUND_RETURNING.get() - 1).await;
    assert_eq!(ask(&here, "p", 9).await.mode(), Mode::Cached);
    pass(1).await;
    assert!(ask(&here, "p", 9).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn what_is_settled_through_this_instance_is_known_at_once() {
    let store = store();
    let (here, there) = (instance(&store, [policy("p", "9/1m")]), instance(&store, [policy("p", "9/1m")]));
    let asks = [Ask::new("p", &["203.0.113.7"]).cost(9)];
    for by in [&here, &there] {
        // Made by this instance or by another: it is settled through this one.
        let (_, reservation) = by.reserve(&asks).await.unwrap();
        let id = reservation.unwrap().into_id().unwrap();
        pass(1).await;
        let _ = here.reserve(&asks).await.unwrap();
        assert_eq!(ask(&here, "p", 9).await.mode(), Mode::Cached);
        let settled = here.commit(id, 0).await.unwrap();
        assert_eq!(settled, Settled::Done { given_back: 9, charged: 0 });
        assert!(ask(&here, "p", 9).await.is_allowed());
        here.reset("p", &["203.0.113.7"]).await.unwrap();
        pass(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_counters_did_not_decide_is_not_repeated() {
    let store = MemoryStore::builder().max_keys(1).clock(TokioClock(Instant::now())).build();
    let cache = Arc::new(DenialCache::new(store, true));
    let policy = policy("p", "1/1m").build().unwrap();
    let limiter = Limiter::builder().policy(policy).store(cache.clone()).build().unwrap();
    for _ in 0..2 {
        let _ = limiter.check("p", &["203.0.113.7"]).await.unwrap();
    }
    let remembered = cache.figures().remembered;
    for _ in 0..3 {
        assert_eq!(limiter.check("p", &["203.0.113.8"]).await.unwrap().mode(), Mode::Full);
    }
    assert_eq!(cache.figures().remembered, remembered);
}

#[tokio::test(start_paused = true)]
async fn switched_off_it_passes_everything_on() {
    let store = store();
    let limiter = limiter(&Arc::new(DenialCache::new(store.clone(), false)), [policy("p", "1/1m")]);
    for _ in 0..10 {
        assert_eq!(ask(&limiter, "p", 1).await.mode(), Mode::Normal);
    }
    let (_, reservation) = limiter.reserve(&[Ask::new("p", &["203.0.113.8"])]).await.unwrap();
    let _ = reservation.unwrap().commit(0).await.unwrap();
    limiter.reset("p", &["203.0.113.7"]).await.unwrap();
    assert_eq!(limiter.store().inner().calls(), 11);
    assert_eq!(limiter.store().figures(), DenialFigures::default());
}

/// Polls a future that is ready at once.
fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("nothing here waits"),
    }
}
