//! A check of a key that is there allocates nothing: no lock of an allocator on the request path, no growth
//! under load.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slidegate::testing::FakeClock;
use slidegate::{Limiter, MemoryStore, Policy};

fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the memory store answers at once"),
    }
}

/// Allocations of a thousand checks, one each millisecond, once the window has been full for a while.
fn allocations(limits: &str) -> u64 {
    let clock = Arc::new(FakeClock::default());
    let policy = Policy::builder("p").limits(limits).key("{client_ip}").build().unwrap();
    let store = MemoryStore::builder().max_keys(10).clock(clock.clone()).build();
    let limiter = Limiter::builder().policy(policy).store(store).build().unwrap();
    let check = || {
        clock.advance(Duration::from_millis(1));
        ready(limiter.check("p", &["203.0.113.7"])).unwrap().is_allowed()
    };
    let warm = (0..3000).filter(|_| check()).count();
    assert!((100..3000).contains(&warm), "some are allowed and some denied: {warm}");
    allocation_counter::measure(|| (0..1000).for_each(|_| _ = check())).count_total
}

#[test]
fn a_check_of_a_key_that_is_there_allocates_nothing() {
    assert_eq!(allocations("100/s"), 0, "one limit");
    assert_eq!(allocations("100/s; 1000/m"), 0, "two limits");
}

#[test]
fn allocations_are_counted() {
    assert_eq!(allocation_counter::measure(|| drop(std::hint::black_box(vec![0_u8]))).count_total, 1);
}
