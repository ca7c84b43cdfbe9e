//! A store that is away: what instances admit from their shares, who says so, and that it is over soon, with nothing
//! counted twice.

use std::sync::Arc;
use std::time::Duration;

use slidegate::core::instance::ladder::{Cause, Step, Transition};
use slidegate::core::time::Millis;
use slidegate::error::Fault;
use slidegate::policy::OnStoreFailure;
use slidegate::store::redis::{NodeFigures, OnSlowStore, RedisStore};
use slidegate::testing::FakeClock;
use slidegate::{Limiter, Mode, Policy};
use slidegate_testbed::proxy::{FaultProxy, Way};
use slidegate_testbed::redis::{Cluster, Server};
use tokio::time::{Instant, timeout};

use crate::asking::{PATIENCE, RECOVERY, beside, check, config, eventually, limiter, recovers, used};

const TIMEOUT: Millis = Millis(50);

/// A counter for each client; while the store is away, every instance has its share.
fn sharing(limits: &str) -> Vec<Policy> {
    let policy = Policy::builder("sharing").limits(limits).key("{client_ip}");
    vec![policy.on_store_failure(OnStoreFailure::Local).build().unwrap()]
}

fn node(limiter: &Limiter<RedisStore>) -> NodeFigures {
    limiter.store().nodes().remove(0)
}

async fn stands_at(limiter: &Limiter<RedisStore>, step: Step, within: Duration) {
    let stands = || async { (node(limiter).step == step).then_some(()) };
    eventually(step.name(), within, stands).await;
}

/// Asks about made-up keys until the breaker has tripped.
async fn trips(limiter: &Limiter<RedisStore>) {
    let mut key = 0;
    while node(limiter).step != Step::Failing {
        key += 1;
        let _ = check(limiter, "sharing", &[&format!("trips-{key}")]).await;
        assert!(key < 1_000, "{:?}", node(limiter));
    }
}

/// How many of these checks are allowed, all of them decided here.
async fn allowed_locally(limiter: &Limiter<RedisStore>, key: &str, checks: u32) -> u32 {
    let mut allowed = 0;
    for _ in 0..checks {
        let decision = check(limiter, "sharing", &[key]).await;
        assert_eq!(decision.mode(), Mode::Local);
        allowed += u32::from(decision.is_allowed());
    }
    allowed
}

// R3, R054: with a frozen server each request waited for its timeout, for as long as it was frozen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_trips_the_breaker_and_then_nobody_waits() {
    let server = Arc::new(Server::start());
    let limiter = limiter(&config(&server.url(), TIMEOUT).instances(1), sharing("5/1h")).await;
    recovers(&limiter, "sharing", &["a"], PATIENCE).await;
    server.stop();
    trips(&limiter).await;
    let begun = Instant::now();
    for key in 0..1_000 {
        assert_eq!(check(&limiter, "sharing", &[&key.to_string()]).await.mode(), Mode::Local);
    }
    // One in a hundred of what waiting would take.
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    let figures = limiter.store().figures();
    assert!(figures.failing && figures.allowed_without >= 1_000, "{figures:?}");
    server.cont();
    let returned = Instant::now();
    stands_at(&limiter, Step::Normal, RECOVERY).await;
    println!("back after {:?}", returned.elapsed());
    assert_eq!(check(&limiter, "sharing", &["b"]).await.mode(), Mode::Normal);
    let taken = node(&limiter).transitions;
    for (transition, count) in Transition::ALL.iter().zip(taken) {
        let expected = matches!(transition.cause, Cause::FailuresInARow | Cause::Probes)
            && transition.from != Step::Slow;
        assert_eq!(count, u64::from(expected), "{transition:?}");
    }
}

