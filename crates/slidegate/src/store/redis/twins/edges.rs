//! Numbers at their ends: instants near 2^53 us, 2^32 - 1 permits, costs past what Lua's stack holds, the shortest
//! and the longest window, full logs.

use slidegate_core::algorithm::State;
use slidegate_core::check::{Charge, Terms, decide};
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_core::time::{Millis, Now};

use super::ask::{BEGIN_US, at, check_of, every_algorithm, one};
use super::desk::Desk;
use super::walk::{Asked, Fate, Op, Part, Tally, Walk};

use crate::store::redis::wire;

/// What came of a check: granted, and what is told.
type Told = (u32, slidegate_core::decision::Outcome);

/// The same checks to a script and to core, both from nothing.
fn compare(desk: &Desk, limit: Limit, checks: &[(u64, u32, u32)]) {
    desk.clear();
    let first = Now::from_micros(checks[0].0);
    let epoch = u32::try_from(first.floor_ms() & u64::from(u32::MAX)).unwrap();
    let mut state = State::new(&limit, epoch);
    for (seq, (now_us, cost, times)) in checks.iter().enumerate() {
        let now = Now::from_micros(*now_us);
        let expected = model(&mut state, now, limit, *cost, *times);
        let draft = at(*now_us, u64::try_from(seq).unwrap() + 1);
        let replies = desk.checks(&draft, &[check_of(&[(b"sg:{k}:p:1", limit, *cost)], *times)]).unwrap();
        let [Ok(wire::Told { decided, .. })] = &replies[..] else { panic!("{replies:?}") };
        let found: Told = (decided.answer.granted, decided.answer.outcomes[0]);
        assert_eq!(found, expected, "{limit} at {now_us} us: {times} x {cost}");
    }
}

fn model(state: &mut State, now: Now, limit: Limit, cost: u32, times: u32) -> Told {
    let mut charges = [Charge::new(state, &limit, cost, 0, Terms::default())];
    let granted = decide(now, times, &mut charges);
    (granted, charges[0].outcome)
}

/// R015, R017: numbers of 14 and more digits arrive whole, in every algorithm.
#[test]
fn the_last_instants_and_the_largest_limits_are_decided_as_core_does() {
    let desk = Desk::new();
    let last = Now::MAX.as_micros();
    for begin in [BEGIN_US, 1_700_000_000_000_000, last - 400 * 86_400_000_000, last - 1_000_001, last] {
        for window in [1, 999, 60_000, 366 * 86_400_000] {
            for permits in [1, 9_000, 1_000_000, u64::from(u32::MAX)] {
                for limit in limits(permits, window) {
                    let queue = matches!(limit.algorithm(), Algorithm::LeakyBucket { .. });
                    if queue && begin + 2000 * window > last {
                        continue; // Core looks ahead, and there is nothing behind the last instant.
                    }
                    let full = limit.capacity();
                    let some = full.min(9_000);
                    let later = |us: u64| (begin + us).min(last);
                    let checks = [
                        (begin, some, 1),
                        (later(1), 1, 9_000),
                        (later(999), some, 3),
                        (later(window * 1000 - 1), 1, 1),
                        (later(window * 1000 + 1001), 2.min(full), 2),
                    ];
                    compare(&desk, limit, &checks);
                }
            }
        }
    }
}

fn limits(permits: u64, window: u64) -> Vec<Limit> {
    let limit = Limit::new(permits, Millis(window)).unwrap();
    // One entry for each permit: the largest takes seconds.
    let log = if permits > 9_000 { Algorithm::FixedWindow } else { Algorithm::SlidingLog };
    let burst = u32::try_from(permits).unwrap();
    let max_delay = Millis(window / 2);
    [
        Algorithm::SLIDING_WINDOW,
        log,
        Algorithm::FixedWindow,
        Algorithm::TokenBucket { burst },
        Algorithm::LeakyBucket { max_delay },
    ]
    .into_iter()
    .filter_map(|algorithm| limit.with_algorithm(algorithm).ok())
    .collect()
}

/// All of 2^32 - 1 permits at once, and one more.
#[test]
fn the_largest_limit_is_held_to_the_permit() {
    let desk = Desk::new();
    for (n, limit) in limits(u64::from(u32::MAX), 60_000).into_iter().enumerate() {
        if matches!(limit.algorithm(), Algorithm::LeakyBucket { .. }) {
            continue; // A queue, which takes more than N: the test above has it.
        }
        let key = format!("sg:{{k}}:p:{n}");
        assert_eq!(desk.granted(&at(BEGIN_US, 1), one(key.as_bytes(), limit, u32::MAX - 1)), 1);
        assert_eq!(desk.granted(&at(BEGIN_US, 2), one(key.as_bytes(), limit, 1)), 1);
        assert_eq!(desk.granted(&at(BEGIN_US, 3), one(key.as_bytes(), limit, 1)), 0, "{limit}");
    }
}

