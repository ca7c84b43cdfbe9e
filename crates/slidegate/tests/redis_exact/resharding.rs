//! A cluster that moves slots and replaces masters while checks run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use slidegate::core::time::Millis;
use slidegate::store::redis::RedisStore;
use slidegate::{Limiter, Mode, Policy};
use slidegate_testbed::redis::Cluster;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::asking::{
    PATIENCE, RECOVERY, beside, check, config, eventually, keeps_asking, limiter, p99, policy, recovers, used,
};

/// The counter of the policy below.
const COUNTER: &str = "sg:{p}:p:1";

/// How long a check may take; a roll call waits for calls of the old master for as long.
const TIMEOUT: Millis = Millis(2_000);

async fn scene(cluster: &Cluster, limits: &str) -> Limiter<RedisStore> {
    let url = format!("redis-cluster://{}", cluster.addresses());
    limiter(&config(&url, TIMEOUT).denial_cache(false), vec![policy("p", limits)]).await
}

fn ask_from_many(
    limiter: &Limiter<RedisStore>,
    done: &Arc<AtomicBool>,
) -> JoinSet<Vec<(slidegate_testbed::crowd::Record, Mode)>> {
    let start = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..6 {
        let (limiter, done) = (limiter.clone(), done.clone());
        callers.spawn(keeps_asking(limiter, "p", start, move || done.load(Ordering::Relaxed)));
    }
    callers
}

async fn until_busy(limiter: &Limiter<RedisStore>, more: u64) {
    let enough = limiter.store().figures().checks + more;
    let busy = || async { (limiter.store().figures().checks > enough).then_some(()) };
    eventually("load", PATIENCE, busy).await;
}

// R043: MOVED came through to the application.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_slot_moves_every_check_is_decided_and_counted_once() {
    let cluster = Arc::new(beside(Cluster::start).await);
    let limiter = scene(&cluster, "100000/1h").await;
    let done = Arc::new(AtomicBool::new(false));
    let callers = ask_from_many(&limiter, &done);
    until_busy(&limiter, 50).await;
    let moves = cluster.clone();
    beside(move || {
        let slot = moves.slot_of(COUNTER);
        for to in [1, 2, 0, 1, 2, 0] {
            moves.move_slot(slot, &moves.nodes()[to]);
        }
    })
    .await;
    until_busy(&limiter, 50).await;
    done.store(true, Ordering::Relaxed);
    let records = callers.join_all().await.concat();
    assert!(records.iter().all(|(_, mode)| *mode == Mode::Normal), "{:?}", limiter.store().figures());
    let admitted = records.iter().filter(|(record, _)| record.is_admitted()).count();
    assert_eq!(u32::try_from(admitted).unwrap(), used(&limiter, "p", &[]).await);
    println!("{admitted} checks, p99 {:?}", p99(&records));
}

// R032: scripts were known to be loaded for each process, and were forgotten by one node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_forgot_its_scripts_is_sent_them_again() {
    let cluster = beside(Cluster::start).await;
    let url = format!("redis-cluster://{}", cluster.addresses());
    let each = Policy::builder("each").limits("5/1h").key("{client_ip}").build().unwrap();
    let limiter = limiter(&config(&url, Millis(5_000)), vec![each]).await;
    for node in 0..3 {
        cluster.nodes()[node].ask::<()>(&["SCRIPT", "FLUSH"]);
        for key in 0..60_u32 {
            let decision = check(&limiter, "each", &[&key.to_string()]).await;
            assert_eq!((decision.mode(), decision.is_allowed()), (Mode::Normal, true));
        }
    }
    assert_eq!(limiter.store().figures().faults.iter().sum::<u64>(), 0);
    assert_eq!(used(&limiter, "each", &["7"]).await, 3, "each was counted once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_of_a_master_loses_no_count() {
    let cluster = Arc::new(beside(Cluster::start).await);
    let limiter = scene(&cluster, "100000/1h").await;
    let done = Arc::new(AtomicBool::new(false));
    let callers = ask_from_many(&limiter, &done);
    until_busy(&limiter, 50).await;
    let fails_over = cluster.clone();
    beside(move || fails_over.failover(fails_over.slot_of(COUNTER))).await;
    recovers(&limiter, "p", &[], RECOVERY + Duration::from(TIMEOUT)).await;
    done.store(true, Ordering::Relaxed);
    let records = callers.join_all().await.concat();
    let admitted = records.iter().filter(|(record, _)| record.is_admitted()).count();
    let used = usize::try_from(used(&limiter, "p", &[]).await).unwrap();
    let without = records.iter().filter(|(_, mode)| mode.is_degraded()).count();
    println!("{admitted} admitted, {used} counted, {without} without the store, p99 {:?}", p99(&records));
    // One more for the check that saw it recover. A caller whose reply was cut off may have been counted: it is taken
    // back with the instance's next call, but for the last.
    assert!(used >= admitted && used <= admitted + 2, "{admitted} admitted, {used} counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_master_dies_checks_go_on_with_its_replica() {
    let cluster = Arc::new(beside(Cluster::start).await);
    let limiter = scene(&cluster, "100000/1h").await;
    let done = Arc::new(AtomicBool::new(false));
    let callers = ask_from_many(&limiter, &done);
    until_busy(&limiter, 50).await;
    let dies = cluster.clone();
    beside(move || {
        let slot = dies.slot_of(COUNTER);
        let old = dies.master_of(slot);
        old.kill();
        dies.wait_for_other_master(slot, old.port());
        dies.settle();
    })
    .await;
    recovers(&limiter, "p", &[], RECOVERY + Duration::from(TIMEOUT)).await;
    done.store(true, Ordering::Relaxed);
    let records = callers.join_all().await.concat();
    let admitted = records.iter().filter(|(record, _)| record.is_admitted()).count();
    let slowest = records.iter().map(|(record, _)| record.answered_us - record.sent_us).max().unwrap();
    println!("{admitted} admitted, slowest {slowest} us, {:?}", limiter.store().figures());
    assert!(slowest < 3_000_000, "{slowest} us");
    assert!(records.iter().any(|(_, mode)| mode.is_degraded()), "it was away");
}
