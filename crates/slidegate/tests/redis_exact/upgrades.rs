//! R12: releases that count in different formats share one server, while each takes over from the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use slidegate::Limiter;
use slidegate::core::time::Millis;
use slidegate::store::redis::RedisStore;
use slidegate_testbed::crowd::{Record, largest_window};
use slidegate_testbed::redis::Server;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::asking::{PATIENCE, check, config, eventually, keeps_asking, limiter, policy, recovers, used};

const LIMIT: u32 = 100;
const WINDOW: Duration = Duration::from_millis(400);
const COUNTER: &str = "sg:{p}:p:1";

/// An instance of one release or the other, whose callers ask at more than twice the limit.
struct Instance {
    limiter: Limiter<RedisStore>,
    done: Arc<AtomicBool>,
    callers: JoinSet<Vec<(Record, slidegate::Mode)>>,
}

impl Instance {
    async fn start(server: &Server, is_next: bool, start: Instant) -> Self {
        let config = config(&server.url(), Millis(2_000));
        let config = if is_next { config.with_next_format() } else { config };
        let limits = [("p", format!("{LIMIT}/{}ms", WINDOW.as_millis())), ("once", "30/1h".to_owned())];
        let policies = limits.map(|(name, limits)| policy(name, &limits)).into();
        let limiter = limiter(&config, policies).await;
        let (done, mut callers) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        let until = done.clone();
        callers.spawn(keeps_asking(limiter.clone(), "p", start, move || until.load(Ordering::Relaxed)));
        Self { limiter, done, callers }
    }

    /// It hears that the oldest of so many instances is of this format.
    async fn hears_of(&self, instances: u32, oldest: u8) {
        let hears = || async {
            let figures = self.limiter.store().figures();
            ((figures.instances, figures.formats) == (instances, oldest)).then_some(())
        };
        eventually("instances hear of each other", PATIENCE, hears).await;
    }

    /// Ends it, and what its callers were answered.
    async fn end(self) -> Vec<Record> {
        self.done.store(true, Ordering::Relaxed);
        let records = self.callers.join_all().await.concat();
        records.into_iter().map(|(record, _)| record).collect()
    }
}

/// The format that a counter is in now.
fn format(server: &Server) -> Option<u8> {
    server.ask::<Vec<u8>>(&["GETRANGE", COUNTER, "0", "0"]).first().copied()
}

async fn is_written_in(server: &Server, expected: u8) {
    let is = || async { (format(server) == Some(expected)).then_some(()) };
    eventually("the counter is in the format", PATIENCE, is).await;
}

fn check_windows(when: &str, records: &[Record]) {
    let largest = largest_window(records, u64::try_from(WINDOW.as_micros()).unwrap());
    let admitted = records.iter().filter(|record| record.is_admitted()).count();
    println!("{when}: {admitted} admitted, at most {largest} in a window");
    assert!(largest <= LIMIT, "{when}: {largest} in a window");
    assert!(largest >= LIMIT / 2, "{when}: {largest} in a window, too few to tell");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_and_its_rollback_never_let_too_many_pass() {
    let server = Server::start();
    let start = Instant::now();
    let mut records = Vec::new();
    let olds = [Instance::start(&server, false, start).await, Instance::start(&server, false, start).await];
    let [first, second] = olds;
    let mut once = 0;
    for _ in 0..10 {
        once += u32::from(check(&first.limiter, "once", &[]).await.is_allowed());
    }
    first.hears_of(2, 1).await;

    // The upgrade, one after another. As long as an old one is there, all count in its format.
    let third = Instance::start(&server, true, start).await;
    third.hears_of(3, 1).await;
    recovers(&third.limiter, "p", &[], PATIENCE).await;
    assert_eq!(format(&server), Some(1));
    records.extend(first.end().await);
    let fourth = Instance::start(&server, true, start).await;
    fourth.hears_of(3, 1).await;
    assert_eq!(format(&server), Some(1));
    let failed = second.limiter.store().figures().denied_without;
    assert_eq!(failed, 0, "no counter was out of an old one's reach");
    records.extend(second.end().await);
    for new in [&third, &fourth] {
        new.hears_of(2, 2).await;
    }
    is_written_in(&server, 2).await;
    for _ in 0..10 {
        once += u32::from(check(&third.limiter, "once", &[]).await.is_allowed());
    }

    // The rollback. Until the new ones have heard of the old one, their counters are out of its reach.
    let fifth = Instance::start(&server, false, start).await;
    for new in [&third, &fourth] {
        new.hears_of(3, 1).await;
    }
    is_written_in(&server, 1).await;
    recovers(&fifth.limiter, "p", &[], PATIENCE).await;
    records.extend(third.end().await);
    records.extend(fourth.end().await);
    recovers(&fifth.limiter, "p", &[], PATIENCE).await;
    records.extend(fifth.end().await);
    check_windows("an upgrade and its rollback", &records);

    // What was counted by one is counted by the other.
    let last = Instance::start(&server, false, start).await;
    recovers(&last.limiter, "p", &[], PATIENCE).await;
    let in_reach = || async { last.limiter.peek("once", &[]).await.ok().map(drop) };
    let next = Instance::start(&server, true, start).await;
    next.hears_of(2, 1).await;
    assert_eq!(used(&next.limiter, "once", &[]).await, 20);
    eventually("a counter that a new one has looked at", PATIENCE, in_reach).await;
    for instance in [&last, &next] {
        for _ in 0..20 {
            once += u32::from(check(&instance.limiter, "once", &[]).await.is_allowed());
        }
    }
    assert_eq!((once, used(&last.limiter, "once", &[]).await), (30, 30));
    last.end().await;
    next.end().await;
}
