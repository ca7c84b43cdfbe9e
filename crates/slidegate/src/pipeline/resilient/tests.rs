//! The stage over stores that fail in every way, on tokio's clock, which moves by itself when all wait.

use std::future::pending;

use parking_lot::Mutex;

use super::*;
use crate::http::{AnswerOptions, answer, fields};
use crate::metrics::Verdict;
use crate::policy::PolicyBuilder;
use crate::{Ask, CheckError, Decision, Limiter, MemoryStore};

mod peers;
mod sharing;

use peers::Peers;

const TIMEOUT: Duration = Duration::from_millis(10);

/// What the store does when it is asked.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// Decides.
    Answer,
    /// Says what is wrong.
    Fail(Fault),
    /// Does not say whether it was done.
    Lose(Fault),
    /// Takes no more reservations.
    Refuse,
    /// Never answers.
    Stall,
    /// Answers after so many milliseconds.
    Late(u64),
}

/// A store that can be broken at will.
struct Brittle {
    does: Mutex<Does>,
    inner: MemoryStore,
}

impl Brittle {
    async fn or<T>(&self, answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let does = *self.does.lock();
        match does {
            Does::Answer => {}
            Does::Fail(fault) => return Err(StoreError::Unavailable { fault }),
            Does::Lose(fault) => return Err(StoreError::Lost { fault }),
            Does::Refuse => return Err(StoreError::ReservationsFull { most: 7 }),
            Does::Stall => pending().await,
            Does::Late(ms) => _ = tokio::time::timeout(Duration::from_millis(ms), pending::<()>()).await,
        }
        answer.await
    }
}

impl Store for Brittle {
    async fn check(&self, check: &Check<'_>) -> Result<Answer, StoreError> {
        self.or(self.inner.check(check)).await
    }

    async fn settle(&self, id: ReservationId, actual: Cost) -> Result<Settled, StoreError> {
        self.or(self.inner.settle(id, actual)).await
    }

    async fn reset(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        self.or(self.inner.reset(counter)).await
    }
}

type Guarded = Limiter<Resilient<Brittle, Peers>>;

fn limiter(policies: impl IntoIterator<Item = PolicyBuilder>) -> Guarded {
    limiter_among(Peers::new(), policies)
}

fn limiter_among(peers: Arc<Peers>, policies: impl IntoIterator<Item = PolicyBuilder>) -> Guarded {
    let inner = MemoryStore::builder().max_keys(1_000).build();
    let store = Resilient::new(Brittle { does: Mutex::new(Does::Answer), inner }, peers, TIMEOUT);
    let policies = policies.into_iter().map(|policy| policy.build().unwrap());
    Limiter::builder().policies(policies).store(store).build().unwrap()
}

fn breaks(limiter: &Guarded, does: Does) {
    *limiter.store().inner().does.lock() = does;
}

fn allowing() -> PolicyBuilder {
    Policy::builder("allowing").limits("5/1m; 100/1h").on_store_failure(OnStoreFailure::Allow)
}

fn denying() -> PolicyBuilder {
    Policy::builder("denying").limits("5/1m; 100/1h").on_store_failure(OnStoreFailure::Deny)
}

fn watching() -> PolicyBuilder {
    Policy::builder("watching").limits("5/1m").shadow(true)
}

async fn ask(limiter: &Guarded, policies: &[&str]) -> Decision {
    let asks: Vec<_> = policies.iter().map(|name| Ask::new(name, &[])).collect();
    limiter.check_all(&asks).await.unwrap()
}

/// What is counted of a policy in a mode: allowed, denied, shadow denied, not charged.
fn counted(limiter: &Guarded, policy: &str, mode: Mode) -> [u64; 4] {
    let metrics = limiter.metrics().find(|metrics| &**metrics.policy().name() == policy).unwrap();
    Verdict::ALL.map(|verdict| metrics.decisions(verdict, mode))
}

#[tokio::test(start_paused = true)]
async fn a_store_in_time_is_not_touched() {
    let limiter = limiter([denying()]);
    for does in [Does::Answer, Does::Late(9)] {
        breaks(&limiter, does);
        assert_eq!(ask(&limiter, &["denying"]).await.mode(), Mode::Normal);
    }
    assert_eq!(limiter.store().figures(), ResilientFigures::default());
}

// R054: with the store down each request waited 1 to 10 seconds.
#[tokio::test(start_paused = true)]
async fn a_silent_store_is_waited_for_until_the_deadline_and_no_longer() {
    let limiter = limiter([allowing(), denying()]);
    for does in [Does::Stall, Does::Late(11), Does::Late(10_000)] {
        breaks(&limiter, does);
        for (policy, mode) in [("allowing", Mode::AllowAll), ("denying", Mode::DenyAll)] {
            let asked = Instant::now();
            let decision = ask(&limiter, &[policy]).await;
            assert_eq!(asked.elapsed(), TIMEOUT, "{does:?}");
            assert_eq!((decision.mode(), decision.is_allowed()), (mode, mode == Mode::AllowAll));
        }
    }
    let figures = limiter.store().figures();
    assert_eq!((figures.allowed, figures.denied), (3, 3));
    assert_eq!(figures.faults[Fault::Timeout as usize], 6);
}

