//! Every key lives for as long as it says something, and not much longer.

use slidegate_core::limit::Limit;
use slidegate_core::time::Millis;
use slidegate_testbed::wait;

use super::ask::{BEGIN_US, at, by_server, every_algorithm, one};
use super::desk::{Desk, LINGER};
use crate::store::redis::scripts::CHECK;

use crate::store::redis::wire;

const KEY: &[u8] = b"sg:{k}:lives:1";

#[track_caller]
fn lives(desk: &Desk, least: u64, most: u64) {
    let ttl = u64::try_from(desk.pttl(KEY)).expect("a TTL");
    let linger = LINGER.get();
    // A minute for a busy machine.
    assert!(ttl + 60_000 >= least + linger && ttl <= most + linger, "{ttl} ms, not {least} to {most}");
}

/// Windows raised, lowered, and TTLs taken away by hand: a denial puts it right, and a peek.
#[test]
fn denials_and_peeks_heal_the_ttl() {
    let desk = Desk::new();
    let hour = 3_600_000;
    for algorithm in 0..5 {
        desk.clear();
        let of = |window: u64| every_algorithm(1, window)[algorithm];
        assert_eq!(desk.granted(&at(BEGIN_US, 1), one(KEY, of(hour), 1)), 1);
        for (seq, cost) in [(2, 1), (3, 0), (4, 2)] {
            assert_eq!(desk.ask::<i64>(&[b"PERSIST", KEY]).unwrap(), 1);
            desk.checks(&at(BEGIN_US, seq), &[one(KEY, of(hour), cost)]).unwrap();
            assert_ne!(desk.pttl(KEY), -1, "algorithm {algorithm}, cost {cost}");
        }
        if algorithm == 0 {
            lives(&desk, hour, hour + 61_001);
            for (window, cost) in [(24 * hour, 1), (hour, 0), (48 * hour, 0), (2 * hour, 1)] {
                desk.checks(&at(BEGIN_US + 500, 5), &[one(KEY, of(window), cost)]).unwrap();
                lives(&desk, window, window + 61_001);
            }
        }
    }
}

/// A reservation of before the window was raised is settled under its old limit. The key then got the old limit's
/// TTL: a second later the last hour was forgotten, and all of it admitted once more.
#[test]
fn what_is_settled_under_an_old_limit_lives_on() {
    let desk = Desk::new();
    for algorithm in 0..5 {
        desk.clear();
        let [old, new] = [1_000, 3_600_000].map(|window| every_algorithm(100, window)[algorithm]);
        let replies = desk.checks(&at(BEGIN_US, 1), &[one(KEY, old, 2)]).unwrap();
        let [Ok(wire::Told { decided, .. })] = &replies[..] else { panic!("{replies:?}") };
        assert_eq!(desk.granted(&at(BEGIN_US, 2), one(KEY, new, 50)), 1);
        let before = desk.pttl(KEY);
        desk.settle(&at(BEGIN_US, 3), KEY, old, decided.receipts[0].unwrap(), (1, 0)).unwrap();
        assert!(desk.pttl(KEY) > before - 60_000, "algorithm {algorithm}: {} of {before}", desk.pttl(KEY));
    }
}

/// R020: with windows of 1 to 5 ms keys come and go between calls; none stays for ever.
#[test]
fn keys_of_short_windows_never_lack_a_ttl() {
    let desk = Desk::new();
    for seq in 1..3_000 {
        let limit = Limit::new(3, Millis(1 + seq % 5)).unwrap();
        let call = by_server(seq).checks(&[one(KEY, limit, 1 + u32::from(seq % 7 == 0))], |_| None, |_| None);
        desk.run(&CHECK, &call).unwrap();
        assert_ne!(desk.pttl(KEY), -1);
    }
}

/// 100,000 keys of ended windows leave nothing, nor do those that were reset.
#[test]
fn ended_windows_leave_no_key() {
    let desk = Desk::new();
    let mut seq = 0;
    for batch in 0..400u32 {
        let limit = every_algorithm(5, 20)[usize::try_from(batch % 5).unwrap()];
        let keys: Vec<Vec<u8>> = (0..250).map(|n| format!("sg:{{{batch}-{n}}}:p:1").into_bytes()).collect();
        let checks: Vec<_> = keys.iter().map(|key| one(key, limit, 1)).collect();
        seq += 1;
        assert_eq!(desk.checks(&by_server(seq), &checks).unwrap().len(), 250);
        for key in keys.iter().step_by(10) {
            desk.reset(&by_server(seq), key, &limit).unwrap();
        }
    }
    wait::until("all keys to end", wait::PATIENCE, || desk.size() == 0);
    assert_eq!(desk.size(), 0);
}
