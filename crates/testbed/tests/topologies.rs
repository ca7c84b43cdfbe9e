//! Sentinels and a Cluster do what the real ones do, in seconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use slidegate_testbed::redis::{Cluster, Release, Sentinels, Server};

#[test]
fn sentinels_follow_a_planned_failover_and_one_after_a_killed_master() {
    let started = Sentinels::start();
    let first = started.master();
    assert_eq!(first.port(), started.servers()[0].port());
    first.ask::<()>(&["SET", "a", "1"]);
    assert_eq!(first.ask::<i64>(&["WAIT", "2", "10000"]), 2, "both replicas have it");

    started.failover();
    let second = started.master();
    assert_ne!(second.port(), first.port());
    assert_eq!(second.ask::<i64>(&["GET", "a"]), 1);
    started.settle();
    assert_eq!(first.info("role"), "slave");
    assert!(first.command(&["SET", "a", "2"]).unwrap_err().to_string().contains("read only"));

    second.kill();
    started.wait_for_other_master(second.port());
    assert_eq!(started.master().ask::<i64>(&["GET", "a"]), 1);
    second.restart();
    started.settle();
    assert_eq!(second.info("role"), "slave");
}

#[test]
fn sentinels_replace_a_frozen_master_and_demote_it_when_it_wakes_up() {
    let started = Sentinels::start_with(Release::Debian, Duration::from_millis(500));
    let frozen = started.master();
    frozen.stop();
    started.wait_for_other_master(frozen.port());
    frozen.cont();
    started.settle();
    assert_eq!(frozen.info("role"), "slave");
    assert_eq!(started.replicas().len(), 2);
}

#[test]
fn what_a_killed_master_could_not_replicate_is_lost() {
    let started = Sentinels::start();
    let (master, replicas) = (started.master(), started.replicas());
    assert_eq!(master.ask::<i64>(&["INCR", "a"]), 1);
    assert_eq!(master.ask::<i64>(&["WAIT", "2", "10000"]), 2);
    master.hold_back_replication(&replicas);
    assert_eq!(master.ask::<i64>(&["INCRBY", "a", "100"]), 101);
    master.kill();
    replicas.iter().for_each(|replica| replica.cont());
    started.wait_for_other_master(master.port());
    assert_eq!(started.master().ask::<i64>(&["GET", "a"]), 1);
}

#[test]
fn a_cluster_loses_what_a_killed_master_could_not_replicate_and_catches_up_if_it_lives() {
    let cluster = Cluster::start();
    let slot = cluster.slot_of("a");
    let (master, replicas) = (cluster.master_of(slot), cluster.replicas_of(slot));
    assert_eq!(master.ask::<i64>(&["INCR", "a"]), 1);
    assert_eq!(master.ask::<i64>(&["WAIT", "1", "10000"]), 1);
    master.hold_back_replication(&replicas);
    assert_eq!(master.ask::<i64>(&["INCR", "a"]), 2);
    replicas.iter().for_each(|replica| replica.cont());
    cluster.settle();
    assert_eq!(master.ask::<i64>(&["WAIT", "1", "10000"]), 1, "caught up");

    master.hold_back_replication(&replicas);
    assert_eq!(master.ask::<i64>(&["INCRBY", "a", "100"]), 102);
    master.kill();
    replicas.iter().for_each(|replica| replica.cont());
    cluster.wait_for_other_master(slot, master.port());
    assert_eq!(cluster.master_of(slot).ask::<i64>(&["GET", "a"]), 2);
}

/// Asks for the key wherever the answer says, until told to end; how often it was sent elsewhere.
fn keeps_asking(cluster: &Cluster, key: &str, done: &AtomicBool) -> usize {
    let mut redirected = 0;
    while !done.load(Ordering::Relaxed) {
        for node in &cluster.nodes()[..3] {
            match node.command(&["GET", key]) {
                Ok(value) => assert_eq!(value, ::redis::Value::BulkString(b"1".to_vec())),
                Err(error) => {
                    let kind = error.code().unwrap_or_default().to_owned();
                    assert!(["MOVED", "ASK"].contains(&kind.as_str()), "{error}");
                    redirected += 1;
                }
            }
        }
    }
    redirected
}

#[test]
fn a_cluster_moves_slots_with_their_keys_while_it_answers() {
    let cluster = Cluster::start();
    let slot = cluster.slot_of("{a}");
    let from = cluster.master_of(slot);
    let to = cluster.nodes()[..3].iter().find(|node| node.port() != from.port()).unwrap();
    for index in 0..250 {
        from.ask::<()>(&["SET", &format!("{{a}}{index}"), "1"]);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| keeps_asking(&cluster, "{a}0", &done));
        cluster.move_slot(slot, to);
        done.store(true, Ordering::Relaxed);
        assert!(asking.join().unwrap() > 0);
    });
    assert_eq!(cluster.master_of(slot).port(), to.port());
    assert_eq!(to.ask::<i64>(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]), 250);
    assert!(from.command(&["GET", "{a}1"]).unwrap_err().to_string().contains(&to.address()));

    let moved = cluster.move_slots(to, from, 3);
    assert_eq!(moved.len(), 3);
    assert!(moved.iter().all(|slot| cluster.master_of(*slot).port() == from.port()));
    cluster.settle();
}

#[test]
fn a_cluster_fails_over_when_asked_and_when_a_master_dies() {
    let cluster = Cluster::start();
    let slot = cluster.slot_of("a");
    let first = cluster.master_of(slot);
    first.ask::<()>(&["SET", "a", "1"]);

    cluster.failover(slot);
    let second = cluster.master_of(slot);
    assert_ne!(second.port(), first.port());
    assert_eq!(second.ask::<i64>(&["GET", "a"]), 1);
    assert_eq!(cluster.replicas_of(slot).iter().map(|node| node.port()).collect::<Vec<_>>(), [first.port()]);

    second.kill();
    cluster.wait_for_other_master(slot, second.port());
    assert_eq!(cluster.master_of(slot).port(), first.port());
    second.restart();
    cluster.settle();
    assert_eq!(second.info("role"), "slave");
}

#[test]
fn other_releases_make_clusters_and_sentinels_too() {
    for release in Release::installed().into_iter().filter(|release| *release != Release::Debian) {
        let cluster = Cluster::start_with(release);
        let serving: Vec<&Server> =
            cluster.nodes().iter().filter(|node| node.info("role") == "master").collect();
        assert_eq!(serving.len(), 3, "{release:?}");
        drop(cluster);
        let started = Sentinels::start_with(release, Duration::from_millis(1000));
        started.failover();
        assert_ne!(started.master().port(), started.servers()[0].port(), "{release:?}");
    }
}
