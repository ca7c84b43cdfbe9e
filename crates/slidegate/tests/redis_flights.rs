//! Many callers of one instance on a real server: they share calls, and nobody's answer changes by it.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

use std::pin::pin;
use std::time::Duration;

use slidegate::core::time::Millis;
use slidegate::store::redis::{RedisConfig, RedisStore};
use slidegate::{Ask, Limiter, Mode, Policy};
use slidegate_testbed::redis::{Cluster, Server};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

/// How long a test waits for what must happen, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(20);

/// A limiter whose every check reaches the server.
async fn limiter(url: &str) -> Limiter<RedisStore> {
    let config = RedisConfig::parse(url).unwrap().timeout(Millis(20_000)).denial_cache(false);
    let store = RedisStore::start(&config).unwrap();
    assert!(store.connected(Millis(20_000)).await);
    let policies = [
        Policy::builder("hot").limits("700/1h").build().unwrap(),
        Policy::builder("user").limits("5/1h").key("{client_ip}").build().unwrap(),
    ];
    Limiter::builder().policies(policies).store(store).build().unwrap()
}

// P3, R062: requests for one key timed out at 600 a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_one_key_share_calls_and_exactly_the_limit_passes() {
    let server = Server::start();
    let limiter = limiter(&server.url()).await;
    let mut callers = JoinSet::new();
    for _ in 0..256 {
        let limiter = limiter.clone();
        callers.spawn(async move {
            let mut allowed = Vec::new();
            for _ in 0..20 {
                let decision = limiter.check("hot", &[]).await.unwrap();
                assert_eq!(decision.mode(), Mode::Normal);
                let used = decision.limits().next().unwrap().outcome.used;
                if decision.is_allowed() {
                    allowed.push(used);
                }
            }
            allowed
        });
    }
    let mut turns: Vec<u32> = callers.join_all().await.concat();
    turns.sort_unstable();
    // Each of those that passed was told a turn of its own.
    assert_eq!(turns, (1..=700).collect::<Vec<u32>>());
    let figures = limiter.store().figures();
    assert!(figures.checks == 256 * 20 && figures.checks >= 20 * figures.calls, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_callers_who_went_away_were_granted_is_given_back() {
    let server = Server::start();
    let limiter = limiter(&server.url()).await;
    let mut callers = JoinSet::new();
    for caller in 0..64_usize {
        let limiter = limiter.clone();
        callers.spawn(async move {
            let key = (caller % 40).to_string();
            let key = [&*key];
            let asks = [Ask::new("user", &key), Ask::new("hot", &[])];
            let mut asking = pin!(limiter.check_all(&asks));
            // Every other one goes away: in the queue, in flight, or with the answer at the door.
            for _ in 0..caller {
                let told =
                    std::future::poll_fn(|context| std::task::Poll::Ready(asking.as_mut().poll(context)));
                if let std::task::Poll::Ready(decision) = told.await {
                    return u32::from(decision.unwrap().is_allowed());
                }
                yield_now().await;
            }
            if caller % 2 == 0 { 0 } else { u32::from(asking.await.unwrap().is_allowed()) }
        });
    }
    let told: u32 = callers.join_all().await.iter().sum();
    let used = async || {
        let decision = limiter.peek("hot", &[]).await.unwrap();
        decision.limits().next().unwrap().outcome.used
    };
    let all_back = async {
        while used().await != told {
            yield_now().await;
        }
    };
    assert!(timeout(PATIENCE, all_back).await.is_ok(), "{told} were told, {} are charged", used().await);
    assert_eq!(limiter.store().figures().unconfirmed, 0);
}

/// Counters of one check in several slots: of each caller, and of all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_of_several_slots_stay_all_or_nothing_and_never_pass_a_limit() {
    let cluster = Cluster::start();
    let limiter = limiter(&format!("redis-cluster://{}", cluster.addresses())).await;
    let mut callers = JoinSet::new();
    for caller in 0..400_u32 {
        let limiter = limiter.clone();
        callers.spawn(async move {
            let key = (caller % 150).to_string();
            let key = [&*key];
            // 150 users of 5 permits each ask for more than the 700 that there are for all of them.
            let asks = [Ask::new("hot", &[]).cost(2), Ask::new("user", &key).cost(2)];
            let decision = limiter.check_all(&asks).await.unwrap();
            assert_eq!(decision.mode(), Mode::Normal);
            if decision.is_allowed() { 2 } else { 0 }
        });
    }
    let told: u32 = callers.join_all().await.iter().sum();
    let used = async |policy: &str, key: &[&str]| {
        let decision = limiter.peek(policy, key).await.unwrap();
        decision.limits().next().unwrap().outcome.used
    };
    let mut of_users = 0;
    for user in 0..150_u32 {
        let of_user = used("user", &[&user.to_string()]).await;
        assert!(of_user <= 4, "two of 2 fit into 5, not three");
        of_users += of_user;
    }
    assert_eq!((used("hot", &[]).await, of_users), (told, told));
    let figures = limiter.store().figures();
    assert!(told <= 700 && figures.scattered == 400 && figures.unconfirmed == 0, "{figures:?}");
    assert!(told >= 500, "{told}: who was refused late made few others be refused");
}