/// Lua's stack holds some 8,000 values: what is spread over a command is sent in parts.
#[test]
fn a_sorted_log_drops_8001_entries_and_takes_9000() {
    let desk = Desk::new();
    let limit = every_algorithm(20_000, 1_000)[1];
    let key = b"sg:{k}:p:1";
    assert_eq!(desk.granted(&at(BEGIN_US, 1), one(key, limit, 8_001)), 1);
    assert_eq!(desk.granted(&at(BEGIN_US + 1_001_000, 2), one(key, limit, 9_000)), 1);
    assert_eq!(desk.ask::<i64>(&[b"ZCARD", key]).unwrap(), 9_000);
    // The clock goes back, and all of them move.
    assert_eq!(desk.granted(&at(BEGIN_US - 10_000_000, 3), one(key, limit, 11_001)), 0);
    assert_eq!(desk.granted(&at(BEGIN_US - 10_000_000, 4), one(key, limit, 11_000)), 1);
    assert_eq!(desk.ask::<i64>(&[b"ZCARD", key]).unwrap(), 20_000);
}

/// R001, R017: members are whole numbers, and each unit has its own.
#[test]
fn a_sorted_log_writes_whole_numbers() {
    let desk = Desk::new();
    let limit = every_algorithm(1_000_000, 366 * 86_400_000)[1];
    let key = b"sg:{k}:p:1";
    let seq = 9_007_199_254_740_991;
    assert_eq!(desk.granted(&at(Now::MAX.as_micros(), seq), one(key, limit, 1_000)), 1);
    let found: Vec<String> = desk.ask(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]).unwrap();
    assert_eq!(found.len(), 2_000);
    for pair in found.chunks(2) {
        assert_eq!(pair[1], "9007199254741");
        let parts: Vec<&str> = pair[0].split(':').collect();
        assert_eq!(parts[..2], ["4294967295", "696e7374616e6365"]);
        assert!(parts[2].parse::<u32>().is_ok_and(|n| (1..=1_000).contains(&n)), "{}", pair[0]);
    }
}

/// A ring that is full (8192 entries; with a resolution of its own 65,536) loses what refunds have emptied, then
/// its resolution. Limits and leases raise it as well.
#[test]
fn full_rings_make_space_as_core_does() {
    let desk = Desk::new();
    let mut tally = Tally::default();
    let hour = Limit::new(4_000, Millis(3_600_000)).unwrap();
    let coarser = Limit::new(1_000_000, Millis(20_000_000)).unwrap();
    let own = Limit::new(100_000_000, Millis(131_072))
        .and_then(|limit| limit.with_algorithm(Algorithm::SlidingWindow { resolution: Some(Millis(2)) }))
        .unwrap();
    let part = |limit| Part {
        key: 0,
        limit,
        cost: (1, 0),
        terms: Terms { shadow: false, count_denied: true },
        group: 0,
    };
    let ask = |limit, lease| Op::Check {
        who: 0,
        asked: vec![Asked {
            parts: vec![Part { terms: Terms { count_denied: lease == 0, shadow: false }, ..part(limit) }],
            times: 1,
            probe: false,
        }],
        lease,
        ledger: true,
        lapsed: false,
        fate: Fate::Answered,
    };
    let fills = [(0, 8_192, 90_000), (0, 8_193, 90_000), (0, 8_193, 3), (0, 8_193, 20), (2, 65_537, 90_001)];
    for (limit, ticks, holes) in fills {
        let mut walk = Walk::new(&desk, &mut tally, vec![hour, coarser, own], BEGIN_US);
        walk.take(&Op::Fill { key: 0, limit, ticks, holes });
        for _ in 0..3 {
            walk.take(&Op::Clock { share: 0, micros: 2_000 });
            walk.take(&ask(limit, 0));
        }
        walk.take(&Op::Settle { pick: 0, give: 100, more: 2 });
        walk.take(&Op::Clock { share: 998, micros: 500 });
        walk.take(&ask(limit, 40));
        walk.take(&ask(1, 0));
        walk.take(&Op::Clock { share: -500, micros: 0 });
        walk.take(&ask(0, 0));
    }
    assert!(tally.raised >= 5 && tally.leased > 0, "{tally:?}");
}
