//! Walks that visit every shape of the tick log.

use std::hash::BuildHasher;

use proptest::collection::vec as vec_of;
use proptest::prelude::*;
use proptest::strategy::Union;
use proptest::test_runner::{RngSeed, TestError, TestRunner};
use slidegate_core::check::Terms;
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_core::time::Millis;

use super::desk::Desk;
use super::walk::{Asked, Fate, Op, Part, Tally, Walk};

/// Cases of each property in everyday runs: some seconds. `PROPTEST_CASES`, where it is set, is used instead.
const CASES: u32 = 96;

/// Some Wednesday, between two milliseconds.
const BEGIN_US: u64 = 1_700_000_000_123_457;

/// As many cases as this or, where it is set, `PROPTEST_CASES`, from a seed that is another each time unless
/// `PROPTEST_RNG_SEED` gives it; a failure shows what is printed.
pub(super) fn config(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { cases };
    let seed = match default.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => std::hash::RandomState::new().hash_one(cases),
    };
    eprintln!("the same once more: PROPTEST_CASES={cases} PROPTEST_RNG_SEED={seed}");
    let rng_seed = RngSeed::Fixed(seed);
    ProptestConfig { cases, rng_seed, max_shrink_iters: 4096, failure_persistence: None, ..default }
}

/// Any `sliding_window` limit, so that logs are small, large, coarse, and everything between.
fn limit() -> impl Strategy<Value = Limit> {
    let permits = prop_oneof![
        1 => Just(0u64),
        8 => 1u64..9,
        6 => 10u64..200,
        2 => 4000u64..9000,
        1 => Just(1_000_000),
        1 => Just(u64::from(u32::MAX)),
    ];
    let window = prop_oneof![
        6 => 1u64..60,
        4 => 60u64..2000,
        4 => 4096u64..20_000,
        1 => Just(3_600_000u64),
        1 => Just(6 * 86_400_000),
        1 => Just(366 * 86_400_000),
    ];
    let resolution = prop_oneof![4 => Just(None), 1 => (1u64..300).prop_map(Some)];
    (permits, window, resolution).prop_map(|(permits, window, resolution)| {
        let limit = Limit::new(permits, Millis(window)).unwrap();
        let resolution = resolution.map(Millis);
        limit.with_algorithm(Algorithm::SlidingWindow { resolution }).unwrap_or(limit)
    })
}

fn part() -> impl Strategy<Value = Part> {
    let cost = prop_oneof![
        1 => Just((0u32, 0u32)),
        12 => (1u32..3, Just(0u32)),
        2 => (1u32..12, 0u32..60),
        1 => (0u32..2, Just(100u32)),
    ];
    let terms = prop_oneof![
        6 => Just(Terms::default()),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(shadow, count_denied)| Terms { shadow, count_denied }),
    ];
    let key = prop_oneof![5 => Just(0usize), 2 => 1usize..3];
    let limit = prop_oneof![5 => Just(0usize), 2 => 1usize..3];
    (key, limit, cost, terms, 0u16..2).prop_map(|(key, limit, cost, terms, group)| Part {
        key,
        limit,
        cost,
        terms,
        group,
    })
}

/// A check of one counter, mostly an ordinary one.
fn single() -> impl Strategy<Value = Asked> {
    let times = prop_oneof![6 => Just(1u32), 2 => 2u32..6, 1 => 9_000u32..9_001];
    (part(), times, prop::bool::weighted(0.05)).prop_map(|(part, times, probe)| {
        let part = if probe { Part { terms: Terms::default(), ..part } } else { part };
        Asked { parts: vec![part], times, probe }
    })
}

/// A check of up to three counters.
fn several() -> impl Strategy<Value = Asked> {
    (vec_of(part(), 1..4), 1u32..4).prop_map(|(mut parts, times)| {
        parts.sort_by_key(|part| part.key);
        parts.dedup_by_key(|part| part.key);
        Asked { parts, times, probe: false }
    })
}

