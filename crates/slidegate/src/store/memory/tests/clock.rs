//! Decisions are made at instants at which their counters are locked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, Weak};

use super::*;

/// A clock that notes, whenever it is read, whether a shard is locked.
#[derive(Debug, Default)]
struct Watching {
    store: OnceLock<Weak<MemoryStore<Arc<Self>>>>,
    read_under_lock: AtomicBool,
}

impl Clock for Watching {
    fn now(&self) -> Now {
        let store = self.store.get().and_then(Weak::upgrade).unwrap();
        let locked = store.shards.iter().any(|shard| shard.try_lock().is_none());
        self.read_under_lock.store(locked, Ordering::SeqCst);
        Now::from_millis(1_000_000)
    }
}

#[test]
fn the_clock_that_decides_is_read_under_the_lock() {
    // A thread that reads the clock and then waits for the lock is admitted at an instant at which the window
    // was still full.
    let clock = Arc::new(Watching::default());
    let store = Arc::new(MemoryStore::builder().max_keys(50_000).clock(clock.clone()).build());
    clock.store.set(Arc::downgrade(&store)).unwrap();
    let assert_locked = |doing: &str| {
        assert!(clock.read_under_lock.swap(false, Ordering::SeqCst), "{doing}: not under the lock");
    };
    let (one, two) = (policy("9/m"), policy("9/m; 99/h"));
    let key = key("a");
    let ask = |policy: &Policy, reserve| {
        let charges: Vec<_> = policy.limits().iter().map(|limit| charge(policy, &key, limit, 2)).collect();
        store.check_now(&Check { times: 1, charges: &charges, reserve }).unwrap();
    };
    ask(&one, None);
    assert_locked("a new counter");
    ask(&one, None);
    assert_locked("a counter in its place");
    ask(&two, None);
    assert_locked("several counters");
    for actual in [1, 3] {
        let id = ReservationId::random();
        ask(&one, Some(id));
        assert_locked("a reservation");
        assert_ne!(store.settle_now(id, actual), Settled::Unknown);
        assert_locked("its end");
    }
    store.sweep();
    assert_locked("a sweep");
}