// 1875 of 1000 were admitted when each instance took its share at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_that_are_cut_off_admit_what_is_left_to_them_and_put_it_back() {
    let server = Arc::new(Server::start());
    let mut instances = Vec::new();
    for _ in 0..2 {
        instances.push(limiter(&config(&server.url(), TIMEOUT), sharing("10/1h")).await);
    }
    let know = || async {
        let counts = instances.iter().map(|limiter| limiter.store().figures().instances);
        counts.eq([2, 2]).then_some(())
    };
    eventually("everybody has heard of everybody", PATIENCE, know).await;
    for limiter in &instances {
        assert_eq!(check(limiter, "sharing", &["known"]).await.mode(), Mode::Normal);
    }
    server.stop();
    let mut fresh = 0;
    for limiter in &instances {
        trips(limiter).await;
        // Each held 1 as the store went away: that is all, for an hour. Denied is 429, with a time to come back.
        assert_eq!(allowed_locally(limiter, "known", 20).await, 0);
        // Of a key that nobody has asked about before, everybody has half.
        fresh += allowed_locally(limiter, "fresh", 20).await;
    }
    assert_eq!(fresh, 10);
    server.cont();
    for limiter in &instances {
        stands_at(limiter, Step::Normal, RECOVERY).await;
        recovers(limiter, "sharing", &["other"], RECOVERY).await;
    }
    // What was granted meanwhile is known to the store, once each has asked it.
    for limiter in instances.iter().chain(&instances) {
        let asked = check(limiter, "sharing", &["fresh"]).await;
        assert!(!asked.is_allowed(), "{asked:?}");
    }
    let told = || async { (used(&instances[0], "sharing", &["fresh"]).await == 10).then_some(()) };
    eventually("both have put back", PATIENCE, told).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_store_a_start_serves_shares_if_it_was_told_of_how_many() {
    let server = Server::start();
    server.kill();
    let start = |instances: Option<u32>| {
        let config = config(&server.url(), TIMEOUT);
        let store = RedisStore::start(&instances.into_iter().fold(config, |config, n| config.instances(n)));
        Limiter::builder().policies(sharing("80/1h")).store(store.unwrap()).build().unwrap()
    };
    let (told, untold) = (start(Some(8)), start(None));
    assert_eq!(allowed_locally(&told, "a", 40).await, 10);
    let denied = check(&untold, "sharing", &["a"]).await;
    assert_eq!((denied.mode(), denied.is_allowed()), (Mode::DenyAll, false));
    assert_eq!(denied.violated().count(), 1);
    server.restart();
    for limiter in [&told, &untold] {
        recovers(limiter, "sharing", &["b"], RECOVERY).await;
    }
    // It is one of eight, whatever is seen.
    server.stop();
    trips(&told).await;
    assert_eq!(allowed_locally(&told, "c", 40).await, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_answers_pings_and_takes_no_writes_stays_failing() {
    let server = Server::start();
    let limiter = limiter(&config(&server.url(), Millis(500)).instances(2), sharing("10/1h")).await;
    recovers(&limiter, "sharing", &["a"], PATIENCE).await;
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    trips(&limiter).await;
    let failed = |fault| {
        let place = Fault::ALL.iter().position(|known| *known == fault).unwrap();
        limiter.store().figures().faults[place]
    };
    let before = failed(Fault::OutOfMemory);
    assert_eq!(allowed_locally(&limiter, "b", 100).await, 5);
    assert_eq!(failed(Fault::OutOfMemory), before + 100, "for each check");
    assert_eq!(node(&limiter).step, Step::Failing);
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    stands_at(&limiter, Step::Normal, RECOVERY).await;
    assert_eq!(node(&limiter).transitions.iter().sum::<u64>(), 2, "{:?}", node(&limiter));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_store_is_left_alone_if_that_was_chosen() {
    let server = Arc::new(Server::start());
    let proxy = FaultProxy::start(&server.address());
    let url = format!("redis://{}", proxy.address());
    let slow = config(&url, Millis(500)).instances(2).on_slow_store(OnSlowStore::Local);
    let limiter = limiter(&slow, sharing("10/1h")).await;
    recovers(&limiter, "sharing", &["a"], PATIENCE).await;
    proxy.delay(Way::Replies, Duration::from_millis(20));
    let asks = || async {
        let _ = check(&limiter, "sharing", &["b"]).await;
        (node(&limiter).step == Step::Slow).then_some(())
    };
    eventually("it is found to be slow", PATIENCE, asks).await;
    let decision = check(&limiter, "sharing", &["c"]).await;
    assert_eq!((decision.mode(), decision.is_allowed()), (Mode::Local, true));
    assert!(!limiter.store().figures().failing);
    proxy.pass();
    // Half a second of fast probes, however busy the machine is.
    stands_at(&limiter, Step::Normal, PATIENCE).await;
    assert_eq!(check(&limiter, "sharing", &["d"]).await.mode(), Mode::Normal);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_only_what_the_lost_node_served_is_decided_here() {
    let cluster = Arc::new(beside(Cluster::start).await);
    for node in cluster.nodes() {
        node.ask::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let url = format!("redis-cluster://{}", cluster.addresses());
    let limiter = limiter(&config(&url, Millis(100)).instances(1), sharing("1000/1h")).await;
    let serves = |key: &str| cluster.master_of(cluster.slot_of(&format!("{{client_ip={key}}}"))).port();
    let lost_port = serves("0");
    let (mut lost, mut kept) = (Vec::new(), Vec::new());
    for key in 0..40 {
        let key = key.to_string();
        if serves(&key) == lost_port { lost.push(key) } else { kept.push(key) }
    }
    for key in lost.iter().chain(&kept) {
        recovers(&limiter, "sharing", &[key], PATIENCE).await;
    }
    let frozen = cluster.nodes().iter().find(|node| node.port() == lost_port).unwrap();
    frozen.stop();
    let local = || async {
        let _ = check(&limiter, "sharing", &[&lost[0]]).await;
        let failing = limiter.store().nodes().into_iter().filter(|node| node.step == Step::Failing);
        (failing.count() == 1).then_some(())
    };
    eventually("one node fails", PATIENCE, local).await;
    for key in &kept {
        recovers(&limiter, "sharing", &[key], PATIENCE).await;
    }
    frozen.cont();
    for key in &lost {
        recovers(&limiter, "sharing", &[key], PATIENCE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_clock_is_wrong_decides_by_itself_until_it_is_right() {
    let server = Arc::new(Server::start());
    let now_us = || -> u64 {
        let [seconds, micros] = server.ask::<[u64; 2]>(&["TIME"]);
        seconds * 1_000_000 + micros
    };
    let clock = Arc::new(FakeClock::default());
    let behind_us = now_us() - slidegate::clock::Clock::now(&*clock).as_micros();
    clock.advance(Duration::from_micros(behind_us));
    let by_client = config(&server.url(), Millis(500))
        .instances(2)
        .client_clock(true)
        .clock(clock.clone(), Millis(1_000));
    let limiter = limiter(&by_client, sharing("10/1h")).await;
    recovers(&limiter, "sharing", &["a"], PATIENCE).await;
    clock.step_back(Duration::from_secs(5));
    // Measured with each new connection.
    server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let local = || async {
        let mode = check(&limiter, "sharing", &["b"]).await.mode();
        (limiter.store().figures().clock_skew_ms < -1_000 && mode == Mode::Local).then_some(())
    };
    timeout(PATIENCE, eventually("the difference is found", PATIENCE, local)).await.unwrap();
    clock.advance(Duration::from_micros(now_us() - slidegate::clock::Clock::now(&*clock).as_micros()));
    server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    recovers(&limiter, "sharing", &["c"], PATIENCE).await;
}