fn check(instances: usize, usual: u32) -> impl Strategy<Value = Op> {
    let fate = prop_oneof![
        8 => Just(Fate::Answered),
        2 => Just(Fate::ReplyLost),
        1 => Just(Fate::Late),
        1 => Just(Fate::Doubled),
    ];
    let ordinary = (0usize..2, 1u32..3).prop_map(|(limit, cost)| {
        let part = Part { key: 0, limit: limit / 2, cost: (cost, 0), terms: Terms::default(), group: 0 };
        (vec![Asked { parts: vec![part], times: 1, probe: false }], 0u64)
    });
    let asked = prop_oneof![
        usual => ordinary,
        24 => single().prop_map(|asked| (vec![asked], 0u64)),
        1 => (single(), 1u64..400).prop_map(|(mut asked, lease)| {
            asked.parts[0].terms = Terms::default();
            (vec![asked], lease)
        }),
        3 => several().prop_map(|asked| (vec![asked], 0)),
        3 => vec_of(prop_oneof![3 => single().boxed(), 1 => several().boxed()], 2..5)
            .prop_map(|asked| (asked, 0)),
    ];
    (0..instances, asked, prop::bool::weighted(0.85), prop::bool::weighted(0.15), fate).prop_map(
        |(who, (asked, lease), ledger, lapsed, fate)| Op::Check { who, asked, lease, ledger, lapsed, fate },
    )
}

fn op(instances: usize, usual: u32) -> impl Strategy<Value = Op> {
    let passes = prop_oneof![
        6 => (0i64..60, 0i64..1500),
        3 => (Just(0i64), 0i64..1500),
        1 => (0i64..1100, 0i64..1500),
    ];
    let back = prop_oneof![
        3 => (-800i64..=0, -2000i64..=0),
        1 => (-5000i64..=0, -2000i64..=0),
        1 => (Just(-1_000_000_000i64), Just(0i64)),
    ];
    let jumps = (0i64..5000, 0i64..3_600_000_000);
    let clock = |(share, micros)| Op::Clock { share, micros };
    let ticks = prop_oneof![
        4 => 1u32..12,
        4 => 36u32..70,
        1 => 100u32..600,
    ];
    let fill = (0usize..3, 0usize..3, ticks, 2u32..9).prop_map(|(key, limit, ticks, holes)| Op::Fill {
        key,
        limit,
        ticks,
        holes,
    });
    Union::new_weighted(vec![
        (30, passes.prop_map(clock).boxed()),
        (60, check(instances, usual).boxed()),
        (4, any::<usize>().prop_map(|pick| Op::Arrive { pick }).boxed()),
        (
            5,
            (any::<usize>(), 0u32..=100, prop_oneof![4 => Just(0u32), 1 => 1u32..4])
                .prop_map(|(pick, give, more)| Op::Settle { pick, give, more })
                .boxed(),
        ),
        (1, (0usize..3, 0usize..3).prop_map(|(key, limit)| Op::Reset { key, limit }).boxed()),
        (2, (0usize..3, 0usize..4).prop_map(|(key, changes)| Op::Lose { key, changes }).boxed()),
        (2, fill.boxed()),
        (2, back.prop_map(clock).boxed()),
        (1, jumps.prop_map(clock).boxed()),
        (1, (0usize..3).prop_map(|key| Op::Persist { key }).boxed()),
    ])
}

/// Limits and what happens under them. In some traces most checks are ordinary ones.
fn trace() -> impl Strategy<Value = (Vec<Limit>, Vec<Op>)> {
    let instances = prop_oneof![2 => Just(1usize), 3 => Just(3usize), 2 => Just(12usize), 1 => Just(90usize)];
    let usual = prop_oneof![Just(5u32), Just(400u32)];
    let length = prop_oneof![2 => Just(60usize), 1 => Just(250)];
    (instances, usual, length).prop_flat_map(|(instances, usual, length)| {
        (vec_of(limit(), 1..4), vec_of(op(instances, usual), 1..length))
    })
}

