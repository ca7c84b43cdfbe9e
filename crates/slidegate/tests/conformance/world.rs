//! A store to be tested, and the clock that it decides by.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use slidegate::clock::Clock;
use slidegate::core::time::{Millis, Now};
use slidegate::store::Store;
use slidegate::store::redis::RedisConfig;
use slidegate::testing::FakeClock;
use slidegate::{MemoryStore, RedisStore};
use slidegate_testbed::redis::Server;

/// Everything that the rules need from a store beside the [`Store`] trait.
pub(crate) trait World: Send + Sync + 'static {
    /// The store under test.
    type Store: Store;

    /// Whether a counter remembers under which limit it was last asked for, also by those who took nothing. One
    /// that does not gives back under a changed limit what it can, which the model leaves.
    const TELLS_LIMITS_APART: bool;

    /// Whether what has expired is gone once the store was tidied, also for a limit whose window is longer.
    const FORGETS_WHEN_TIDIED: bool;

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

    const TELLS_LIMITS_APART: bool = true;
    const FORGETS_WHEN_TIDIED: bool = true;

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

/// A store on a Redis of the tests' own. Worlds share the server, each under a prefix.
pub(crate) struct RedisWorld {
    clock: Arc<FakeClock>,
    store: RedisStore,
}

/// Longer than any test: the server's own clock must not end a key whose world stands still.
const LINGER: Millis = Millis(3_600_000);

impl World for RedisWorld {
    type Store = RedisStore;

    const TELLS_LIMITS_APART: bool = false;
    const FORGETS_WHEN_TIDIED: bool = false;

    async fn fresh() -> Self {
        static SERVER: LazyLock<Server> = LazyLock::new(Server::start);
        Self::at(&SERVER.url()).await
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

    /// Keys end by themselves.
    async fn tidy(&self) {}
}

impl RedisWorld {
    /// A world without denial cache, whose clock is not the store's.
    async fn at(url: &str) -> Self {
        static WORLDS: AtomicU64 = AtomicU64::new(0);
        let clock = Arc::new(FakeClock::default());
        let prefix = format!("sg{}", WORLDS.fetch_add(1, Ordering::Relaxed));
        let config = RedisConfig::parse(url)
            .and_then(|config| config.prefix(&prefix))
            .unwrap()
            .timeout(Millis(10_000))
            .denial_cache(false)
            .clock(clock.clone(), LINGER);
        let store = RedisStore::start(&config).unwrap();
        assert!(store.connected(Millis(10_000)).await, "no connection to {url}");
        Self { clock, store }
    }
}
