//! At most so many counters, and what gives way for a new one.

use super::*;

fn is_held(store: &FakeStore, policy: &Policy, value: &str) -> bool {
    used(store, policy, value)[0] > 0
}

#[test]
fn what_has_expired_is_swept_to_the_last_key() {
    // F17: an index of counters that never shrank.
    let (clock, store) = store(200_000);
    let policy = policy("5/s");
    for n in 0..100_000 {
        assert!(allows(&store, &policy, &n.to_string()));
    }
    assert_eq!(store.figures().keys, 100_000);
    clock.advance(Duration::from_millis(999));
    assert_eq!(store.sweep(), 0);
    clock.advance(Duration::from_millis(1));
    assert_eq!(store.sweep(), 100_000);
    assert_eq!(store.figures(), MemoryFigures::default());
}

#[test]
fn whatever_was_asked_nothing_is_left_when_its_windows_are_over() {
    // R020, R021: a counter lost its end, and its client was denied for ever.
    let (clock, store) = store(1000);
    let policies = ["1/1ms", "2/3ms; 9/5ms", "3/2ms"].map(policy);
    for n in 0..20_000_u32 {
        let (policy, value) = (&policies[n as usize % 3], (n % 7).to_string());
        let id = (n % 5 == 0).then(ReservationId::random);
        let answer = try_check(&store, policy, &value, n % 4, id).unwrap();
        if let Some(id) = id.filter(|_| n % 10 == 0 && answer.granted == 1) {
            store.settle_now(id, n % 3);
        }
        clock.advance(Duration::from_micros(u64::from(n % 11) * 70));
    }
    assert!(store.figures().keys > 0);
    // A window, and the millisecond that an admission may be charged late.
    clock.advance(Duration::from_millis(6));
    store.sweep();
    assert_eq!(MemoryFigures { live_evictions: 0, ..store.figures() }, MemoryFigures::default());
}

#[test]
fn peeks_and_denials_create_nothing() {
    // R026: reading made keys that never went away.
    let (_clock, store) = store(100);
    let (policy, nobody) = (policy("2/m"), policy("0/m"));
    for n in 0..1000 {
        let value = n.to_string();
        assert_eq!(check(&store, &policy, &value, 0).granted, 1);
        assert_eq!(check(&store, &policy, &value, 3).granted, 0);
        assert_eq!(check(&store, &nobody, &value, 1).granted, 0);
    }
    assert_eq!(store.figures(), MemoryFigures::default());
}

#[test]
fn the_empty_key_counts_towards_the_bound_and_leaves_like_any_other() {
    // R064: the empty key blocked eviction, and the map grew without end.
    let (_clock, store) = store(2);
    let policy = policy("5/m");
    for value in ["", "one", "two", "three", "", "four"] {
        assert!(allows(&store, &policy, value));
        assert!(store.figures().keys <= 2);
    }
    assert!(store.figures().live_evictions >= 3);
}

#[test]
fn the_bound_holds_at_any_size() {
    let policy = policy("5/m");
    for max_keys in [1, 2, 7, 1023, 1024, 2049, 20_001] {
        let (_clock, store) = store(max_keys);
        for n in 0..3 * max_keys {
            assert!(allows(&store, &policy, &n.to_string()), "nobody is denied here");
        }
        let figures = store.figures();
        assert!(figures.keys <= max_keys as u64 && figures.keys > max_keys as u64 * 9 / 10);
        assert_eq!(figures.keys + figures.live_evictions, 3 * max_keys as u64);
        store.shards.iter().for_each(|shard| shard.lock().assert_sound());
    }
}

#[test]
fn sizes_out_of_range_become_the_nearest_one_in_it() {
    // A size from a configuration could ask for more than any machine has, and panicked.
    assert_eq!(MemoryStore::builder().max_keys(0).max_keys, 1);
    assert_eq!(MemoryStore::builder().max_keys(usize::MAX).max_keys, MAX_KEYS_MOST);
}

