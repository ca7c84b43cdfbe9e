//! The limiter under real threads: never over the limit, never half a check, never stuck.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use slidegate::clock::{Clock, SystemClock};
use slidegate::core::time::Now;
use slidegate::testing::FakeClock;
use slidegate::{Ask, Limiter, MemoryStore, Policy};

const THREADS: usize = 4;

/// The memory store answers at the first poll.
fn answer<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the memory store never waits"),
    }
}

fn policy(name: &str, limits: &str) -> Policy {
    Policy::builder(name).limits(limits).key("{client_ip}").build().unwrap()
}

fn frozen(max_keys: usize, policies: Vec<Policy>) -> Limiter<MemoryStore<Arc<FakeClock>>> {
    let store = MemoryStore::builder().max_keys(max_keys).clock(Arc::new(FakeClock::default())).build();
    Limiter::builder().policies(policies).store(store).build().unwrap()
}

#[test]
fn threads_never_pass_the_limit_together() {
    // F18: check and increment were two round trips. R126: read, compute, write.
    let limiter = frozen(1000, vec![policy("p", "1000/m")]);
    let admitted = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..64 * 1000 / THREADS {
                    let decision = answer(limiter.check("p", &["203.0.113.7"])).unwrap();
                    admitted.fetch_add(u32::from(decision.is_allowed()), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 1000);
}

#[test]
fn policies_in_any_order_neither_deadlock_nor_charge_by_halves() {
    // R127: stacked limits raced. Each thread names the policies in another order, with sweeps in between;
    // their counters lie in different shards, whose locks are all taken.
    let names = ["a", "b", "c", "d", "e"];
    let limits = ["4000/m", "3500/m; 9000/h", "3000/m", "5000/m", "3001/m"];
    let policies = names.iter().zip(limits).map(|(name, limits)| policy(name, limits)).collect();
    let limiter = frozen(50_000, policies);
    let admitted = AtomicU32::new(0);
    thread::scope(|scope| {
        for turn in 0..THREADS {
            let (limiter, admitted) = (&limiter, &admitted);
            scope.spawn(move || {
                let mut order = names;
                for round in 0..2000 {
                    order.rotate_left(turn + 1);
                    if round % 2 == 0 {
                        order.reverse();
                    }
                    let asks = order.map(|name| Ask::new(name, &["203.0.113.7"]));
                    let allowed = answer(limiter.check_all(&asks)).unwrap().is_allowed();
                    admitted.fetch_add(u32::from(allowed), Ordering::Relaxed);
                    if round % 500 == 0 {
                        limiter.store().sweep();
                    }
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 3000);
    for name in names {
        let peek = answer(limiter.peek(name, &["203.0.113.7"])).unwrap();
        assert!(peek.limits().all(|state| state.outcome.used == 3000), "{name}");
    }
}

#[test]
fn reservations_on_all_threads_leave_nothing_behind() {
    let limiter = frozen(50_000, vec![policy("a", "100/m"), policy("b", "100/m")]);
    thread::scope(|scope| {
        for turn in 0..THREADS {
            let limiter = &limiter;
            scope.spawn(move || {
                for round in 0..2000u32 {
                    let mut asks = [Ask::new("a", &["x"]).cost(3), Ask::new("b", &["x"]).cost(5)];
                    asks.rotate_left(turn % 2);
                    let (_, reservation) = answer(limiter.reserve(&asks)).unwrap();
                    let Some(reservation) = reservation else { continue };
                    match round % 3 {
                        0 => drop(reservation),
                        1 => drop(answer(reservation.refund()).unwrap()),
                        _ => drop(answer(reservation.commit(0)).unwrap()),
                    }
                }
            });
        }
    });
    for name in ["a", "b"] {
        assert_eq!(answer(limiter.peek(name, &["x"])).unwrap().limits().next().unwrap().outcome.used, 0);
    }
    assert_eq!(limiter.store().figures().reservations, 0);
}

#[test]
fn a_denied_key_stays_denied_while_threads_flood_the_store() {
    // R7: five times as many new keys as there is space for, from all threads at once.
    let limiter = frozen(4000, vec![policy("p", "2/m")]);
    for _ in 0..2 {
        assert!(answer(limiter.check("p", &["victim"])).unwrap().is_allowed());
    }
    let flooding = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            while flooding.load(Ordering::Relaxed) {
                assert!(!answer(limiter.check("p", &["victim"])).unwrap().is_allowed());
                assert!(limiter.store().figures().keys <= 4000);
            }
        });
        let floods: Vec<_> = (0..THREADS)
            .map(|turn| {
                let limiter = &limiter;
                scope.spawn(move || {
                    for n in 0..20_000 / THREADS {
                        assert!(answer(limiter.check("p", &[&format!("{turn} {n}")])).unwrap().is_allowed());
                    }
                })
            })
            .collect();
        let floods: Vec<_> = floods.into_iter().map(thread::ScopedJoinHandle::join).collect();
        flooding.store(false, Ordering::Relaxed);
        floods.into_iter().for_each(|flood| flood.unwrap());
    });
    let figures = limiter.store().figures();
    assert_eq!(figures.keys + figures.live_evictions, 20_001);
}

thread_local! {
    static LAST_READING: Cell<u64> = const { Cell::new(0) };
}

/// The system's clock; remembers what it last showed to each thread: the instant of that thread's decision.
struct Recording;

impl Clock for Recording {
    fn now(&self) -> Now {
        let now = SystemClock.now();
        LAST_READING.set(now.as_micros());
        now
    }
}

#[test]
fn by_the_clock_that_decides_no_window_of_a_second_holds_more_than_the_limit() {
    const LIMIT: usize = 5000;
    const WINDOW_MICROS: u64 = 1_000_000;
    /// Two whole windows: long enough to slide, short enough to wait for.
    const DURATION_MICROS: u64 = 2 * WINDOW_MICROS;

    let store = MemoryStore::builder().clock(Recording).max_keys(1000).build();
    let limiter = Limiter::builder().policy(policy("p", "5000/1s")).store(store).build().unwrap();
    let end = SystemClock.now().as_micros() + DURATION_MICROS;
    let mut admitted: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let limiter = &limiter;
                scope.spawn(move || {
                    let mut admitted = Vec::new();
                    loop {
                        let allowed = answer(limiter.check("p", &["203.0.113.7"])).unwrap().is_allowed();
                        let at = LAST_READING.get();
                        if at >= end {
                            return admitted;
                        }
                        if allowed {
                            admitted.push(at);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    admitted.sort_unstable();
    // Half-open windows: of any 5001 in a row, the first is at least a window older than the last.
    for pair in admitted.windows(LIMIT + 1) {
        assert!(pair[LIMIT] - pair[0] >= WINDOW_MICROS, "{} and {}", pair[0], pair[LIMIT]);
    }
    // What comes back is taken within milliseconds by threads that never stop asking: at least 4975 each
    // second, unless the machine stands still for most of one.
    assert!(admitted.len() >= 2 * 4975, "{} in two seconds", admitted.len());
}