fn walks(desk: &Desk, cases: u32, strategy: impl Strategy<Value = (Vec<Limit>, Vec<Op>)>) -> Tally {
    let tally = std::cell::RefCell::new(Tally::default());
    let outcome = TestRunner::new(config(cases)).run(&strategy, |(limits, ops)| {
        let mut tally = tally.borrow_mut();
        let mut walk = Walk::new(desk, &mut tally, limits, BEGIN_US);
        ops.iter().for_each(|op| walk.take(op));
        Ok(())
    });
    if let Err(TestError::Fail(reason, (limits, ops))) = outcome {
        let steps: Vec<String> = ops.iter().map(|op| format!("{op:?}")).collect();
        panic!("{reason}\nunder {limits:?}:\n{}", steps.join("\n"));
    }
    tally.into_inner()
}

/// Whatever happens to tick logs, in whatever order: the script answers what core answers, leaves what core
/// leaves, and every key lives for as long as it is needed and not much longer.
#[test]
fn scripts_decide_what_core_decides() {
    let tally = walks(&Desk::new(), CASES, trace());
    eprintln!("{tally:?}");
    assert!(tally.plain * 4 > tally.steps, "{tally:?}");
    assert!(tally.any * 10 > tally.steps, "{tally:?}");
    assert!(tally.restless * 10 < tally.steps, "{tally:?}");
    for reached in [
        tally.stale,
        tally.behind,
        tally.put_back,
        tally.only_put_back,
        tally.long,
        tally.long_plain,
        tally.raised,
        tally.leased,
        tally.refunded,
    ] {
        assert!(reached > 0, "{tally:?}");
    }
}

/// A long log under steady traffic of three instances: plain/tick_log.lua goes round its ring.
#[test]
fn a_ring_goes_round() {
    ring_goes_round(1);
}

/// The same of two counters in each check: the first one's new entry waits for what the second decides.
#[test]
fn two_rings_go_round() {
    ring_goes_round(2);
}

fn ring_goes_round(counters: usize) {
    let desk = Desk::new();
    let mut tally = Tally::default();
    let limit = Limit::new(200, Millis(70)).unwrap();
    let mut walk = Walk::new(&desk, &mut tally, vec![limit], BEGIN_US);
    for step in 0..600 {
        walk.take(&Op::Clock { share: 0, micros: 1_100 });
        let part = |key| Part { key, limit: 0, cost: (1, 0), terms: Terms::default(), group: 0 };
        let asked = vec![Asked { parts: (0..counters).map(part).collect(), times: 1, probe: false }];
        let fate = if step % 50 == 0 { Fate::ReplyLost } else { Fate::Answered };
        walk.take(&Op::Check { who: step % 3, asked, lease: 0, ledger: true, lapsed: false, fate });
    }
    assert!(tally.long_plain > 400 && tally.wrapped > 50, "{tally:?}");
}

/// A slice of the same on every server that is here.
#[test]
fn every_release_decides_alike() {
    for release in slidegate_testbed::redis::Release::installed() {
        let tally = walks(&Desk::at(release), CASES / 8, trace());
        assert!(tally.plain > 0 && tally.any > 0, "{release:?}: {tally:?}");
    }
}

/// A call that asks twice of one counter and comes late was stale for the first check, and decided for the second:
/// its row went back to the older call, whose grant the next one then took for a lost reply.
#[test]
fn a_stale_call_is_stale_for_all_its_checks() {
    let desk = Desk::new();
    let mut tally = Tally::default();
    let mut walk = Walk::new(&desk, &mut tally, vec![Limit::new(9, Millis(1_000)).unwrap()], BEGIN_US);
    let asked = |cost| {
        let part = Part { key: 0, limit: 0, cost: (cost, 0), terms: Terms::default(), group: 0 };
        Asked { parts: vec![part], times: 1, probe: false }
    };
    for fate in [Fate::Late, Fate::Answered] {
        let asked = vec![asked(1), asked(2)];
        walk.take(&Op::Check { who: 0, asked, lease: 0, ledger: true, lapsed: false, fate });
    }
    walk.take(&Op::Arrive { pick: 0 });
    assert_eq!(tally.stale, 2);
}

