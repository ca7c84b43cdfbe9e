//! Clocks that stand still, stumble and jump.

use std::time::Duration;

use slidegate::core::limit::Algorithm;

use crate::subject::Subject;
use crate::world::World;

pub(crate) async fn a_clock_that_stands_still_gives_nothing_back<W: World>() {
    let world = W::fresh().await;
    let subject = Subject::new("3/ms");
    assert_eq!(subject.count_allowed(world.store(), 1000).await, 3);
}

pub(crate) async fn a_small_step_back_is_waited_for<W: World>() {
    let world = W::fresh().await;
    let subject = Subject::new("5/60s");
    assert_eq!(subject.count_allowed(world.store(), 3).await, 3);
    world.step_back(Duration::from_secs(5));
    assert_eq!(subject.count_allowed(world.store(), 9).await, 2);
    // The last two were charged as of before the step, so everything leaves together.
    world.advance_ms(64_999);
    assert!(!subject.allows(world.store()).await);
    world.advance_ms(1);
    assert_eq!(subject.count_allowed(world.store(), 9).await, 5);
}

pub(crate) async fn a_large_step_back_neither_locks_out_nor_admits_twice<W: World>() {
    let algorithms = [Algorithm::SLIDING_WINDOW, Algorithm::SlidingLog, Algorithm::TokenBucket { burst: 5 }];
    for algorithm in algorithms {
        let world = W::fresh().await;
        let subject = Subject::under(algorithm, "5/60s");
        assert_eq!(subject.count_allowed(world.store(), 9).await, 5);
        world.step_back(Duration::from_secs(86_400));
        assert_eq!(subject.count_allowed(world.store(), 9).await, 0, "{algorithm:?}");
        // A millisecond more than the window at the most: ticks are rounded up.
        world.advance_ms(60_001);
        assert_eq!(subject.count_allowed(world.store(), 9).await, 5, "{algorithm:?}");
    }
}

pub(crate) async fn a_step_forward_ends_windows_early<W: World>() {
    let world = W::fresh().await;
    let subject = Subject::new("5/60s");
    assert_eq!(subject.count_allowed(world.store(), 9).await, 5);
    world.advance(Duration::from_secs(86_400 * 365));
    assert_eq!(subject.count_allowed(world.store(), 9).await, 5);
}
