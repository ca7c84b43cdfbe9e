//! The user that docs/redis.md asks operators to create may do what a link does, and nothing else.

use super::*;
use slidegate_testbed::redis::Server;

/// The rule as it stands in the documentation, with a password of our own.
fn rule() -> String {
    let page = include_str!("../../../../../../../docs/redis.md");
    let line = page.lines().find_map(|line| line.strip_prefix("user slidegate ")).expect("the rule");
    line.replace(">CHANGE-ME", ">secret")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_user_may_do_what_a_link_does_and_no_more() {
    let server = Server::options().user("slidegate", &rule()).start();
    let config = config(&server.url()).username("slidegate").password("secret");
    let link = Link::start(&config).expect("a link");
    assert!(link.connected(Instant::now() + PATIENCE).await);
    assert_eq!(count(&link, "sg:a").await.expect("counts"), 1);
    server.ask::<()>(&["SCRIPT", "FLUSH"]);
    assert_eq!(count(&link, "sg:a").await.expect("EVAL is allowed"), 2);

    for words in [&["GET", "other:a"][..], &["FLUSHALL", "ASYNC"], &["CONFIG", "GET", "*"], &["KEYS", "*"]] {
        let refused = command(&link, words).await;
        assert_eq!(outcome(&refused), "unavailable no_permission", "{words:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_user_is_told_of_eviction_and_passes_the_watchdog() {
    let server = Server::options().user("slidegate", &rule()).max_memory(1 << 24, "allkeys-random").start();
    let config = config(&server.url()).username("slidegate").password("secret");
    let link = Link::start(&config).expect("a link");
    eventually("eviction is noted", PATIENCE, || async { link.figures().evicts.then_some(()) }).await;
    // The watchdog asks four times a second, and what it asks is allowed.
    let asked = || async {
        let hellos: String = server.ask(&["INFO", "commandstats"]);
        let calls = hellos.lines().find_map(|line| line.strip_prefix("cmdstat_hello:calls="));
        let calls: u64 =
            calls.and_then(|rest| rest.split(',').next()).and_then(|n| n.parse().ok()).unwrap_or(0);
        (calls >= 4).then_some(())
    };
    eventually("the watchdog has asked", PATIENCE, asked).await;
    assert_eq!(link.figures().reconnects, 0);
    assert!(link.figures().connected);
}
