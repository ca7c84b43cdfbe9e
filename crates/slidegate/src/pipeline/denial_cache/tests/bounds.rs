//! What the cache may take: memory, whatever keys come, and no allocation for a denial that it repeats.

use super::*;

#[tokio::test(start_paused = true)]
async fn keys_without_end_take_no_more_than_the_table_has() {
    let store = store();
    let limiter = instance(&store, [policy("p", "0/1m")]);
    let ask = |key: u32| {
        let key = key.to_string();
        let limiter = limiter.clone();
        async move { limiter.check("p", &[&key]).await.unwrap().mode() }
    };
    for key in 0..40_000 {
        assert_eq!(ask(key).await, Mode::Normal);
    }
    let entries = limiter.store().figures().entries;
    assert!((14_000..=16_384).contains(&entries), "{entries}");
    // What ended makes room for what comes, and is counted no more.
    pass(BOUND.get()).await;
    assert_eq!(limiter.store().figures().entries, 0);
    for mode in [Mode::Normal, Mode::Cached] {
        for key in 0..2_000 {
            assert_eq!(ask(key).await, mode);
        }
    }
    assert_eq!(limiter.store().figures().entries, 2_000);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_denial_allocates_nothing() {
    let store = store();
    let limiter = instance(&store, [policy("p", "1/1m; 9/1h")]);
    for _ in 0..3 {
        let _ = ready(limiter.check("p", &["203.0.113.7"])).unwrap();
    }
    let repeat = || assert_eq!(ready(limiter.check("p", &["203.0.113.7"])).unwrap().mode(), Mode::Cached);
    let allocated = allocation_counter::measure(|| (0..1000).for_each(|_| repeat()));
    assert_eq!(allocated.count_total, 0);
}
