//! What scripts send: commands that servers since 6.2 have, and that docs/redis.md asks permission for.

use std::collections::BTreeSet;

use slidegate_testbed::redis::Release;

use super::ask::{BEGIN_US, at, every_algorithm, one};
use super::desk::Desk;
use crate::store::redis::scripts::{CHECK, RESET, SETTLE};

/// Commands with what is used of them, and the version that brought the newest of it.
const COMMANDS: [(&str, &str); 18] = [
    ("TIME", "2.6"),
    ("TYPE", "1.0"),
    ("SET", "6.0"), // KEEPTTL
    ("UNLINK", "4.0"),
    ("GETRANGE", "2.4"),
    ("MGET", "1.0"),
    ("SETRANGE", "2.2"),
    ("PEXPIRE", "2.6"),
    ("PTTL", "2.6"),
    ("ZADD", "3.0"), // XX
    ("ZCARD", "1.2"),
    ("ZCOUNT", "2.0"),
    ("ZRANGE", "1.2"),
    ("ZRANGEBYSCORE", "2.0"), // LIMIT, WITHSCORES
    ("ZREVRANGE", "1.2"),
    ("ZREM", "1.2"),
    ("ZREMRANGEBYRANK", "2.0"),
    ("GETDEL", "6.2"), // not in a script
];

/// R042: KEYS is only ever indexed, or named as a whole; each command is known.
#[test]
fn scripts_use_nothing_newer_than_redis_6_2() {
    let mut used = BTreeSet::new();
    for script in [&CHECK, &SETTLE, &RESET] {
        for (at, _) in script.text.match_indices("KEYS") {
            let rest = &script.text[at..];
            assert!(rest.starts_with("KEYS[") || rest.starts_with("KEYS)"), "{}", &rest[..20]);
        }
        for (at, _) in script.text.match_indices("call(") {
            let word = script.text[at..].split('\'').nth(1).unwrap();
            let direct = script.text[at..].starts_with("call('");
            assert!(direct, "a command by a name that is not written out: {}", &script.text[at..at + 20]);
            used.insert(word);
        }
    }
    let known: BTreeSet<&str> = COMMANDS.iter().map(|(name, _)| *name).collect();
    assert!(used.is_subset(&known), "{:?}", used.difference(&known));
    assert!(COMMANDS.iter().all(|(_, since)| *since <= "6.2"));
    let docs = include_str!("../../../../../../docs/redis.md");
    let rules = docs.lines().find(|line| line.starts_with("user slidegate on")).unwrap();
    for name in known {
        let rule = format!("+{}", name.to_lowercase());
        assert!(rules.split(' ').any(|word| word == rule), "{rule} is not in docs/redis.md");
    }
}

/// Every server that is here decides alike.
#[test]
fn every_release_runs_the_scripts() {
    for release in Release::installed() {
        let desk = Desk::at(release);
        for (n, limit) in every_algorithm(3, 60_000).into_iter().enumerate() {
            let key = format!("sg:{{k}}:p:{n}");
            let key = key.as_bytes();
            assert_eq!(desk.granted(&at(BEGIN_US, 1), one(key, limit, 2)), 1, "{release:?}");
            desk.reset(&at(BEGIN_US, 2), key, &limit).unwrap();
            assert_eq!(desk.granted(&at(BEGIN_US, 3), one(key, limit, 3)), 1, "{release:?}");
        }
    }
}