/// plain.lua charged a log that had just run empty, and whose last tick was the present one, without a new epoch: the
/// reply to the call that had been granted permits of that tick was lost, and a receipt of it could give back what
/// somebody else was charged.
#[test]
fn a_log_that_runs_empty_in_its_last_tick_begins_a_new_epoch() {
    let desk = Desk::new();
    let mut tally = Tally::default();
    let limits = [4_096, 1].map(|window| Limit::new(3, Millis(window)).unwrap());
    let mut walk = Walk::new(&desk, &mut tally, limits.to_vec(), BEGIN_US);
    walk.take(&ask(0, 1, false, Fate::Answered));
    walk.take(&Op::Clock { share: 1, micros: 0 });
    walk.take(&ask(0, 1, true, Fate::ReplyLost));
    // Denied, and the lost permit is taken back: the last tick is empty, an older one is not.
    walk.take(&ask(0, 3, true, Fate::Answered));
    // Under a shorter window the older one has left.
    walk.take(&ask(1, 1, false, Fate::Answered));
    assert_eq!((tally.plain, tally.any), (2, 2), "{tally:?}");
}

/// The clock goes back, and the older of two ticks is the one of a lost reply: without it the other is alone, and
/// moves to now, as everything that is alone. check.lua left it where two had moved, a tick later.
#[test]
fn what_a_lost_reply_leaves_alone_moves_to_now() {
    let desk = Desk::new();
    let mut tally = Tally::default();
    let limit = Limit::new(4_097, Millis(518_400_000)).unwrap();
    let mut walk = Walk::new(&desk, &mut tally, vec![limit], BEGIN_US);
    walk.take(&ask(0, 1, true, Fate::ReplyLost));
    walk.take(&Op::Clock { share: 1, micros: 0 });
    walk.take(&ask(0, 1, false, Fate::Answered));
    walk.take(&Op::Clock { share: -1, micros: -1 });
    walk.take(&ask(0, 1, true, Fate::Answered));
    assert_eq!((tally.steps, tally.restless), (3, 0), "{tally:?}");
}

/// A full ring whose entries all leave at once, under a shorter window: its tail went round to where it had been, and
/// plain.lua, which looks at the TTL when the tail has moved, left the key the hour of the longer window.
#[test]
fn a_ring_that_leaves_whole_has_its_ttl_corrected() {
    let desk = Desk::new();
    let mut tally = Tally::default();
    let limits = [3_600_000, 50].map(|window| Limit::new(200, Millis(window)).unwrap());
    let mut walk = Walk::new(&desk, &mut tally, limits.to_vec(), BEGIN_US);
    walk.take(&Op::Fill { key: 0, limit: 0, ticks: 64, holes: 90 });
    walk.take(&Op::Clock { share: 0, micros: 100_000 });
    walk.take(&ask(0, 1, false, Fate::Answered));
    walk.take(&ask(1, 1, false, Fate::Answered));
    assert_eq!((tally.plain, tally.long_plain), (2, 2), "{tally:?}");
}

/// A check of the first counter.
fn ask(limit: usize, cost: u32, ledger: bool, fate: Fate) -> Op {
    let part = Part { key: 0, limit, cost: (cost, 0), terms: Terms::default(), group: 0 };
    let asked = vec![Asked { parts: vec![part], times: 1, probe: false }];
    Op::Check { who: 0, asked, lease: 0, ledger, lapsed: false, fate }
}