// R3: nothing waits behind a store that is black: a thousand at once take as long as one, and nothing of
// them is left.
#[tokio::test(start_paused = true)]
async fn many_checks_at_once_share_no_queue_here() {
    let limiter = limiter([denying()]);
    breaks(&limiter, Does::Stall);
    let asked = Instant::now();
    let checks: Vec<_> = (0..1_000)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { ask(&limiter, &["denying"]).await.mode() })
        })
        .collect();
    for check in checks {
        assert_eq!(check.await.unwrap(), Mode::DenyAll);
    }
    // The timer counts whole milliseconds.
    assert!(asked.elapsed() <= TIMEOUT + Duration::from_millis(1));
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn every_fault_is_answered_at_once_as_the_policy_says_and_counted() {
    let limiter = limiter([allowing(), denying()]);
    for fault in Fault::ALL {
        for does in [Does::Fail(fault), Does::Lose(fault)] {
            breaks(&limiter, does);
            let asked = Instant::now();
            assert_eq!(ask(&limiter, &["allowing"]).await.mode(), Mode::AllowAll);
            assert_eq!(ask(&limiter, &["denying"]).await.mode(), Mode::DenyAll);
            assert_eq!(asked.elapsed(), Duration::ZERO);
        }
    }
    let figures = limiter.store().figures();
    assert_eq!(figures.faults, [4; Fault::ALL.len()]);
    let each = 2 * Fault::ALL.len() as u64;
    assert_eq!((figures.failing, figures.allowed, figures.denied), (true, each, each));
}

