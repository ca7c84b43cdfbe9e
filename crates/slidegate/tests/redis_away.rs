//! What callers see of a real server that freezes, is gone, and comes back.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

use std::time::Duration;

use slidegate::core::time::Millis;
use slidegate::policy::OnStoreFailure;
use slidegate::store::redis::{RedisConfig, RedisStore};
use slidegate::{Limiter, Mode, Policy};
use slidegate_testbed::redis::Server;
use tokio::time::{Instant, interval, timeout};

/// How long a test waits for what must happen, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(20);

async fn limiter(server: &Server, within: Millis) -> Limiter<RedisStore> {
    let config = RedisConfig::parse(&server.url()).unwrap().timeout(within);
    let store = RedisStore::start(&config).unwrap();
    assert!(store.connected(Millis(20_000)).await, "{}", server.log());
    let policy = |name: &str| Policy::builder(name).limits("5/1h").key("{client_ip}");
    let answers = [
        ("denying", OnStoreFailure::Deny),
        ("allowing", OnStoreFailure::Allow),
        ("sharing", OnStoreFailure::Local),
    ];
    let policies = answers.map(|(name, answer)| policy(name).on_store_failure(answer).build().unwrap());
    Limiter::builder().policies(policies).store(store).build().unwrap()
}

async fn mode(limiter: &Limiter<RedisStore>, policy: &str, key: &str) -> Mode {
    limiter.check(policy, &[key]).await.unwrap().mode()
}

/// Asks about a key until the server answers; no key that is used elsewhere.
async fn until_normal(limiter: &Limiter<RedisStore>) {
    let mut ticks = interval(Duration::from_millis(20));
    let answers = async {
        while mode(limiter, "allowing", "returning").await != Mode::Normal {
            ticks.tick().await;
        }
    };
    timeout(PATIENCE, answers).await.unwrap();
}

#[tokio::test]
async fn an_attack_on_one_key_costs_the_server_next_to_nothing() {
    let server = Server::start();
    let limiter = limiter(&server, Millis(5_000)).await;
    let started = Instant::now();
    let mut allowed = 0;
    for _ in 0..5_000 {
        allowed += u32::from(limiter.check("denying", &["203.0.113.7"]).await.unwrap().is_allowed());
    }
    let figures = limiter.store().figures();
    assert_eq!(allowed, 5);
    // One for each that was allowed, one denial, and one more each second.
    let calls = 6 + started.elapsed().as_secs();
    assert!(figures.checks <= calls && figures.cached_denials >= 5_000 - calls, "{figures:?}");
}

// R054, R3: with the server frozen each request waited 1 to 10 seconds.
#[tokio::test]
async fn a_frozen_server_is_waited_for_until_the_deadline_and_no_longer() {
    let server = Server::start();
    let limiter = limiter(&server, Millis(50)).await;
    until_normal(&limiter).await;
    // How many share is known from the first beat on.
    let mut ticks = interval(Duration::from_millis(20));
    let beats = async {
        while limiter.store().figures().instances == 0 {
            ticks.tick().await;
        }
    };
    timeout(PATIENCE, beats).await.unwrap();
    server.stop();
    let answers = [("sharing", Mode::Local), ("denying", Mode::DenyAll), ("allowing", Mode::AllowAll)];
    for (policy, expected) in answers {
        for key in 0..20 {
            let asked = Instant::now();
            let decision = limiter.check(policy, &[&key.to_string()]).await.unwrap();
            assert_eq!(decision.mode(), expected);
            assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
        }
    }
    let figures = limiter.store().figures();
    assert!(figures.failing && figures.denied_without >= 20 && figures.allowed_without >= 20, "{figures:?}");
    server.cont();
    until_normal(&limiter).await;
}

#[tokio::test]
async fn a_server_that_is_gone_is_not_waited_for() {
    let server = Server::start();
    let limiter = limiter(&server, Millis(5_000)).await;
    until_normal(&limiter).await;
    server.kill();
    // Once the connection is known to be gone, no check waits for the deadline.
    let all = async {
        for key in 0..200 {
            assert_eq!(mode(&limiter, "denying", &key.to_string()).await, Mode::DenyAll);
        }
    };
    timeout(PATIENCE, all).await.unwrap();
    assert!(limiter.peek("denying", &["1"]).await.is_err());
    assert!(limiter.reset("denying", &["1"]).await.is_err());
    server.restart();
    until_normal(&limiter).await;
    // Nothing of what was denied is charged now.
    let peek = limiter.peek("denying", &["1"]).await.unwrap();
    assert_eq!(peek.limits().next().unwrap().outcome.used, 0);
}
