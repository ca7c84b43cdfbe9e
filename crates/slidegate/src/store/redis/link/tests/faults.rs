//! What servers refuse, each class made to happen on a real one, and what calls come to then and afterwards.

use super::*;
use slidegate_testbed::redis::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_was_flushed_is_sent_again_unnoticed() {
    let server = Server::start();
    let link = connected(&server.url()).await;
    for round in 1..=3 {
        assert_eq!(count(&link, "sg:a").await.expect("counts"), round);
        server.ask::<()>(&["SCRIPT", "FLUSH"]);
    }
    assert_eq!(count(&link, "sg:a").await.expect("counts"), 4, "each was executed once");
    let evals = server.info_of("cmdstat_eval");
    assert!(evals.contains("calls=4"), "{evals}");
    assert_eq!(link.figures().faults, [0; Fault::ALL.len()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_calls_fail_only_while_the_port_is_closed() {
    let server = Server::start();
    let link = connected(&server.url()).await;
    count(&link, "sg:a").await.expect("counts");
    server.kill();
    comes_to(&link, "sg:a", "unavailable disconnected").await;
    server.restart();
    recovers(&link, "sg:a").await;
    for _ in 0..50 {
        count(&link, "sg:a").await.expect("no NOSCRIPT comes through");
    }
    assert_eq!(link.figures().reconnects, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_clients_and_flushed_scripts_together_are_got_over() {
    let server = Server::start();
    let link = connected(&server.url()).await;
    count(&link, "sg:a").await.expect("counts");
    server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]);
    server.ask::<()>(&["SCRIPT", "FLUSH"]);
    recovers(&link, "sg:a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_server_is_left_at_its_first_refusal() {
    let (server, other) = (Server::start(), Server::start());
    let link = connected(&server.url()).await;
    count(&link, "sg:a").await.expect("counts");
    server.ask::<()>(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    let failed = count(&link, "sg:a").await;
    assert_eq!(outcome(&failed), "unavailable read_only");
    assert!(!link.figures().connected, "not kept for a second refusal");
    // As long as it is a replica, nothing is sent to it.
    comes_to(&link, "sg:a", "unavailable read_only").await;
    server.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    recovers(&link, "sg:a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_server_is_left_by_the_watchdog_without_any_call() {
    let (server, other) = (Server::start(), Server::start());
    let link = connected(&server.url()).await;
    server.ask::<()>(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    let gone = || async { (!link.figures().connected).then_some(()) };
    eventually("the connection is left", RECOVERY, gone).await;
    assert_eq!(link.figures().calls, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_without_master_is_unavailable() {
    let server = Server::options().directive("replica-serve-stale-data", &["no"]).start();
    let link = connected(&server.url()).await;
    let gone = Server::start().port().to_string();
    server.ask::<()>(&["REPLICAOF", "127.0.0.1", &gone]);
    let failed = count(&link, "sg:a").await;
    assert_eq!(outcome(&failed), "unavailable master_down");
    server.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    recovers(&link, "sg:a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_its_data_is_unavailable_until_it_has() {
    let server = Server::options()
        .directive("key-load-delay", &["2000"])
        .directive("loading-process-events-interval-bytes", &["1024"])
        .start();
    let fill = "for i = 1, 400 do redis.call('SET', 'other:' .. i, string.rep('x', 100)) end";
    server.ask::<()>(&["EVAL", fill, "0"]);
    let link = connected(&server.url()).await;
    let loading = tokio::task::spawn_blocking(move || {
        server.ask::<()>(&["DEBUG", "RELOAD"]);
        server
    });
    comes_to(&link, "sg:a", "unavailable loading").await;
    let _server = loading.await.expect("it has loaded");
    recovers(&link, "sg:a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_full_refuses_and_is_kept() {
    let server = Server::options().max_memory(0, "noeviction").start();
    let link = connected(&server.url()).await;
    count(&link, "sg:a").await.expect("counts");
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let failed = count(&link, "sg:a").await;
    assert_eq!(outcome(&failed), "unavailable out_of_memory");
    assert!(link.figures().connected);
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(count(&link, "sg:a").await.expect("at once"), 2, "nothing was executed meanwhile");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_too_few_replicas_refuses_and_is_kept() {
    let server = Server::start();
    let link = connected(&server.url()).await;
    server.ask::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let failed = count(&link, "sg:a").await;
    assert_eq!(outcome(&failed), "unavailable writes_refused");
    server.ask::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    assert_eq!(count(&link, "sg:a").await.expect("at once"), 1, "nothing was executed meanwhile");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_the_user_may_not_run_was_not_executed() {
    let server = Server::start();
    let link = connected(&server.url()).await;
    server.ask::<()>(&["ACL", "SETUSER", "default", "-evalsha"]);
    assert_eq!(outcome(&count(&link, "sg:a").await), "unavailable no_permission");
    server.ask::<()>(&["ACL", "SETUSER", "default", "+@all", "resetkeys", "~sg:*"]);
    assert_eq!(outcome(&count(&link, "other:a").await), "unavailable no_permission");
    assert_eq!(count(&link, "sg:a").await.expect("at once"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_is_stopped_half_way_may_have_written() {
    let server = Server::start();
    let link = connected(&server.url()).await;
    let half = script("redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[2])");
    let run = || async {
        let deadline = Instant::now() + GENEROUS;
        link.script(0, &half, &[b"sg:a", b"sg:b"], &[], deadline).await
    };
    server.ask::<i64>(&["LPUSH", "sg:b", "of another program"]);
    assert_eq!(outcome(&run().await), "lost foreign_key");
    assert_eq!(server.ask::<i64>(&["GET", "sg:a"]), 1, "as this one shows");

    let denied = script("redis.call('INCR', KEYS[1]) return redis.call('DEL', KEYS[1])");
    server.ask::<()>(&["ACL", "SETUSER", "default", "-del"]);
    let deadline = Instant::now() + GENEROUS;
    let stopped = link.script(0, &denied, &[b"sg:a"], &[], deadline).await;
    assert_eq!(outcome(&stopped), "lost no_permission");
    assert_eq!(server.ask::<i64>(&["GET", "sg:a"]), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_program_is_not_touched_by_a_command() {
    let server = Server::start();
    let link = connected(&server.url()).await;
    server.ask::<i64>(&["LPUSH", "sg:a", "of another program"]);
    assert_eq!(outcome(&command(&link, &["INCR", "sg:a"]).await), "unavailable foreign_key");
    server.ask::<i64>(&["DEL", "sg:a"]);
    assert_eq!(outcome(&command(&link, &["INCR", "sg:a"]).await), "done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_busy_with_a_script_is_unavailable_until_that_ends() {
    let server = std::sync::Arc::new(Server::options().directive("busy-reply-threshold", &["20"]).start());
    let link = connected(&server.url()).await;
    count(&link, "sg:a").await.expect("counts");
    let runs = server.clone();
    let slow = tokio::task::spawn_blocking(move || runs.command(&["EVAL", "while true do end", "0"]));
    comes_to(&link, "sg:a", "unavailable busy").await;
    let kills = server.clone();
    beside(move || kills.ask::<()>(&["SCRIPT", "KILL"])).await;
    recovers(&link, "sg:a").await;
    assert!(slow.await.expect("it has ended").is_err(), "it was killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_or_wrong_password_is_told_apart_from_a_server_that_is_away() {
    let server = Server::start();
    let bare = connected(&server.url()).await;
    server.ask::<()>(&["CONFIG", "SET", "requirepass", "right"]);
    server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]);
    comes_to(&bare, "sg:a", "unavailable not_authenticated").await;

    let wrong = Link::start(&config(&server.url()).password("wrong")).expect("a link");
    comes_to(&wrong, "sg:a", "unavailable not_authenticated").await;

    let right = Link::start(&config(&server.url()).password("right")).expect("a link");
    assert!(right.connected(Instant::now() + PATIENCE).await);
    count(&right, "sg:a").await.expect("counts");

    server.ask::<()>(&["CONFIG", "SET", "requirepass", ""]);
    recovers(&bare, "sg:a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_without_slots_serves_nothing() {
    let server = Server::options().directive("cluster-enabled", &["yes"]).start();
    let alone = connected(&server.url()).await;
    assert_eq!(outcome(&count(&alone, "sg:a").await), "unavailable cluster_down");
    let cluster = link(&server.url().replace("redis://", "redis-cluster://"));
    comes_to(&cluster, "sg:a", "unavailable cluster_down").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_evict_counters_is_noted() {
    for (policy, evicts) in [("noeviction", false), ("allkeys-lru", true), ("volatile-ttl", true)] {
        let server = Server::options().max_memory(1 << 24, policy).start();
        let link = connected(&server.url()).await;
        // Asked after it has connected, and before the watchdog's first question.
        let asked = || async { (server.info_of("cmdstat_config|get").contains("calls=1")).then_some(()) };
        eventually("it is asked", PATIENCE, asked).await;
        let noted = || async { (link.figures().evicts == evicts).then_some(()) };
        eventually(policy, PATIENCE, noted).await;
    }
}

trait InfoOf {
    fn info_of(&self, field: &str) -> String;
}

impl InfoOf for Server {
    /// A field of INFO, or nothing.
    fn info_of(&self, field: &str) -> String {
        let text: String = self.ask(&["INFO", "everything"]);
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }
}
