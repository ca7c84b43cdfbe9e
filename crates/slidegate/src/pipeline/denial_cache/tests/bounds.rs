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
        // So few that chance puts more into one set than it holds once in a hundred million runs.
        for key in 0..500 {
            assert_eq!(ask(key).await, mode);
        }
    }
    assert_eq!(limiter.store().figures().entries, 500);
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

#[tokio::test(start_paused = true)]
async fn threads_get_every_permit_and_no_more() {
    let store = Arc::new(MemoryStore::builder().max_keys(100).build());
    let cache = Arc::new(DenialCache::new(store, true));
    let policies = [policy("p", "1000/1h"), policy("q", "9/1h")].map(|policy| policy.build().unwrap());
    let limiter = Limiter::builder().policies(policies).store(cache).build().unwrap();
    let allowed = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (limiter, allowed) = (limiter.clone(), &allowed);
            scope.spawn(move || {
                for _ in 0..4_000 {
                    // Some of them forget what the others learn.
                    if thread == 0 {
                        ready(limiter.reset("q", &["203.0.113.7"])).unwrap();
                    }
                    let decision = ready(limiter.check("p", &["203.0.113.7"])).unwrap();
                    allowed.fetch_add(u32::from(decision.is_allowed()), Ordering::Relaxed);
                    let _ = ready(limiter.check("q", &["203.0.113.7"])).unwrap();
                }
            });
        }
    });
    assert_eq!(allowed.into_inner(), 1000);
    assert!(limiter.store().figures().hits > 0);
}
