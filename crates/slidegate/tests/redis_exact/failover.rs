//! A master that is replaced, under Sentinel, while checks run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use slidegate::core::time::Millis;
use slidegate::store::redis::RedisStore;
use slidegate::{Limiter, Mode};
use slidegate_testbed::crowd::{Record, largest_window};
use slidegate_testbed::redis::Sentinels;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::asking::{
    PATIENCE, beside, check, config, eventually, keeps_asking, limiter, p99, policy, recovers, sentinel_url,
    used,
};

const LIMIT: u32 = 100;
const WINDOW: Duration = Duration::from_millis(500);
const CALLERS: usize = 4;

type Records = Vec<(Record, Mode)>;

/// Callers who ask at about ten times the limit.
struct Load {
    done: Arc<AtomicBool>,
    callers: JoinSet<Records>,
}

impl Load {
    fn start(limiter: &Limiter<RedisStore>) -> Self {
        let (done, start) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (limiter, done) = (limiter.clone(), done.clone());
            callers.spawn(keeps_asking(limiter, "p", start, move || done.load(Ordering::Relaxed)));
        }
        Self { done, callers }
    }

    async fn end(self) -> Records {
        self.done.store(true, Ordering::Relaxed);
        self.callers.join_all().await.concat()
    }
}

fn largest(records: &Records) -> u32 {
    let records: Vec<Record> = records.iter().map(|(record, _)| *record).collect();
    largest_window(&records, u64::try_from(WINDOW.as_micros()).unwrap())
}

async fn scene(sentinels: &Sentinels) -> Limiter<RedisStore> {
    let limits = format!("{LIMIT}/{}ms", WINDOW.as_millis());
    limiter(&config(&sentinel_url(sentinels), Millis(50)), vec![policy("p", &limits), policy("once", "9/1h")])
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_is_followed_at_once_and_keeps_what_was_counted() {
    let sentinels = Arc::new(beside(Sentinels::start).await);
    let limiter = scene(&sentinels).await;
    // One that a busy machine answers too late is taken back with the next.
    let mut passed = 0;
    let four = async {
        while passed < 4 {
            passed += u32::from(check(&limiter, "once", &[]).await.is_allowed());
        }
    };
    timeout(PATIENCE, four).await.unwrap();
    let old = sentinels.master();
    assert_eq!(old.ask::<i64>(&["WAIT", "2", "10000"]), 2, "both replicas have it");
    let load = Load::start(&limiter);
    let failing_over = {
        let sentinels = sentinels.clone();
        beside(move || {
            sentinels.failover();
            Instant::now()
        })
    };
    let promoted = failing_over.await;
    // By now two Sentinels name the new one.
    recovers(&limiter, "p", &[], Duration::from_secs(2)).await;
    let followed = promoted.elapsed();
    let records = load.end().await;
    let (largest, p99) = (largest(&records), p99(&records));
    println!("followed after {followed:?}; {} checks, p99 {p99:?}, {largest} in a window", records.len());
    assert!(followed < Duration::from_millis(500), "{followed:?}");
    assert!(p99 < Duration::from_millis(150), "{p99:?}");
    // The old master takes writes for a moment beside the new one: at most what passes in that time.
    assert!(largest <= 2 * LIMIT, "{largest}");
    // R095: what was in use stays in use.
    assert_eq!(used(&limiter, "once", &[]).await, 4);
    let mut more = 0;
    for _ in 0..20 {
        more += u32::from(check(&limiter, "once", &[]).await.is_allowed());
    }
    assert_eq!(more, 5, "4 of 9 were used before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_killed_master_is_replaced_nobody_waits_and_nothing_hangs() {
    let sentinels = Arc::new(beside(Sentinels::start).await);
    let limiter = scene(&sentinels).await;
    let load = Load::start(&limiter);
    let busy = || async { (limiter.store().figures().checks > 100).then_some(()) };
    eventually("load", PATIENCE, busy).await;
    let (killed, kills) = (Instant::now(), sentinels.clone());
    beside(move || {
        let old = kills.master();
        old.kill();
        kills.wait_for_other_master(old.port());
    })
    .await;
    let replaced = Instant::now();
    recovers(&limiter, "p", &[], Duration::from_secs(2)).await;
    println!("replaced after {:?}, followed {:?} later", killed.elapsed(), replaced.elapsed());
    let records = load.end().await;
    let p99 = p99(&records);
    let degraded = records.iter().filter(|(_, mode)| *mode == Mode::DenyAll).count();
    println!("{} checks, {degraded} without the store, p99 {p99:?}", records.len());
    assert!(degraded > 0 && p99 < Duration::from_millis(150), "{p99:?}");
    let slowest = records.iter().map(|(record, _)| record.answered_us - record.sent_us).max().unwrap();
    assert!(slowest < 2_000_000, "{slowest} us");
    // What the replica had not heard of is lost, at the most once over.
    assert!(largest(&records) <= 2 * LIMIT, "{}", largest(&records));
}
