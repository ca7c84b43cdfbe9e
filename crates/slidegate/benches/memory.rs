//! The memory store beside `governor`'s keyed limiter, in one run: `cargo xtask bench memory`.
//!
//! `governor` keeps one number for each key (GCRA) and admits up to twice the limit in a window; slidegate
//! keeps the window and never admits more than the limit. Both decide one random key of a million at a
//! time, on one thread and on two, with every key warm.
//!
//! * `keyed/governor/u64` is governor at its fastest: an integer key.
//! * `keyed/governor/String` is governor with the key that a service has.
//! * `keyed/slidegate/...` is the whole call: policy by name, key from text, decision with all its numbers,
//!   counted in the metrics.
//! * `keyed/store/...` is the store alone, asked about a key that is ready: what governor does.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a benchmark")]

use std::collections::HashMap;
use std::future::Future;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use governor::{Quota, RateLimiter};
use slidegate::core::check::Terms;
use slidegate::core::key::Key;
use slidegate::store::{Charge, Check, Counter, Store};
use slidegate::testing::FakeClock;
use slidegate::{Ask, Limiter, MemoryStore, Policy};

const KEYS: usize = 1_000_000;

/// Polls a future that is ready at once, as every future of the memory store is.
fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the memory store answers at once"),
    }
}

/// Xorshift: the same keys in the same order for everybody.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n as u64).unwrap()
    }
}

/// Runs `iterations` calls spread over threads, and returns the time until the last is done.
fn spread(threads: usize, iterations: u64, keys: usize, call: &(impl Fn(usize) + Sync)) -> Duration {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (thread as u64 + 1));
                for _ in 0..iterations / threads as u64 {
                    call(random.below(keys));
                }
            });
        }
    });
    start.elapsed()
}

fn addresses(keys: usize) -> Vec<String> {
    (0..keys).map(|n| format!("10.{}.{}.{}", n >> 16, (n >> 8) & 255, n & 255)).collect()
}

fn keyed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("keyed");
    group.sample_size(20).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(4));
    let names = addresses(KEYS);
    let quota = Quota::per_second(NonZeroU32::new(100).unwrap());

    let by_number = RateLimiter::<u64, _, _>::keyed(quota);
    let by_name = RateLimiter::<String, _, _>::keyed(quota);
    let store = MemoryStore::builder().max_keys(KEYS + KEYS / 8).build();
    let policy = Policy::builder("per-client").limits("100/s").key("{client_ip}").build().unwrap();
    let limiter = Limiter::builder().policy(policy).store(store).build().unwrap();

    let governor_number = |key: usize| {
        let _ = black_box(by_number.check_key(&(key as u64)));
    };
    let governor_name = |key: usize| {
        let _ = black_box(by_name.check_key(&names[key]));
    };
    let slidegate = |key: usize| {
        let _ = black_box(ready(limiter.check("per-client", &[&names[key]])).unwrap().is_allowed());
    };
    let policy = limiter.policy("per-client").unwrap().clone();
    let limit = &policy.limits()[0];
    let keys: Vec<Key> = names.iter().map(|name| Key::from_parts([("client_ip", name.as_bytes())])).collect();
    let store = |key: usize| {
        let counter = Counter { policy: &policy, key: &keys[key], limit };
        let charges = [Charge { counter, cost: 1, group: 0, terms: Terms::default() }];
        let check = Check { times: 1, charges: &charges, reserve: None };
        black_box(ready(limiter.store().check(&check)).unwrap().granted);
    };
    for key in 0..KEYS {
        governor_number(key);
        governor_name(key);
        slidegate(key);
        store(key);
    }
    for threads in [1, 2] {
        group.bench_function(format!("governor/u64/{threads}"), |b| {
            b.iter_custom(|n| spread(threads, n, KEYS, &governor_number))
        });
        group.bench_function(format!("governor/String/{threads}"), |b| {
            b.iter_custom(|n| spread(threads, n, KEYS, &governor_name))
        });
        group.bench_function(format!("store/{threads}"), |b| {
            b.iter_custom(|n| spread(threads, n, KEYS, &store))
        });
        group.bench_function(format!("slidegate/{threads}"), |b| {
            b.iter_custom(|n| spread(threads, n, KEYS, &slidegate))
        });
    }
    group.finish();
}

/// P9: what one check costs as keys grow, beside a bare hash map with the same work per call.
fn by_keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("keys");
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    for keys in [1_000_usize, 10_000, 100_000, 1_000_000, 10_000_000] {
        let store = MemoryStore::builder().max_keys(keys + keys / 8).build();
        let policy = Policy::builder("per-client").limits("100/s").key("{client_ip}").build().unwrap();
        let limiter = Limiter::builder().policy(policy).store(store).build().unwrap();
        let names = addresses(keys);
        let call = |key: usize| {
            let _ = black_box(ready(limiter.check("per-client", &[&names[key]])).unwrap().is_allowed());
        };
        (0..keys).for_each(call);
        group.bench_function(format!("slidegate/{keys}"), |b| b.iter_custom(|n| spread(1, n, keys, &call)));
        let map: HashMap<String, AtomicU64> =
            names.iter().map(|name| (name.clone(), AtomicU64::new(0))).collect();
        let call = |key: usize| {
            black_box(map[&names[key]].fetch_add(1, Ordering::Relaxed));
        };
        group.bench_function(format!("hashmap/{keys}"), |b| b.iter_custom(|n| spread(1, n, keys, &call)));
    }
    group.finish();
}

/// P9: what one check costs as permits in the window grow. Every check moves the window on: a tick slides
/// out, another comes in.
fn by_permits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("permits");
    group.sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    for permits in [10_u32, 100, 1_000, 10_000, 100_000, 1_000_000] {
        let clock = Arc::new(FakeClock::default());
        let store = MemoryStore::builder().max_keys(1).clock(clock.clone()).build();
        let policy = Policy::builder("p").limits(&format!("{permits}/1s")).build().unwrap();
        let limiter = Limiter::builder().policy(policy).store(store).build().unwrap();
        let cost = (permits / 1000).max(1);
        let step = Duration::from_millis(u64::from(1000 * cost / permits));
        let mut check = || {
            clock.advance(step);
            assert!(ready(limiter.check_all(&[Ask::new("p", &[]).cost(cost)])).unwrap().is_allowed());
        };
        (0..2000).for_each(|_| check());
        group.bench_function(permits.to_string(), |b| b.iter(&mut check));
    }
    group.finish();
}

criterion_group!(benches, keyed, by_keys, by_permits);
criterion_main!(benches);
