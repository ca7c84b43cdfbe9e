//! A cluster: every slot, moving slots, masters that fall away.

use super::*;
use slidegate_testbed::redis::Cluster;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

fn url(cluster: &Cluster) -> String {
    format!("redis-cluster://{}", cluster.addresses())
}

/// Keys whose slots lie evenly over the cluster.
fn keys() -> Vec<String> {
    (0..60).map(|number| format!("sg:{number}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_slot_is_found_from_any_node_and_every_node_learns_the_script() {
    let cluster = beside(Cluster::start).await;
    // A replica as the only seed.
    let link = connected(&format!("redis-cluster://{}", cluster.nodes()[4].address())).await;
    assert!(link.is_cluster());
    for key in keys() {
        assert_eq!(Link::slot(key.as_bytes()), cluster.slot_of(&key));
        assert_eq!(count(&link, &key).await.expect("counts"), 1, "{key}");
    }
    cluster.master_of(0).ask::<()>(&["SCRIPT", "FLUSH"]);
    for key in keys() {
        assert_eq!(count(&link, &key).await.expect("counts"), 2, "{key}");
    }
    assert_eq!(link.figures().faults, [0; Fault::ALL.len()]);

    drop(link);
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    eventually("its tasks are gone", PATIENCE, || async { (tasks() == 0).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_under_load_cost_no_call_and_no_count() {
    let cluster = Arc::new(beside(Cluster::start).await);
    let link = Arc::new(connected(&url(&cluster)).await);
    let keys = keys();
    let done = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = keys
        .iter()
        .map(|key| {
            let (link, key, done) = (link.clone(), key.clone(), done.clone());
            tokio::spawn(async move {
                let (mut counted, mut pace) = (0, interval(Duration::from_millis(10)));
                while !done.load(Relaxed) {
                    counted += 1;
                    assert_eq!(count(&link, &key).await.expect("no error comes through"), counted, "{key}");
                    pace.tick().await;
                }
                counted
            })
        })
        .collect();
    let moving = {
        let (cluster, keys) = (cluster.clone(), keys.clone());
        tokio::task::spawn_blocking(move || {
            for key in &keys {
                let slot = cluster.slot_of(key);
                let from = cluster.master_of(slot).port();
                let to = cluster.nodes()[..3].iter().find(|node| node.port() != from).expect("another");
                cluster.move_slot(slot, to);
            }
        })
    };
    moving.await.expect("all are moved");
    done.store(true, Relaxed);
    for caller in callers {
        assert!(caller.await.expect("no wrong count") > 0);
    }
    assert_eq!(link.figures().faults, [0; Fault::ALL.len()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_keys_of_a_moving_slot_are_tried_until_the_deadline() {
    let cluster = beside(Cluster::start).await;
    let link = connected(&url(&cluster)).await;
    let both = script("return redis.call('INCR', KEYS[1]) + redis.call('INCR', KEYS[2])");
    let slot = Link::slot(b"{x}");
    let run = |within: Duration| {
        let both = &both;
        let link = &link;
        async move { link.script(slot, both, &[b"{x}a", b"{x}b"], &[], Instant::now() + within).await }
    };
    run(GENEROUS).await.expect("both are here");
    let (from, to) = {
        let from = cluster.master_of(slot);
        (from, cluster.nodes()[..3].iter().find(|node| node.port() != from.port()).expect("another"))
    };
    let id = |server: &slidegate_testbed::redis::Server| server.ask::<String>(&["CLUSTER", "MYID"]);
    let number = slot.to_string();
    to.ask::<()>(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &id(from)]);
    from.ask::<()>(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &id(to)]);
    from.ask::<()>(&["MIGRATE", "127.0.0.1", &to.port().to_string(), "{x}a", "0", "1000"]);
    // One key at either end: nobody can run this now.
    assert_eq!(outcome(&run(SHORT).await), "unavailable cluster_down");
    from.ask::<()>(&["MIGRATE", "127.0.0.1", &to.port().to_string(), "{x}b", "0", "1000"]);
    run(GENEROUS).await.expect("both are there, which ASK tells");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_of_a_shard_is_followed() {
    let cluster = Arc::new(beside(Cluster::start).await);
    let link = connected(&url(&cluster)).await;
    let slot = cluster.slot_of("sg:1");
    let old = cluster.master_of(slot).port();
    count(&link, "sg:1").await.expect("counts");
    let failing_over = {
        let cluster = cluster.clone();
        tokio::task::spawn_blocking(move || cluster.failover(slot))
    };
    failing_over.await.expect("another master");
    recovers(&link, "sg:1").await;
    assert_ne!(cluster.master_of(slot).port(), old);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_master_holds_up_no_other_shard_and_its_successor_is_found() {
    let cluster = Arc::new(beside(Cluster::start).await);
    for node in cluster.nodes() {
        // Else the whole cluster refuses while one shard has no master, which no client can help.
        node.ask::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let link = Arc::new(connected(&url(&cluster)).await);
    let slot = cluster.slot_of("sg:1");
    let dead = cluster.master_of(slot).port();
    let others: Vec<String> =
        keys().into_iter().filter(|key| cluster.master_of(cluster.slot_of(key)).port() != dead).collect();
    let (done, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let caller = {
        let (link, done, served) = (link.clone(), done.clone(), served.clone());
        tokio::spawn(async move {
            let mut pace = interval(Duration::from_millis(5));
            while !done.load(Relaxed) {
                for key in &others {
                    count(&link, key).await.expect("other shards serve on");
                    served.fetch_add(1, Relaxed);
                }
                pace.tick().await;
            }
        })
    };
    count(&link, "sg:1").await.expect("counts");
    let pid = cluster.master_of(slot).pid();
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.expect("kill is there").success());
    comes_to(&link, "sg:1", "unavailable disconnected").await;
    let before = served.load(Relaxed);
    let waiting = {
        let cluster = cluster.clone();
        tokio::task::spawn_blocking(move || cluster.wait_for_other_master(slot, dead))
    };
    waiting.await.expect("a successor");
    recovers(&link, "sg:1").await;
    assert!(served.load(Relaxed) > before, "the others went on");
    done.store(true, Relaxed);
    caller.await.expect("no call to other shards failed");
}
