//! Limiters on real servers, and ways to ask them.

use std::future::Future;
use std::time::Duration;

use slidegate::core::instance::ladder::Thresholds;
use slidegate::core::time::Millis;
use slidegate::error::Fault;
use slidegate::policy::OnStoreFailure;
use slidegate::store::redis::{OnSlowStore, RedisConfig, RedisStore};
use slidegate::{Decision, Limiter, Mode, Policy};
use slidegate_testbed::crowd::{Answer, Record, Told};
use slidegate_testbed::redis::{Sentinels, Server};
use tokio::time::{Instant, interval};

/// How long a test waits for what is not measured, on a machine that does much else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// R4: after a fault has ended, checks are decided again within this time.
pub(crate) const RECOVERY: Duration = Duration::from_secs(2);

/// Between two looks at what is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A store that is slow stays as it is: on a machine that does much else, all of them are now and then, and leases have
/// tests of their own.
pub(crate) fn config(url: &str, timeout: Millis) -> RedisConfig {
    RedisConfig::parse(url).unwrap().timeout(timeout).on_slow_store(OnSlowStore::None)
}

/// The same, but no breaker keeps checks from the store, whatever fails.
pub(crate) fn config_without_breaker(url: &str, timeout: Millis) -> RedisConfig {
    let never = Thresholds { failures: u32::MAX, calls_min: u32::MAX, ..Thresholds::default() };
    config(url, timeout).ladder(never)
}

/// A limiter that has connected.
pub(crate) async fn limiter(config: &RedisConfig, policies: Vec<Policy>) -> Limiter<RedisStore> {
    let store = RedisStore::start(config).unwrap();
    assert!(store.connected(Millis(30_000)).await, "no connection: {config:?}");
    Limiter::builder().policies(policies).store(store).build().unwrap()
}

/// A policy of one counter that all share, and which denies without the store.
pub(crate) fn policy(name: &str, limits: &str) -> Policy {
    Policy::builder(name).limits(limits).on_store_failure(OnStoreFailure::Deny).build().unwrap()
}

/// Policies of a counter for each client: `denying` and `allowing` without the store.
pub(crate) fn denying_and_allowing() -> Vec<Policy> {
    let policy = |name| Policy::builder(name).limits("5/1h").key("{client_ip}");
    let both = [("denying", OnStoreFailure::Deny), ("allowing", OnStoreFailure::Allow)];
    both.map(|(name, answer)| policy(name).on_store_failure(answer).build().unwrap()).into()
}

pub(crate) async fn check(limiter: &Limiter<RedisStore>, policy: &str, key: &[&str]) -> Decision {
    limiter.check(policy, key).await.unwrap()
}

/// Permits in use, by the store's own word.
pub(crate) async fn used(limiter: &Limiter<RedisStore>, policy: &str, key: &[&str]) -> u32 {
    limiter.peek(policy, key).await.unwrap().limits().next().unwrap().outcome.used
}

/// How often checks have failed so.
pub(crate) fn faults(limiter: &Limiter<RedisStore>, fault: Fault) -> u64 {
    let place = Fault::ALL.iter().position(|known| *known == fault).unwrap();
    limiter.store().figures().faults[place]
}

/// Looks until there is something; `within` is what is promised, so it fails after that.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> F,
) -> T {
    let end = Instant::now() + within;
    let mut looks = interval(LOOK_EVERY);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within {within:?}");
        looks.tick().await;
    }
}

/// Asks until the store decides again, and nobody has anything left to put back: until then an instance is granted no
/// more than it held.
pub(crate) async fn recovers(limiter: &Limiter<RedisStore>, policy: &str, key: &[&str], within: Duration) {
    let end = Instant::now() + within;
    let decides = || async {
        let figures = limiter.store().figures();
        assert!(Instant::now() < end, "checks are not decided again within {within:?}: {figures:?}");
        // What is asked in a roll call would use up the limit of the test.
        let exact = !figures.in_roll_call && !check(limiter, policy, key).await.mode().is_degraded();
        (exact && !limiter.store().figures().in_roll_call).then_some(())
    };
    eventually("checks are decided again", within + PATIENCE, decides).await;
}

/// Runs what blocks (the test bed's commands) beside the runtime.
pub(crate) async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

pub(crate) fn sentinel_url(sentinels: &Sentinels) -> String {
    let addresses: Vec<String> = sentinels.sentinels().iter().map(Server::address).collect();
    format!("redis-sentinel://{}/{}", addresses.join(","), Sentinels::NAME)
}

/// One caller that asks again and again, until told to stop; what it was answered, and when.
pub(crate) async fn keeps_asking(
    limiter: Limiter<RedisStore>,
    policy: &'static str,
    start: Instant,
    until: impl Fn() -> bool,
) -> Vec<(Record, Mode)> {
    let mut records = Vec::new();
    // Each for itself: callers must not be in phase with each other or with the server's clock.
    let mut pace = interval(Duration::from_micros(1_900));
    while !until() {
        pace.tick().await;
        let sent_us = micros(start);
        let decision = check(&limiter, policy, &[]).await;
        let answered_us = micros(start);
        // Without the store nobody counted: that one is not an admission of the limiter's.
        let admitted = decision.is_allowed() && !decision.mode().is_degraded();
        let answer = if admitted { Answer::Allowed } else { Answer::Denied };
        let (intended_us, told) = (sent_us, Told::Nothing);
        let record = Record { instance: 0, intended_us, sent_us, answered_us, answer, told, tries: 1 };
        records.push((record, decision.mode()));
    }
    records
}

pub(crate) fn micros(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap()
}

/// The time that all but one in a hundred of these were answered in.
pub(crate) fn p99(records: &[(Record, Mode)]) -> Duration {
    let mut times: Vec<u64> = records.iter().map(|(record, _)| record.answered_us - record.sent_us).collect();
    times.sort_unstable();
    Duration::from_micros(times.get(times.len() * 99 / 100).copied().unwrap_or_default())
}