#[tokio::test(start_paused = true)]
async fn one_enforced_policy_that_denies_is_enough_and_shadow_ones_have_no_say() {
    let limiter = limiter([allowing(), denying(), watching()]);
    breaks(&limiter, Does::Fail(Fault::Disconnected));
    for (policies, allowed) in [
        (&["allowing"][..], true),
        (&["denying"], false),
        (&["watching"], true),
        (&["allowing", "watching"], true),
        (&["allowing", "denying"], false),
        (&["watching", "denying"], false),
    ] {
        let decision = ask(&limiter, policies).await;
        assert_eq!(decision.is_allowed(), allowed, "{policies:?}");
        assert!(!decision.is_shadow_denied());
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_that_nobody_counted() {
    let limiter = limiter([allowing(), denying()]);
    breaks(&limiter, Does::Fail(Fault::Disconnected));
    for policies in [&["allowing"][..], &["allowing", "denying"]] {
        let decision = ask(&limiter, policies).await;
        for state in decision.limits() {
            let limit = state.limit.capacity();
            let violated = &**state.policy.name() == "denying";
            assert_eq!(*state.outcome, Outcome { limit, violated, ..Outcome::default() });
        }
        assert_eq!((decision.retry_after(), decision.delay().get()), (None, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn decisions_without_the_store_are_counted_as_what_they_were() {
    let limiter = limiter([allowing(), denying(), watching()]);
    breaks(&limiter, Does::Fail(Fault::ReadOnly));
    let _ = ask(&limiter, &["allowing", "watching"]).await;
    let _ = ask(&limiter, &["allowing", "denying", "watching"]).await;
    assert_eq!(counted(&limiter, "allowing", Mode::AllowAll), [1, 0, 0, 0]);
    assert_eq!(counted(&limiter, "watching", Mode::AllowAll), [1, 0, 0, 0]);
    assert_eq!(counted(&limiter, "allowing", Mode::DenyAll), [0, 0, 0, 1]);
    assert_eq!(counted(&limiter, "denying", Mode::DenyAll), [0, 1, 0, 0]);
    assert_eq!(counted(&limiter, "watching", Mode::DenyAll), [0, 0, 0, 1]);
    for policy in ["allowing", "denying", "watching"] {
        assert_eq!(counted(&limiter, policy, Mode::Normal), [0; 4]);
    }
}

// R049: with the store away clients were told `X-RateLimit-Remaining: -1`.
#[tokio::test(start_paused = true)]
async fn allowed_without_the_store_is_told_without_numbers() {
    let limiter = limiter([allowing()]);
    breaks(&limiter, Does::Stall);
    let decision = ask(&limiter, &["allowing"]).await;
    let options = AnswerOptions { legacy: crate::http::Legacy::Delta, mode: true };
    let mut headers = http::HeaderMap::new();
    fields::apply(&decision, options, 0, &mut headers);
    assert_eq!(headers["ratelimit-policy"], r#""allowing-1";q=5;w=60, "allowing-2";q=100;w=3600"#);
    assert_eq!(headers["slidegate-mode"], "allow_all");
    assert_eq!(headers.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn denied_without_the_store_is_503_and_names_who_denied() {
    let limiter = limiter([allowing(), denying(), watching()]);
    breaks(&limiter, Does::Lose(Fault::OutOfMemory));
    let decision = ask(&limiter, &["allowing", "denying", "watching"]).await;
    let answer = answer::denied(&decision, AnswerOptions::default(), 0, None);
    assert_eq!(answer.status(), 503);
    let body: serde_json::Value = serde_json::from_str(answer.body()).unwrap();
    assert!(body["type"].as_str().unwrap().ends_with("#temporary-reduced-capacity"));
    assert_eq!(body["violated-policies"], serde_json::json!(["denying-1", "denying-2"]));
    for absent in ["ratelimit", "retry-after"] {
        assert_eq!(answer.headers().get(absent), None, "{absent}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_asks_for_numbers_gets_an_error() {
    let limiter = limiter([allowing()]);
    let (_, reservation) = limiter.reserve(&[Ask::new("allowing", &[])]).await.unwrap();
    let id = reservation.unwrap().into_id().unwrap();
    for (does, fault) in [(Does::Fail(Fault::Loading), Fault::Loading), (Does::Stall, Fault::Timeout)] {
        breaks(&limiter, does);
        let asked = Instant::now();
        let peek = limiter.peek("allowing", &[]).await;
        let reset = limiter.reset("allowing", &[]).await;
        let settled = limiter.commit(id, 1).await;
        for error in [peek.map(drop), reset, settled.map(drop).map_err(CheckError::from)] {
            assert!(
                matches!(error, Err(CheckError::Store(ref error)) if error.fault() == Some(fault)),
                "{error:?}"
            );
        }
        assert!(asked.elapsed() <= 3 * TIMEOUT);
    }
    breaks(&limiter, Does::Answer);
    assert_eq!(limiter.commit(id, 1).await.unwrap(), Settled::Done { given_back: 0, charged: 0 });
}

#[tokio::test(start_paused = true)]
async fn a_store_full_of_reservations_is_not_away() {
    let limiter = limiter([allowing()]);
    breaks(&limiter, Does::Refuse);
    let refused = limiter.reserve(&[Ask::new("allowing", &[])]).await;
    assert!(matches!(refused, Err(CheckError::Store(StoreError::ReservationsFull { most: 7 }))));
    assert_eq!(limiter.store().figures(), ResilientFigures::default());
}

#[tokio::test(start_paused = true)]
async fn what_is_reserved_without_the_store_cannot_be_settled() {
    let limiter = limiter([allowing(), denying()]);
    breaks(&limiter, Does::Fail(Fault::Disconnected));
    let (decision, reservation) = limiter.reserve(&[Ask::new("allowing", &[]).cost(3)]).await.unwrap();
    assert_eq!((decision.mode(), decision.is_allowed()), (Mode::AllowAll, true));
    let (_, none) = limiter.reserve(&[Ask::new("denying", &[])]).await.unwrap();
    assert!(none.is_none());
    breaks(&limiter, Does::Answer);
    assert_eq!(reservation.unwrap().commit(2).await.unwrap(), Settled::Unknown);
    let peek = limiter.peek("allowing", &[]).await.unwrap();
    assert_eq!(peek.limits().next().unwrap().outcome.used, 0);
}

#[tokio::test(start_paused = true)]
async fn it_is_failing_until_calls_were_answered_for_a_while() {
    let limiter = limiter([allowing()]);
    breaks(&limiter, Does::Fail(Fault::Disconnected));
    let _ = ask(&limiter, &["allowing"]).await;
    breaks(&limiter, Does::Answer);
    // Decisions are exact from the first answer on; the log waits.
    assert_eq!(ask(&limiter, &["allowing"]).await.mode(), Mode::Normal);
    assert!(limiter.store().figures().failing);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(ask(&limiter, &["allowing"]).await.mode(), Mode::Normal);
    assert!(!limiter.store().figures().failing);
}

#[tokio::test(start_paused = true)]
async fn the_log_has_one_line_for_each_change() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let limiter = limiter([allowing()]);
    for _ in 0..2 {
        breaks(&limiter, Does::Fail(Fault::MasterDown));
        for _ in 0..100 {
            let _ = ask(&limiter, &["allowing"]).await;
        }
        breaks(&limiter, Does::Answer);
        tokio::time::advance(Duration::from_secs(2)).await;
        for _ in 0..100 {
            let _ = ask(&limiter, &["allowing"]).await;
        }
    }
    let lines = log.0.lock().clone();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[0].contains("master_down") && lines[0].contains("the store fails"), "{lines:?}");
    assert!(lines[1].contains("failed_for_ms=2000") && lines[1].contains("allowed_without=100"), "{lines:?}");
}

/// Keeps every event as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("slidegate")
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            line += &format!("{field}={value:?} ");
        });
        self.0.lock().push(line);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