#[test]
fn a_flood_of_new_keys_never_frees_a_denied_one() {
    // R7, small: five times as many keys as there is space for. R051: clients at their limit were handed a
    // fresh quota when the map was full.
    let (clock, store) = store(20_000);
    let policy = policy("2/h");
    let denied: Vec<_> = (0..50).map(|n| format!("denied {n}")).collect();
    for value in &denied {
        assert!(allows(&store, &policy, value) && allows(&store, &policy, value));
    }
    for n in 0..100_000 {
        assert!(allows(&store, &policy, &n.to_string()));
        if n % 5000 == 0 {
            clock.advance(Duration::from_secs(60));
            assert!(denied.iter().all(|value| !allows(&store, &policy, value)));
            assert!(store.figures().keys <= 20_000);
        }
    }
    let figures = store.figures();
    assert!(figures.keys > 19_000 && figures.full_denials == 0, "{figures:?}");
    assert_eq!(figures.keys + figures.live_evictions, 100_050);
}

#[test]
fn a_store_full_of_denied_keys_denies_new_ones_and_says_so() {
    // R078: once the table was full, new clients were admitted without being counted.
    let (clock, store) = store(1000);
    let (policy, short) = (policy("1/m"), Policy::builder("short").limits("5/s").build().unwrap());
    for n in 0..1000 {
        assert!(allows(&store, &policy, &n.to_string()));
    }
    for tries in 1..=100 {
        let full = check(&store, &short, "new", 1);
        assert_eq!((full.granted, full.mode), (0, Mode::Full));
        let outcome = full.outcomes[0];
        assert_eq!((outcome.violated, outcome.retry_after, outcome.used), (true, None, 0));
        assert_eq!(store.figures().full_denials, tries);
    }
    // Those inside go on as before, and reading is always possible.
    assert_eq!(check(&store, &policy, "7", 1).mode, Mode::Normal);
    let peek = check(&store, &short, "new", 0);
    assert_eq!((peek.granted, peek.mode), (1, Mode::Normal));
    assert_eq!(store.figures(), MemoryFigures { keys: 1000, full_denials: 100, ..Default::default() });
    // When the denied ones are free again there is space, without a sweep.
    clock.advance(Duration::from_secs(60));
    let allowed: u32 = (0..100).map(|_| check(&store, &short, "new", 1).granted).sum();
    assert_eq!(allowed, 5);
    assert_eq!(store.figures().live_evictions, 0);
}

#[test]
fn a_new_key_beside_a_present_one_is_denied_whole_when_the_store_is_full() {
    let (_clock, store) = store(2);
    let (policy, other) = (policy("1/m"), Policy::builder("other").limits("9/m").build().unwrap());
    assert!(allows(&store, &other, "there"));
    assert!(allows(&store, &policy, "denied"));
    let (there, new) = (key("there"), key("new"));
    let charges = [
        charge(&other, &there, &other.limits()[0], 1),
        Charge { group: 1, ..charge(&policy, &new, &policy.limits()[0], 1) },
    ];
    let answer = store.check_now(&Check { times: 1, charges: &charges, reserve: None }).unwrap();
    assert_eq!((answer.granted, answer.mode), (0, Mode::Full));
    assert_eq!((answer.outcomes[0].violated, answer.outcomes[1].violated), (false, true));
    assert_eq!(used(&store, &other, "there"), [1]);
}

#[test]
fn a_policy_that_watches_obeys_the_bound_and_denies_nobody() {
    // R070: a dry run made counters past the cap.
    let (_clock, store) = store(1000);
    let watching = Policy::builder("watching").limits("1/m").key("{client_ip}").shadow(true).build().unwrap();
    for n in 0..10_000 {
        let answer = check(&store, &watching, &n.to_string(), 1);
        assert_eq!((answer.granted, answer.mode), (1, Mode::Normal));
    }
    let figures = store.figures();
    assert_eq!((figures.keys, figures.full_denials), (1000, 0));
    // Nor does it make way for anybody when all it holds is over the limit.
    assert_eq!(check(&store, &policy("1/m"), "enforced", 1).mode, Mode::Full);
}

