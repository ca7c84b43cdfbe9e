//! Replies that are lost and calls that are executed late.

use std::time::Duration;

use slidegate::core::decision::Mode;
use slidegate::core::time::Millis;
use slidegate::error::Fault;
use slidegate::store::redis::Retry;
use slidegate_testbed::crowd::{Record, largest_window};
use slidegate_testbed::proxy::{Fate, FaultProxy};
use slidegate_testbed::redis::Server;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::asking::{
    check, config, config_without_breaker, eventually, faults, keeps_asking, limiter, micros, policy, used,
};

/// How a reply gets lost on a connection that many calls share: what follows it goes too, or the connection.
const FATES: [Fate; 2] = [Fate::VanishThenSilence, Fate::VanishThenReset];

// R5, R060: the command was done, its reply got lost, and the second try counted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_retries_every_check_whose_reply_is_lost_is_counted_once() {
    for fate in FATES {
        let server = Server::start();
        let proxy = FaultProxy::start(&server.address());
        let retry = Retry { after: Millis(150), budget: Millis(20_000) };
        let through =
            config_without_breaker(&format!("redis://{}", proxy.address()), Millis(1_000)).retry(Some(retry));
        let limiter = limiter(&through, vec![policy("p", "100/1h")]).await;
        proxy.spoil_replies(10, fate);
        let mut admitted = 0;
        for _ in 0..100 {
            admitted += u32::from(check(&limiter, "p", &[]).await.is_allowed());
        }
        proxy.pass();
        assert_eq!((admitted, used(&limiter, "p", &[]).await), (100, 100), "{fate:?}");
        assert!(proxy.counts().spoiled >= 10, "{:?}", proxy.counts());
        assert!(!check(&limiter, "p", &[]).await.is_allowed());
    }
}

// R5: what was charged for a lost reply comes back with the next check, so none of the hundred is lost for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_retries_lost_replies_neither_admit_too_much_nor_waste_any() {
    for fate in FATES {
        let server = Server::start();
        let proxy = FaultProxy::start(&server.address());
        let through = config_without_breaker(&format!("redis://{}", proxy.address()), Millis(60));
        let limiter = limiter(&through, vec![policy("p", "100/1h")]).await;
        proxy.spoil_replies(10, fate);
        let mut admitted = 0;
        for _ in 0..100 {
            admitted += u32::from(check(&limiter, "p", &[]).await.is_allowed());
        }
        assert!(admitted <= 100, "{fate:?}");
        assert!(limiter.store().figures().denied_without > 0, "{:?}", limiter.store().figures());
        proxy.pass();
        eventually("checks are decided again", Duration::from_secs(10), || async {
            limiter.peek("p", &[]).await.ok().map(drop)
        })
        .await;
        for _ in 0..200 {
            admitted += u32::from(check(&limiter, "p", &[]).await.is_allowed());
        }
        assert_eq!((admitted, used(&limiter, "p", &[]).await), (100, 100), "{fate:?}");
    }
}

/// Calls that later ones of their instance have overtaken are not executed any more: of an hour's permits, what is
/// counted in the end is what was admitted. Decided once more, each would take what nobody spends, or give back what
/// somebody has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_executions_waste_none() {
    for seed in [1, 2] {
        let server = Server::start();
        let proxy = FaultProxy::start(&server.address());
        let through = config(&format!("redis://{}", proxy.address()), Millis(15));
        let policies = || vec![policy("p", "100000/1h")];
        let instances = [limiter(&through, policies()).await, limiter(&through, policies()).await];
        proxy.late(5, Duration::from_millis(250), seed);
        let start = Instant::now();
        let mut callers = JoinSet::new();
        for caller in 0..8 {
            let limiter = instances[caller % 2].clone();
            callers.spawn(keeps_asking(limiter, "p", start, move || micros(start) > 1_500_000));
        }
        let records = callers.join_all().await.into_iter().flatten();
        let mut admitted = records.filter(|(record, _)| record.is_admitted()).count();
        proxy.pass();
        let given_up: u64 = instances.iter().map(|limiter| faults(limiter, Fault::Timeout)).sum();
        // Each instance's next accepted call takes back what the last lost reply had been granted, and whatever is
        // still on its way is stale.
        for limiter in &instances {
            let told = eventually("a decision", Duration::from_secs(10), || async {
                Some(check(limiter, "p", &[]).await).filter(|told| told.mode() == Mode::Normal)
            });
            admitted += usize::from(told.await.is_allowed());
        }
        let used = used(&instances[0], "p", &[]).await;
        println!("seed {seed}: {admitted} admitted, {used} counted, {given_up} given up");
        assert!(given_up > 0, "{:?}", proxy.counts());
        assert_eq!(usize::try_from(used).unwrap(), admitted, "seed {seed}");
    }
}

/// Two instances at ten times the limit, through a network that keeps one call in twenty back for longer than
/// anybody waits: it is executed when its caller has long gone. The longer time is also longer than a silent
/// connection is kept: then later calls overtake it on another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_executions_never_let_too_many_pass() {
    const LIMIT: u32 = 100;
    const WINDOW: Duration = Duration::from_millis(250);
    for (seed, late_ms) in [(1, 40), (2, 250), (3, 40), (4, 250)] {
        let server = Server::start();
        let proxy = FaultProxy::start(&server.address());
        let through = config(&format!("redis://{}", proxy.address()), Millis(15));
        let policies = || vec![policy("p", &format!("{LIMIT}/{}ms", WINDOW.as_millis()))];
        let instances = [limiter(&through, policies()).await, limiter(&through, policies()).await];
        proxy.late(5, Duration::from_millis(late_ms), seed);
        let start = Instant::now();
        let mut callers = JoinSet::new();
        for caller in 0..8 {
            let limiter = instances[caller % 2].clone();
            callers.spawn(keeps_asking(limiter, "p", start, move || micros(start) > 1_500_000));
        }
        let records: Vec<Record> =
            callers.join_all().await.into_iter().flatten().map(|(record, _)| record).collect();
        let largest = largest_window(&records, u64::try_from(WINDOW.as_micros()).unwrap());
        let admitted = records.iter().filter(|record| record.is_admitted()).count();
        let given_up: u64 = instances.iter().map(|limiter| faults(limiter, Fault::Timeout)).sum();
        let connections = proxy.counts().connections;
        println!(
            "seed {seed}, {late_ms} ms late: {admitted} admitted, at most {largest} in a window; \
             {given_up} given up, {connections} connections"
        );
        assert!(given_up > 0 && (late_ms < 100 || connections > 2), "{:?}", proxy.counts());
        assert!((LIMIT / 4..=LIMIT).contains(&largest), "seed {seed}: {largest} in a window");
    }
}
