//! Values of others: of other programs, damaged, of newer releases. Only checks of their keys fail, and nothing is
//! overwritten.

use super::ask::{BEGIN_US, at, check_of, every_algorithm, granted, one};
use super::desk::Desk;
use crate::store::redis::wire::{Reply, Undecided};

const GOOD: &[u8] = b"sg:{k}:good:1";
const ALSO_GOOD: &[u8] = b"sg:{k}:good:2";
const THEIRS: &[u8] = b"sg:{k}:theirs:1";

/// Asks for a key between two good ones, in one call; returns what is told of it.
fn among_good(desk: &Desk, seq: u64, algorithm: usize) -> Reply {
    let limit = every_algorithm(4_000, 60_000)[algorithm];
    let checks = [one(GOOD, limit, 1), one(THEIRS, limit, 1), one(ALSO_GOOD, limit, 1)];
    let mut replies = desk.checks(&at(BEGIN_US + seq * 1000, seq), &checks).unwrap();
    assert_eq!(granted(&replies[0]), Some(1));
    assert_eq!(granted(&replies[2]), Some(1));
    replies.remove(1)
}

fn dump(desk: &Desk, key: &[u8]) -> Vec<u8> {
    desk.ask(&[b"DUMP", key]).unwrap()
}

#[test]
fn values_of_other_programs_are_left_alone() {
    let desk = Desk::new();
    let others: [&[&[u8]]; 7] = [
        &[b"SET", THEIRS, b"hello"],
        &[b"SET", THEIRS, &[b'x'; 5_000]],
        &[b"SET", THEIRS, b"12345"],
        &[b"HSET", THEIRS, b"field", b"value"],
        &[b"RPUSH", THEIRS, b"item"],
        &[b"SADD", THEIRS, b"member"],
        &[b"ZADD", THEIRS, b"1700000000123", b"player:7"],
    ];
    let mut seq = 0;
    for write in others {
        for algorithm in 0..5 {
            desk.clear();
            desk.ask::<redis_value::Any>(write).unwrap();
            let before = dump(&desk, THEIRS);
            seq += 1;
            assert!(matches!(among_good(&desk, seq, algorithm), Err(Undecided::Foreign)), "{write:?}");
            assert_eq!(dump(&desk, THEIRS), before);
            // All or nothing: a check that names it takes nothing of the others either.
            let limit = every_algorithm(4_000, 60_000)[algorithm];
            let good = dump(&desk, GOOD);
            let both = check_of(&[(GOOD, limit, 1), (THEIRS, limit, 1)], 1);
            let replies = desk.checks(&at(BEGIN_US + seq * 1000, 1_000 + seq), &[both]).unwrap();
            assert!(matches!(replies[0], Err(Undecided::Foreign)));
            assert_eq!(dump(&desk, GOOD), good);
            let refused = desk.reset(&at(BEGIN_US, seq), THEIRS, &limit).unwrap_err();
            assert_eq!(refused.code(), Some("FOREIGNKEY"));
            assert_eq!(dump(&desk, THEIRS), before);
        }
    }
}

/// What a later release writes begins with a format from 2 to 15. It is unavailable, and never overwritten.
#[test]
fn newer_formats_are_told_and_left_alone() {
    let desk = Desk::new();
    for format in 0..=255 {
        for rest in [&[0; 8][..], &[0; 100], &[7; 1000]] {
            if format == 1 {
                continue;
            }
            let value = [&[format], rest].concat();
            desk.put(THEIRS, &value);
            let told = among_good(&desk, u64::from(format) + 1, 0);
            match format {
                2..=15 => assert!(matches!(told, Err(Undecided::Newer)), "{format}"),
                _ => assert!(matches!(told, Err(Undecided::Foreign)), "{format}"),
            }
            assert_eq!(desk.value(THEIRS).unwrap(), value);
        }
    }
    desk.put(THEIRS, &[2; 100]);
    let limit = every_algorithm(5, 1_000)[0];
    assert_eq!(desk.reset(&at(BEGIN_US, 1), THEIRS, &limit).unwrap_err().code(), Some("NEWERFORMAT"));
}

/// A value that ends too early is nobody's: whatever decides meets it, nothing else fails with it.
#[test]
fn truncated_values_fail_alone() {
    let desk = Desk::new();
    for ticks in [6, 30] {
        for algorithm in [0, 2, 3] {
            desk.clear();
            for tick in 0..ticks {
                let limit = every_algorithm(4_000, 60_000)[algorithm];
                desk.granted(&at(BEGIN_US + tick * 1_000, 1), one(THEIRS, limit, 1));
            }
            let whole = desk.value(THEIRS).unwrap();
            for len in 1..whole.len() {
                desk.put(THEIRS, &whole[..len]);
                let told = among_good(&desk, 100, algorithm);
                assert!(matches!(told, Err(Undecided::Foreign)), "{len} of {}: {told:?}", whole.len());
                assert_eq!(desk.value(THEIRS).unwrap(), &whole[..len]);
            }
        }
    }
}

/// One of more than 376 bytes may be decided without a look at what is missing. Nothing else fails with it.
#[test]
fn truncated_long_values_fail_alone() {
    let desk = Desk::new();
    let limit = every_algorithm(4_000, 60_000)[0];
    for tick in 0..100 {
        desk.granted(&at(BEGIN_US + tick * 1_000, 1), one(THEIRS, limit, 1));
    }
    let whole = desk.value(THEIRS).unwrap();
    assert!(whole.len() > 800);
    let mut foreign = 0;
    for len in (377..whole.len()).step_by(7) {
        // The oldest leaves, or none does, or all do.
        for seq in [200, 60_050, 70_000] {
            desk.put(THEIRS, &whole[..len]);
            foreign += u32::from(matches!(among_good(&desk, seq, 0), Err(Undecided::Foreign)));
        }
    }
    assert!(foreign > 10, "{foreign}");
}

mod redis_value {
    use ::redis::{FromRedisValue, ParsingError, Value};

    /// Whatever is answered.
    pub(super) struct Any;

    impl FromRedisValue for Any {
        fn from_redis_value(_: Value) -> Result<Self, ParsingError> {
            Ok(Self)
        }
    }
}
