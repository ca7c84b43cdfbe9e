//! Slots keep to their counters: eviction in the middle of a check, receipts of counters that are gone,
//! limits that change between a reservation and its end.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

#[test]
fn a_counter_is_never_evicted_by_the_check_that_charges_it() {
    // The first draft gave the absent counter of a check the slot of the present one: the present count was
    // lost, and the slot was no longer in the index. One key, two limits, one of them evicted before.
    let (_clock, store) = store(2);
    let both = policy("5/h; 5/d");
    let other = policy("2/m");
    let mut admitted = 0;
    for _ in 0..50 {
        admitted += check(&store, &both, "a", 1).granted;
        // Evicts one of the two, whichever it is, and then has fewer permits left than the other.
        check(&store, &other, "x", 1);
        let figures = store.figures();
        assert!(figures.keys <= 2, "{figures:?}");
    }
    // With one of two counters always there, neither limit could ever be passed.
    let evictions = store.figures().live_evictions;
    assert!(u64::from(admitted) <= 5 + evictions, "{admitted} admitted, {evictions} evictions");
    for shard in &store.shards {
        shard.lock().assert_sound();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Check { keys: Vec<usize>, cost: Cost },
    Reset { key: usize },
    Sweep,
    Advance { ms: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (proptest::sample::subsequence(vec![0, 1, 2, 3, 4, 5, 6, 7], 1..4), 0..4u32)
            .prop_map(|(keys, cost)| Step::Check { keys, cost }),
        1 => (0..8usize).prop_map(|key| Step::Reset { key }),
        1 => Just(Step::Sweep),
        2 => (0..1500u64).prop_map(|ms| Step::Advance { ms }),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    /// However full the store is and whatever comes and goes: the index names exactly the slots, no check
    /// grants more than its limit since its counter was last reset or evicted, and the bound holds.
    #[test]
    fn a_full_store_stays_sound(steps in steps(), max_keys in 1..6usize) {
        let (clock, store) = store(max_keys);
        let policies: Vec<_> = ["a", "b", "c", "d", "e", "f", "g", "h"]
            .map(|name| Policy::builder(name).limits("3/s").build().unwrap())
            .into();
        let key = Key::EMPTY;
        let mut admitted: HashMap<usize, Vec<(u64, u32)>> = HashMap::new();
        for step in steps {
            match step {
                Step::Check { keys, cost } => {
                    let evictions = store.figures().live_evictions;
                    let charges: Vec<_> =
                        keys.iter().map(|at| charge(&policies[*at], &key, &policies[*at].limits()[0], cost)).collect();
                    let answer = store.check_now(&Check { times: 1, charges: &charges, reserve: None }).unwrap();
                    if store.figures().live_evictions > evictions {
                        // Some client starts afresh; which one is not told.
                        admitted.clear();
                    }
                    if answer.granted == 1 {
                        let now = clock.now().floor_ms();
                        for at in &keys {
                            let log = admitted.entry(*at).or_default();
                            log.push((now, cost));
                            let in_window = log.iter().filter(|(then, _)| then + 1000 > now);
                            prop_assert!(in_window.map(|(_, cost)| cost).sum::<u32>() <= 3);
                        }
                    }
                }
                Step::Reset { key: at } => {
                    let counter = Counter { policy: &policies[at], key: &key, limit: &policies[at].limits()[0] };
                    let address = store.address(&counter);
                    store.shards[address.shard].lock().remove(address.id);
                    admitted.remove(&at);
                }
                Step::Sweep => drop(store.sweep()),
                Step::Advance { ms } => clock.advance(Duration::from_millis(ms)),
            }
            prop_assert!(store.figures().keys <= max_keys as u64);
            for shard in &store.shards {
                shard.lock().assert_sound();
            }
        }
    }
}

fn reset(store: &FakeStore, policy: &Policy, value: &str) {
    let key = key(value);
    for limit in policy.limits() {
        let address = store.address(&Counter { policy, key: &key, limit });
        store.shards[address.shard].lock().remove(address.id);
    }
}

#[test]
fn a_receipt_from_before_a_reset_never_fits_the_new_counter() {
    // The clock's step had raised the old counter's epoch to the one that the next new counter got: the old
    // reservation then gave back what others had been charged in the same millisecond.
    let (clock, store) = store(100);
    let policy = policy("2/m");
    assert!(allows(&store, &policy, "a"));
    clock.step_back(Duration::from_secs(3600));
    let id = ReservationId::random();
    assert_eq!(try_check(&store, &policy, "a", 1, Some(id)).unwrap().granted, 1);
    reset(&store, &policy, "a");
    assert!(allows(&store, &policy, "a"));
    assert_eq!(store.settle_now(id, 0), Settled::Done { given_back: 0, charged: 0 });
    assert_eq!(used(&store, &policy, "a"), [1]);
}

#[test]
fn successive_counters_of_a_key_never_have_the_same_epoch() {
    // Counters come and go in any order, old ones after young ones, while new ones are numbered in between.
    let (_clock, store) = store(100);
    let policy = policy("9/m");
    let mut seen = HashSet::new();
    let mut random = 1u64;
    for _ in 0..50_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let value = (random >> 60).to_string();
        reset(&store, &policy, &value);
        assert!(allows(&store, &policy, &value));
        let key = key(&value);
        let address = store.address(&Counter { policy: &policy, key: &key, limit: &policy.limits()[0] });
        let epoch = store.shards[address.shard].lock().epoch(address.id).unwrap();
        assert!(seen.insert((value, epoch)), "{epoch} again");
    }
}

#[test]
fn a_receipt_from_before_an_eviction_never_fits_the_new_counter() {
    let (clock, store) = store(1);
    let policy = policy("9/m");
    assert!(allows(&store, &policy, "a"));
    clock.step_back(Duration::from_secs(3600));
    assert!(allows(&store, &policy, "a"));
    clock.step_back(Duration::from_secs(3600));
    let id = ReservationId::random();
    assert_eq!(try_check(&store, &policy, "a", 1, Some(id)).unwrap().granted, 1);
    assert!(allows(&store, &policy, "b"));
    assert!(allows(&store, &policy, "a"));
    assert_eq!(store.settle_now(id, 0), Settled::Done { given_back: 0, charged: 0 });
    assert_eq!(used(&store, &policy, "a"), [1]);
}

#[test]
fn settling_what_was_reserved_under_a_shorter_window_forgets_nothing() {
    // A reload made 3/1s into 3/60s. Settling an older reservation brought the counter up to now under the
    // old window, which dropped two seconds of history that the new one counts: 6 passed within a minute.
    for actual in [0, 1, 2] {
        let (clock, store) = store(100);
        let (short, long) = (policy("3/10s"), policy("3/60s"));
        assert!(allows(&store, &short, "a"));
        assert!(allows(&store, &short, "a"));
        clock.advance(Duration::from_secs(9));
        let id = ReservationId::random();
        assert_eq!(try_check(&store, &short, "a", 1, Some(id)).unwrap().granted, 1);
        assert_eq!(used(&store, &long, "a"), [3]);
        clock.advance(Duration::from_secs(9));
        assert_ne!(store.settle_now(id, actual), Settled::Unknown);
        clock.advance(Duration::from_secs(20));
        store.sweep();
        assert!(!allows(&store, &long, "a"), "settled at {actual}");
    }
}
