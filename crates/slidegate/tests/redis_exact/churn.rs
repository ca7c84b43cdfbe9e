//! Connections that are killed, scripts that are forgotten, servers that restart, callers who go away: under load.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use slidegate::Mode;
use slidegate::core::time::Millis;
use slidegate::error::Fault;
use slidegate::store::redis::Retry;
use slidegate_testbed::redis::Server;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use crate::asking::{
    PATIENCE, beside, check, config, eventually, faults, keeps_asking, limiter, policy, recovers, used,
};

// R029, R037: NOSCRIPT came through to callers until somebody restarted them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_and_forgotten_scripts_are_not_noticed_with_retries() {
    let server = Arc::new(Server::start());
    let retry = Retry { after: Millis(500), budget: Millis(20_000) };
    let through = config(&server.url(), Millis(5_000)).retry(Some(retry)).denial_cache(false);
    let limiter = limiter(&through, vec![policy("p", "400/1h")]).await;
    let done = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let (limiter, done) = (limiter.clone(), done.clone());
        callers.spawn(keeps_asking(limiter, "p", Instant::now(), move || done.load(Ordering::Relaxed)));
    }
    let mut rounds = interval(Duration::from_millis(150));
    for round in 0..10 {
        rounds.tick().await;
        let server = server.clone();
        beside(move || {
            server.ask::<()>(&["SCRIPT", "FLUSH"]);
            if round % 2 == 0 {
                server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]);
            }
        })
        .await;
    }
    // As many as want to pass.
    let full = || async { (!check(&limiter, "p", &[]).await.is_allowed()).then_some(()) };
    let mut admitted = 0;
    let all = async {
        while check(&limiter, "p", &[]).await.is_allowed() {
            admitted += 1;
        }
    };
    timeout(PATIENCE, all).await.unwrap();
    eventually("a full counter", PATIENCE, full).await;
    done.store(true, Ordering::Relaxed);
    let records = callers.join_all().await.concat();
    assert!(records.iter().all(|(_, mode)| *mode == Mode::Normal), "{:?}", limiter.store().figures());
    let admitted = admitted + records.iter().filter(|(record, _)| record.is_admitted()).count();
    assert_eq!((admitted, used(&limiter, "p", &[]).await), (400, 400));
    assert!(limiter.store().figures().reconnects >= 3, "{:?}", limiter.store().figures());
}

// R031: after a restart of the server each request failed until its clients were restarted, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_under_load_is_over_when_the_port_is_open_again() {
    let server = Arc::new(Server::start());
    let limiter = limiter(&config(&server.url(), Millis(1_000)), vec![policy("p", "1000000/1h")]).await;
    let done = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let (limiter, done) = (limiter.clone(), done.clone());
        callers.spawn(keeps_asking(limiter, "p", Instant::now(), move || done.load(Ordering::Relaxed)));
    }
    let before = || async { (limiter.store().figures().checks > 100).then_some(()) };
    eventually("load", PATIENCE, before).await;
    let restarts = server.clone();
    beside(move || restarts.restart()).await;
    recovers(&limiter, "p", &[], Duration::from_secs(2)).await;
    let failed = limiter.store().figures().denied_without;
    let later = limiter.store().figures().checks + 500;
    let more = || async { (limiter.store().figures().checks > later).then_some(()) };
    eventually("more load", PATIENCE, more).await;
    done.store(true, Ordering::Relaxed);
    callers.join_all().await;
    let figures = limiter.store().figures();
    assert!(failed > 0 && figures.denied_without == failed, "{failed} before, {figures:?}");
    assert_eq!(figures.reconnects, 1);
    let known = faults(&limiter, Fault::Disconnected) + faults(&limiter, Fault::Timeout);
    assert_eq!(figures.faults.iter().sum::<u64>(), known, "nothing but a closed port: {figures:?}");
}

// R030: each caller waits for as long as it likes, and goes away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_who_go_away_take_nothing_with_them_while_connections_break() {
    let server = Arc::new(Server::start());
    let limiter = limiter(&config(&server.url(), Millis(300)), vec![policy("p", "200/1h")]).await;
    let mut told = 0;
    for round in 0..300_u32 {
        if round % 60 == 30 {
            server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
        let patience = Duration::from_micros(u64::from(round % 7) * 150);
        let mut asking = pin!(limiter.check("p", &[]));
        if let Ok(decision) = timeout(patience, &mut asking).await {
            told += u32::from(decision.unwrap().is_allowed());
        }
    }
    recovers(&limiter, "p", &[], Duration::from_secs(2)).await;
    let taken = told;
    // What was granted to those who had gone is given back, or taken back with the next call.
    let mut more = 0;
    for _ in 0..400 {
        more += u32::from(check(&limiter, "p", &[]).await.is_allowed());
    }
    let total = used(&limiter, "p", &[]).await;
    println!("{taken} were told before, {more} after; {total} are charged");
    assert_eq!(total, 200);
    assert!(taken + more <= 200);
}

// F24: a connection for each check; R056: one for each that waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_do_not_grow_with_checks_or_with_waiting() {
    let server = Arc::new(Server::start());
    let limiter = limiter(&config(&server.url(), Millis(100)), vec![policy("p", "1000000/1h")]).await;
    let named = || server.ask::<String>(&["CLIENT", "LIST"]).matches("name=slidegate").count();
    for _ in 0..2_000 {
        let _ = check(&limiter, "p", &[]).await;
    }
    assert_eq!(named(), 1);
    server.ask::<()>(&["CLIENT", "PAUSE", "400", "ALL"]);
    let mut callers = JoinSet::new();
    for _ in 0..500 {
        let limiter = limiter.clone();
        callers.spawn(async move { check(&limiter, "p", &[]).await });
    }
    callers.join_all().await;
    recovers(&limiter, "p", &[], PATIENCE).await;
    let one = || async { (named() <= 2).then_some(()) };
    eventually("few connections", PATIENCE, one).await;
}
