use super::*;
use crate::testing::FakeClock;

fn limiter(limits: &str) -> (Arc<FakeClock>, Limiter<MemoryStore<Arc<FakeClock>>>) {
    let clock = Arc::new(FakeClock::default());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let policy = Policy::builder("p").limits(limits).key("{client_ip}").build().unwrap();
    (clock, Limiter::builder().policy(policy).store(store).build().unwrap())
}

#[tokio::test]
async fn admits_the_limit_and_tells_the_exact_wait() {
    let (clock, limiter) = limiter("2/10s");
    assert!(limiter.check("p", &["a"]).await.unwrap().is_allowed());
    assert!(limiter.check("p", &["a"]).await.unwrap().is_allowed());
    let denied = limiter.check("p", &["a"]).await.unwrap();
    assert!(!denied.is_allowed());
    assert_eq!(denied.retry_after(), Some(slidegate_core::time::Millis(10_000)));
    assert!(limiter.check("p", &["b"]).await.unwrap().is_allowed());
    clock.advance(std::time::Duration::from_millis(9_999));
    assert!(!limiter.check("p", &["a"]).await.unwrap().is_allowed());
    clock.advance(std::time::Duration::from_millis(1));
    assert!(limiter.check("p", &["a"]).await.unwrap().is_allowed());
}
