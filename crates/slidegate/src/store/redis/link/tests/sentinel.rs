//! Failovers under Sentinel: planned, by death, by freezing.

use super::*;
use slidegate_testbed::redis::Sentinels;
use std::sync::Arc;

fn url(sentinels: &Sentinels) -> String {
    let addresses: Vec<String> = sentinels.sentinels().iter().map(|one| one.address()).collect();
    format!("redis-sentinel://{}/{}", addresses.join(","), Sentinels::NAME)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_is_followed_within_half_a_second() {
    let sentinels = Arc::new(beside(Sentinels::start).await);
    let link = connected(&url(&sentinels)).await;
    count(&link, "sg:a").await.expect("counts");
    let old = sentinels.master().port();
    let failing_over = {
        let sentinels = sentinels.clone();
        tokio::task::spawn_blocking(move || {
            sentinels.sentinels()[0].ask::<()>(&["SENTINEL", "FAILOVER", Sentinels::NAME]);
        })
    };
    failing_over.await.expect("it begins");
    // From when a replica has taken over until a call reaches it.
    let promoted = {
        let sentinels = sentinels.clone();
        move || {
            let other = |server: &&slidegate_testbed::redis::Server| server.port() != old;
            sentinels.servers().iter().filter(other).any(says_master)
        }
    };
    eventually("a replica takes over", PATIENCE, || {
        let promoted = promoted.clone();
        async { beside(promoted).await.then_some(()) }
    })
    .await;
    let start = Instant::now();
    let reached = || async {
        let _ = count_within(&link, "sg:a", SHORT).await;
        let at = link.connected_to()?;
        (!at.ends_with(&format!(":{old}"))).then_some(())
    };
    eventually("calls reach the new master", PATIENCE, reached).await;
    let took = start.elapsed();
    println!("from promotion to the new master: {took:?}");
    // Sentinel itself learns of it up to a second later.
    assert!(took < Duration::from_millis(500), "{took:?}");
    recovers(&link, "sg:a").await;
}

/// A server that is being promoted closes connections, this one too.
fn says_master(server: &slidegate_testbed::redis::Server) -> bool {
    let role = server.command(&["INFO", "replication"]);
    role.is_ok_and(|role| super::super::open::text(&role).is_some_and(|text| text.contains("role:master")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_word_of_a_sentinel_is_followed_at_once_though_the_old_socket_stays_open() {
    let sentinels = Arc::new(beside(Sentinels::start).await);
    let link = connected(&url(&sentinels)).await;
    let old = sentinels.master().port();
    let told = {
        let sentinels = sentinels.clone();
        tokio::task::spawn_blocking(move || sentinels.failover())
    };
    let named_other = || {
        let sentinels = sentinels.clone();
        async move {
            let ports: Vec<Vec<String>> = beside(move || {
                let ask = |one: &slidegate_testbed::redis::Server| {
                    one.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Sentinels::NAME])
                };
                sentinels.sentinels().iter().map(ask).collect()
            })
            .await;
            ports.iter().any(|at| at[1] != old.to_string()).then_some(())
        }
    };
    eventually("a sentinel names another", PATIENCE, named_other).await;
    let start = Instant::now();
    let left = || async { link.connected_to().filter(|at| !at.ends_with(&format!(":{old}"))) };
    let at = eventually("the link follows", PATIENCE, left).await;
    let took = start.elapsed();
    println!("from the sentinel's word to {at}: {took:?}");
    assert!(took < Duration::from_millis(500), "{took:?}");
    told.await.expect("the failover ends");
    recovers(&link, "sg:a").await;
}

// R046: `FAILOVER TO` leaves connections open and tells the Sentinels nothing, who name the old master for half a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_hands_over_by_itself_is_followed_to_whom_it_follows() {
    let sentinels = Arc::new(beside(Sentinels::start).await);
    let link = connected(&url(&sentinels)).await;
    count(&link, "sg:a").await.expect("counts");
    let old = format!(":{}", sentinels.master().port());
    let told = sentinels.clone();
    beside(move || told.failover_to_replica()).await;
    let left = || async { link.connected_to().filter(|at| !at.ends_with(&old)) };
    eventually("the link follows", PATIENCE, left).await;
    recovers(&link, "sg:a").await;
    let still_named = beside(move || format!(":{}", sentinels.master().port())).await;
    assert_eq!(still_named, old, "no Sentinel told it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_master_is_replaced_by_whom_the_sentinels_choose() {
    let sentinels = beside(Sentinels::start).await;
    let link = connected(&url(&sentinels)).await;
    count(&link, "sg:a").await.expect("counts");
    let old = sentinels.master().port();
    let pid = sentinels.master().pid();
    kill(pid);
    comes_to(&link, "sg:a", "unavailable disconnected").await;
    let sentinels = beside(move || {
        sentinels.wait_for_other_master(old);
        sentinels
    })
    .await;
    recovers(&link, "sg:a").await;
    assert_ne!(sentinels.master().port(), old);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_master_is_replaced_and_not_gone_back_to() {
    let sentinels = beside(Sentinels::start).await;
    let link = connected(&url(&sentinels)).await;
    count(&link, "sg:a").await.expect("counts");
    let old = sentinels.master().port();
    sentinels.master().stop();
    let sentinels = beside(move || {
        sentinels.wait_for_other_master(old);
        sentinels
    })
    .await;
    recovers(&link, "sg:a").await;
    let frozen = sentinels.servers().iter().find(|server| server.port() == old).expect("it");
    frozen.cont();
    for _ in 0..100 {
        count(&link, "sg:a").await.expect("counts on");
    }
    assert!(link.connected_to().is_some_and(|at| !at.ends_with(&format!(":{old}"))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_sentinel_of_three_will_do_and_a_name_that_none_knows_is_no_master() {
    let sentinels = beside(Sentinels::start).await;
    let gone = slidegate_testbed::redis::Server::start().address();
    let one = sentinels.sentinels()[2].address();
    let link = connected(&format!("redis-sentinel://{gone},{one}/{}", Sentinels::NAME)).await;
    count(&link, "sg:a").await.expect("counts");

    let unknown = super::link(&format!("redis-sentinel://{one}/nobody"));
    assert!(!unknown.connected(Instant::now() + Duration::from_millis(300)).await);
    assert_eq!(outcome(&count_within(&unknown, "sg:a", SHORT).await), "unavailable disconnected");

    drop((link, unknown));
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    eventually("their tasks are gone", PATIENCE, || async { (tasks() == 0).then_some(()) }).await;
}

fn kill(pid: u32) {
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.expect("kill is there").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_ask_for_a_user_get_the_documented_one() {
    let sentinels = Arc::new(beside(Sentinels::start).await);
    let page = include_str!("../../../../../../../docs/redis.md");
    let rule = page.lines().find(|line| line.starts_with("ACL SETUSER ")).expect("the rule");
    let rule = rule.replace(">CHANGE-ME", ">secret");
    let words: Vec<&str> = rule.split(' ').collect();
    for sentinel in sentinels.sentinels() {
        sentinel.ask::<()>(&words);
    }
    let login = |password: &str| {
        let config = config(&url(&sentinels)).sentinel_login(Some("slidegate".to_owned()), password);
        Link::start(&config).expect("a link")
    };
    let (right, wrong) = (login("secret"), login("hunter2"));
    assert!(right.connected(Instant::now() + PATIENCE).await);
    count(&right, "sg:a").await.expect("counts");
    let old = sentinels.master().port();
    let failing_over = {
        let sentinels = sentinels.clone();
        tokio::task::spawn_blocking(move || sentinels.failover())
    };
    failing_over.await.expect("a failover");
    recovers(&right, "sg:a").await;
    assert!(right.connected_to().is_some_and(|at| !at.ends_with(&format!(":{old}"))));
    assert!(!wrong.figures().connected);
}