#[test]
fn what_has_expired_goes_before_what_is_in_use() {
    let (clock, store) = store(1000);
    let (short, long) = (policy("9/s"), policy("9/h"));
    for n in 0..500 {
        assert!(allows(&store, &short, &format!("short {n}")));
        assert!(allows(&store, &long, &format!("long {n}")));
    }
    clock.advance(Duration::from_secs(1));
    for n in 0..200 {
        assert!(allows(&store, &long, &format!("new {n}")));
    }
    // Eight slots are looked at: one time in some hundred, all of them are in use.
    let figures = store.figures();
    assert_eq!(figures.keys, 1000);
    assert!(figures.live_evictions <= 10, "{figures:?}");
}

#[test]
fn of_those_in_use_the_one_with_most_permits_left_goes() {
    let (_clock, store) = store(1000);
    let policy = policy("9/h");
    for n in 0..500 {
        assert_eq!(check(&store, &policy, &format!("light {n}"), 1).granted, 1);
        assert_eq!(check(&store, &policy, &format!("heavy {n}"), 8).granted, 1);
    }
    for n in 0..200 {
        assert_eq!(check(&store, &policy, &format!("new {n}"), 4).granted, 1);
    }
    assert_eq!(store.figures().live_evictions, 200);
    let heavy = (0..500).filter(|n| is_held(&store, &policy, &format!("heavy {n}"))).count();
    assert!(heavy >= 490, "{heavy}");
}

#[test]
fn a_key_is_protected_while_it_is_denied_and_not_longer() {
    let (clock, store) = store(1);
    let policy = policy("2/10s");
    assert!(allows(&store, &policy, "old"));
    clock.advance(Duration::from_secs(5));
    assert!(allows(&store, &policy, "old"));
    clock.advance(Duration::from_millis(4_999));
    assert_eq!(check(&store, &policy, "new", 1).mode, Mode::Full);
    // It could go on now, so making it start afresh lets it have one more than it should, not a window.
    clock.advance(Duration::from_millis(1));
    assert!(allows(&store, &policy, "new"));
    assert_eq!(store.figures().live_evictions, 1);
}

#[test]
fn reservations_are_bounded_and_a_refused_one_charges_nothing() {
    let (clock, store) = store(10);
    let policy = policy("4000000000/m");
    let reserve = |cost| {
        let id = ReservationId::random();
        try_check(&store, &policy, "a", cost, Some(id)).map(|_| id)
    };
    let first = reserve(1).unwrap();
    for _ in 1..RESERVATIONS_MAX {
        reserve(1).unwrap();
    }
    assert_eq!(store.figures().reservations, 100_000);
    let refused = reserve(7).unwrap_err();
    assert!(matches!(refused, StoreError::ReservationsFull { most: RESERVATIONS_MAX }), "{refused:?}");
    assert_eq!(used(&store, &policy, "a"), [100_000]);
    // Plain checks go on. One that is settled makes space for one more, and those whose window ended for all.
    assert!(allows(&store, &policy, "a"));
    assert_ne!(store.settle_now(first, 1), Settled::Unknown);
    reserve(1).unwrap();
    reserve(1).unwrap_err();
    clock.advance(Duration::from_secs(60));
    reserve(1).unwrap();
    assert_eq!(store.figures().reservations, 1);
    clock.advance(Duration::from_secs(60));
    store.sweep();
    assert_eq!(store.figures(), MemoryFigures::default());
}

#[test]
fn settling_for_an_evicted_counter_gives_nothing_back() {
    let (_clock, store) = store(1);
    let policy = policy("9/m");
    let id = ReservationId::random();
    assert_eq!(try_check(&store, &policy, "a", 5, Some(id)).unwrap().granted, 1);
    assert!(allows(&store, &policy, "b"));
    assert_eq!(store.settle_now(id, 2), Settled::Done { given_back: 0, charged: 0 });
    assert_eq!((used(&store, &policy, "a"), used(&store, &policy, "b")), (vec![0], vec![1]));
}
