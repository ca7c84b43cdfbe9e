//! Servers that refuse: full, a replica, a user with the least permissions. What is refused has written nothing.

use slidegate_testbed::redis::Server;

use super::ask::{BEGIN_US, at, check_of, every_algorithm, one};
use super::desk::Desk;

const KEYS: [&[u8]; 2] = [b"sg:{k}:refused:1", b"sg:{k}:refused:2"];

fn dumps(desk: &Desk) -> Vec<Option<Vec<u8>>> {
    KEYS.iter().map(|key| desk.ask(&[b"DUMP", key]).unwrap()).collect()
}

/// R048: a full server refuses whatever the script writes first, also where it would have dropped a key in
/// another format before.
#[test]
fn a_full_server_refuses_and_keeps_what_it_has() {
    let desk = Desk::new();
    for from in 0..5 {
        for to in 0..5 {
            desk.clear();
            let [old, new] = [from, to].map(|n| every_algorithm(9, 60_000)[n]);
            assert_eq!(desk.granted(&at(BEGIN_US, 1), one(KEYS[0], old, 2)), 1);
            let before = dumps(&desk);
            desk.ask::<()>(&[b"CONFIG", b"SET", b"maxmemory", b"1"]).unwrap();
            let checks = [check_of(&[(KEYS[0], new, 1), (KEYS[1], new, 1)], 1), one(KEYS[1], new, 1)];
            let refused = desk.checks(&at(BEGIN_US + 5_000, 2), &checks).unwrap_err();
            assert!(refused.to_string().contains("OOM"), "{refused}");
            let refused = desk.checks(&at(BEGIN_US + 5_000, 3), &[one(KEYS[0], new, 1)]).unwrap_err();
            assert!(refused.to_string().contains("OOM"), "{refused}");
            assert_eq!(dumps(&desk), before, "{old} as {new}");
            desk.ask::<()>(&[b"CONFIG", b"SET", b"maxmemory", b"0"]).unwrap();
        }
    }
}

#[test]
fn a_replica_refuses_and_keeps_what_it_has() {
    let desk = Desk::new();
    for limit in every_algorithm(9, 60_000) {
        desk.clear();
        assert_eq!(desk.granted(&at(BEGIN_US, 1), one(KEYS[0], limit, 2)), 1);
        let before = dumps(&desk);
        // Of a master that is not there.
        desk.ask::<()>(&[b"REPLICAOF", b"127.0.0.1", b"1"]).unwrap();
        let refused = desk.checks(&at(BEGIN_US + 5_000, 2), &[one(KEYS[0], limit, 1)]).unwrap_err();
        assert!(refused.code() == Some("READONLY") || refused.to_string().contains("read only"), "{refused}");
        assert_eq!(dumps(&desk), before, "{limit}");
        desk.ask::<()>(&[b"REPLICAOF", b"NO", b"ONE"]).unwrap();
    }
}

/// R040: the user of docs/redis.md may do all that scripts do, on declared keys.
#[test]
fn the_documented_user_may_do_what_scripts_do() {
    let docs = include_str!("../../../../../../docs/redis.md");
    let rules = docs.lines().find_map(|line| line.strip_prefix("user slidegate ")).unwrap();
    let server = Server::options().user("slidegate", rules).start();
    let desk = Desk::of(server);
    desk.ask::<()>(&[b"AUTH", b"slidegate", b"CHANGE-ME"]).unwrap();
    for from in 0..5 {
        for to in 0..5 {
            let [old, new] = [from, to].map(|n| every_algorithm(9, 60_000)[n]);
            let key = format!("sg:{{k}}:{from}:{to}");
            let key = key.as_bytes();
            assert_eq!(desk.granted(&at(BEGIN_US, 1), one(key, old, 9)), 1);
            // Converted, expired; the clock goes back far.
            for (seq, now_us) in [(2, BEGIN_US), (3, BEGIN_US + 200_000_000)] {
                desk.granted(&at(now_us, seq), one(key, new, 1));
            }
            desk.granted(&at(BEGIN_US + 100_000_000, 4), one(key, new, 1));
            let receipt = slidegate_core::algorithm::Receipt { epoch: 3, at_ms: 1_700_000_200_124, units: 1 };
            desk.settle(&at(BEGIN_US + 200_000_000, 5), key, new, receipt, (1, 1)).unwrap();
            desk.reset(&at(BEGIN_US + 200_000_000, 6), key, &new).unwrap();
        }
    }
    let elsewhere = desk.checks(&at(BEGIN_US, 1), &[one(b"other:1", every_algorithm(9, 1_000)[0], 1)]);
    assert!(elsewhere.is_err());
}
