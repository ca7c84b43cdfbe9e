//! The user that docs/redis.md asks operators to create may do what the store does, and nothing else.

use super::*;
use crate::store::redis::RedisStore;
use crate::{Ask, Limiter, Policy};
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_testbed::redis::Server;
use std::path::Path;

/// The rule as it stands in the documentation, with a password of our own.
fn rule() -> String {
    let page = include_str!("../../../../../../../docs/redis.md");
    let line = page.lines().find_map(|line| line.strip_prefix("user slidegate ")).expect("the rule");
    line.replace(">CHANGE-ME", ">secret")
}

fn limited(server: &Server) -> RedisConfig {
    config(&server.url()).username("slidegate").password("secret").timeout(Millis(2000))
}

#[test]
fn the_rule_allows_every_command_of_the_scripts_and_few_others() {
    let mut used = std::collections::BTreeSet::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/redis/scripts");
    let files = [folder.join("plain"), folder].map(|folder| std::fs::read_dir(folder).expect("the scripts"));
    let paths = files.into_iter().flatten().map(|file| file.expect("a file").path());
    for path in paths.filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(path).expect("Lua");
        for call in text.split("call('").skip(1) {
            used.insert(call.split('\'').next().expect("a command").to_lowercase());
        }
    }
    assert!(used.len() > 10, "{used:?}");
    // What the store sends itself; PING, ASKING and so on are the link's.
    let sent = ["ping", "info", "evalsha", "eval", "asking", "cluster|slots", "set", "getdel"];
    used.extend(sent.map(str::to_owned));
    let rule = rule();
    let allowed: std::collections::BTreeSet<String> =
        rule.split(' ').filter_map(|word| word.strip_prefix('+')).map(str::to_owned).collect();
    assert_eq!(allowed, used);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_user_may_do_what_the_store_does() {
    let server = Server::options().user("slidegate", &rule()).start();
    let store = RedisStore::start(&limited(&server)).expect("a store");
    assert!(store.connected(Millis(20_000)).await);
    let algorithms = [
        Algorithm::SlidingWindow { resolution: None },
        Algorithm::SlidingLog,
        Algorithm::FixedWindow,
        Algorithm::TokenBucket { burst: 10 },
        Algorithm::LeakyBucket { max_delay: Millis(1000) },
    ];
    let mut builder = Limiter::builder().store(store);
    let mut names = Vec::new();
    for (index, algorithm) in algorithms.into_iter().enumerate() {
        let limit: Limit = "10/s".parse().expect("a limit");
        let limit = limit.with_algorithm(algorithm).expect("an algorithm");
        names.push(format!("policy-{index}"));
        builder = builder
            .policy(Policy::builder(names[index].as_str()).limit(None, limit).build().expect("a policy"));
    }
    let limiter = builder.build().expect("a limiter");
    for name in &names {
        assert!(limiter.check(name, &[]).await.expect("decided").is_allowed());
        let (decision, reserved) = limiter.reserve(&[Ask::new(name, &[]).cost(2)]).await.expect("decided");
        reserved.unwrap_or_else(|| panic!("{name}: {decision:?}")).commit(1).await.expect("settled");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_user_may_do_nothing_else() {
    let server = Server::options().user("slidegate", &rule()).start();
    let link = Link::start(&limited(&server)).expect("a link");
    assert!(link.connected(Instant::now() + PATIENCE).await);
    let text = script("return redis.call('SETRANGE', KEYS[1], 0, 'x')");
    for _ in 0..2 {
        let done = link.script(0, &text, &[b"sg:a"], &[], Instant::now() + GENEROUS).await;
        assert_eq!(outcome(&done), "done", "EVALSHA, and EVAL where the script is not known");
        server.ask::<()>(&["SCRIPT", "FLUSH"]);
    }
    for words in [
        &["GETRANGE", "other:a", "0", "1"][..],
        &["FLUSHALL", "ASYNC"],
        &["CONFIG", "GET", "*"],
        &["KEYS", "*"],
    ] {
        let refused = command(&link, words).await;
        assert_eq!(outcome(&refused), "unavailable no_permission", "{words:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_user_is_told_of_eviction_and_passes_the_watchdog() {
    let server = Server::options().user("slidegate", &rule()).max_memory(1 << 24, "allkeys-random").start();
    let link = Link::start(&limited(&server)).expect("a link");
    eventually("eviction is noted", PATIENCE, || async { link.figures().evicts.then_some(()) }).await;
    // The watchdog asks four times a second, and what it asks is allowed.
    let asked = || async {
        let stats: String = server.ask(&["INFO", "commandstats"]);
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_hello:calls="));
        let calls: u64 =
            calls.and_then(|rest| rest.split(',').next()).and_then(|n| n.parse().ok()).unwrap_or(0);
        (calls >= 4).then_some(())
    };
    eventually("the watchdog has asked", PATIENCE, asked).await;
    assert_eq!(link.figures().reconnects, 0);
    assert!(link.figures().connected);
}
