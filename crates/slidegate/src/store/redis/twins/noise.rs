//! Random bytes, in calls and under keys: no server ends, nothing outside of KEYS is written, and no other key's
//! check fails.

use proptest::collection::vec as vec_of;
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use slidegate_core::algorithm::Receipt;

use super::ask::{BEGIN_US, at, every_algorithm, granted, one};
use super::desk::Desk;
use super::shapes::config;
use crate::store::redis::scripts::{CHECK, RESET, SETTLE};
use crate::store::redis::wire::{Settle, Undecided};

const KEY: &[u8] = b"sg:{k}:noise:1";
const CASES: u32 = 512;

/// Runs a property, and says what failed.
fn holds<T: std::fmt::Debug>(strategy: impl Strategy<Value = T>, property: impl Fn(T)) {
    let outcome = TestRunner::new(config(CASES)).run(&strategy, |input| {
        property(input);
        Ok(())
    });
    if let Err(TestError::Fail(reason, input)) = outcome {
        panic!("{reason}: {input:?}");
    }
}

/// The names of all keys but [`KEY`].
fn others(desk: &Desk) -> Vec<String> {
    let mut keys: Vec<String> = desk.ask(&[b"KEYS", b"*"]).unwrap();
    keys.retain(|key| key.as_bytes() != KEY);
    keys
}

#[test]
fn random_arguments_write_no_other_key() {
    let desk = Desk::new();
    let pid = desk.server().pid();
    let head = vec_of(any::<u8>(), 0..200);
    let shaped = (0u8..4, 0u8..3, 0u8..4, vec_of(any::<u8>(), 0..120))
        .prop_map(|(version, now, limits, rest)| [&[version, now, limits, 1, 0][..], &rest].concat());
    let scripts = prop_oneof![Just(0usize), Just(1), Just(2)];
    holds((prop_oneof![head, shaped], scripts), |(bytes, script)| {
        let script = [&CHECK, &SETTLE, &RESET][script];
        let _refused = desk.run_raw(script, &[KEY], &[&bytes, b"60000", b"60000"]);
        assert_eq!(others(&desk), Vec::<String>::new());
    });
    assert_eq!(desk.server().pid(), pid);
    assert!(desk.server().runs());
}

/// One bit of a good call is turned.
#[test]
fn damaged_calls_write_no_other_key() {
    let desk = Desk::new();
    let [log, _, window, bucket, queue] = every_algorithm(5, 1_000);
    let limits = [log, window, bucket, queue];
    let settle = |limit| {
        let receipt = Receipt { epoch: 1, at_ms: BEGIN_US / 1000, units: 1 };
        at(BEGIN_US, 9).settle(&[Settle { key: KEY.into(), limit, receipt, give_back: 1, charge: 1 }])
    };
    holds((0usize..4, 0usize..3, any::<prop::sample::Index>(), 0u8..8), |(limit, kind, place, bit)| {
        let limit = limits[limit];
        let (script, call) = match kind {
            0 => (&CHECK, at(BEGIN_US, 9).checks(&[one(KEY, limit, 2)], |_| None, |_| None)),
            1 => (&SETTLE, settle(limit)),
            _ => (&RESET, at(BEGIN_US, 9).reset(KEY.into(), &limit)),
        };
        let args = call.args();
        let mut blob = args[0].to_vec();
        let place = place.index(blob.len());
        blob[place] ^= 1 << bit;
        let _refused = desk.run_raw(script, &[KEY], &[&blob, args[1]]);
        assert_eq!(others(&desk), Vec::<String>::new());
        assert_ne!(desk.pttl(KEY), -1, "a key without a TTL");
        desk.clear();
    });
    assert!(desk.server().runs());
}

/// What stands under one key makes no check of another fail, and is replaced only where it could be a counter.
#[test]
fn random_values_fail_alone() {
    let desk = Desk::new();
    let (before, after) = (b"sg:{k}:good:1", b"sg:{k}:good:2");
    let random = vec_of(any::<u8>(), 1..600);
    let shaped =
        (0u8..3, vec_of(any::<u8>(), 0..600)).prop_map(|(kind, rest)| [&[1, kind][..], &rest].concat());
    let small = vec_of(prop_oneof![5 => Just(0u8), 2 => 0u8..9, 1 => any::<u8>()], 62..500)
        .prop_map(|rest| [&[1, 0][..], &rest].concat());
    let damaged = (1usize..90, any::<prop::sample::Index>(), 0u8..8);
    holds(
        (prop_oneof![random, shaped, small], damaged, 0usize..5, 1u64..100),
        |(value, damage, algorithm, seq)| {
            desk.clear();
            let limit = every_algorithm(4_000, 60_000)[algorithm];
            let mut values = vec![value];
            let (ticks, place, bit) = damage;
            for tick in 0..ticks {
                desk.granted(&at(BEGIN_US + 1_000 * u64::try_from(tick).unwrap(), 1), one(KEY, limit, 1));
            }
            if let (true, Ok(mut good)) = (algorithm != 1, desk.ask::<Vec<u8>>(&[b"GET", KEY])) {
                let place = place.index(good.len());
                good[place] ^= 1 << bit;
                values.push(good);
            }
            for value in values {
                for cost in [0, 1] {
                    desk.put(KEY, &value);
                    let checks = [one(before, limit, 1), one(KEY, limit, cost), one(after, limit, 1)];
                    let now = BEGIN_US + seq * 1_000_000;
                    let replies = desk.checks(&at(now, seq), &checks).unwrap();
                    assert_eq!((granted(&replies[0]), granted(&replies[2])), (Some(1), Some(1)));
                    if matches!(replies[1], Err(Undecided::Foreign | Undecided::Newer)) {
                        assert_eq!(desk.value(KEY).unwrap(), value);
                    }
                    // It may be gone: what has expired leaves nothing for a sorted set to hold.
                    assert_ne!(desk.pttl(KEY), -1, "a key without a TTL");
                }
            }
        },
    );
}
