//! A store to be tested, and the clock that it decides by.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use slidegate::MemoryStore;
use slidegate::clock::Clock;
use slidegate::core::time::Now;
use slidegate::store::Store;
use slidegate::testing::FakeClock;

/// Everything that the rules need from a store beside the [`Store`] trait.
pub(crate) trait World: Send + Sync + 'static {
    /// The store under test.
    type Store: Store;

    /// A store without counters, on a clock that stands still.
    fn fresh() -> impl Future<Output = Self> + Send;

    /// The store.
    fn store(&self) -> &Self::Store;

    /// What the clock shows.
    fn now(&self) -> Now;

    /// Moves the clock forward.
    fn advance(&self, by: Duration);

    /// Moves the clock back, as a correction by hand would.
    fn step_back(&self, by: Duration);

    /// Drops whatever has expired by now, for stores that do so at times of their own choosing.
    fn tidy(&self) -> impl Future<Output = ()> + Send;

    /// Moves the clock forward by milliseconds.
    fn advance_ms(&self, ms: u64) {
        self.advance(Duration::from_millis(ms));
    }
}

/// A memory store large enough to evict nothing.
pub(crate) struct MemoryWorld {
    clock: Arc<FakeClock>,
    store: MemoryStore<Arc<FakeClock>>,
}

impl World for MemoryWorld {
    type Store = MemoryStore<Arc<FakeClock>>;

    async fn fresh() -> Self {
        let clock = Arc::new(FakeClock::default());
        let store = MemoryStore::builder().max_keys(10_000).clock(clock.clone()).build();
        Self { clock, store }
    }

    fn store(&self) -> &Self::Store {
        &self.store
    }

    fn now(&self) -> Now {
        self.clock.now()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn step_back(&self, by: Duration) {
        self.clock.step_back(by);
    }

    async fn tidy(&self) {
        self.store.sweep();
    }
}
