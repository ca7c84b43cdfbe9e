//! A store to be tested, and the clock that it decides by.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slidegate::clock::Clock;
use slidegate::core::time::{Millis, Now};
use slidegate::store::Store;
use slidegate::store::redis::RedisConfig;
use slidegate::testing::FakeClock;
use slidegate::{MemoryStore, RedisStore};

use crate::servers::Servers;

/// Everything that the rules need from a store beside the [`Store`] trait.
pub(crate) trait World: Send + Sync + 'static {
    /// The store under test.
    type Store: Store;

    /// Whether a counter remembers under which limit it was last asked for, also by those who took nothing. One
    /// that does not gives back under a changed limit what it can, which the model leaves.
    const TELLS_LIMITS_APART: bool;

    /// Whether what has expired is gone once the store was tidied, also for a limit whose window is longer.
    const FORGETS_WHEN_TIDIED: bool;

    /// Whether the counters of one check may lie in several slots. Then it stands for one check, whatever its
    /// `times`, and who loses may make others lose for a moment.
    const SCATTERS: bool;

    /// How many histories the model is compared over.
    const WALKS: u32;

    /// Whether it can be had on this machine.
    fn is_here() -> bool {
        true
    }

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
    const SCATTERS: bool = false;
    const WALKS: u32 = 256;

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

/// A store on servers of the tests' own. Worlds of one kind share them, each under a prefix.
pub(crate) struct RedisWorld<S> {
    clock: Arc<FakeClock>,
    store: RedisStore,
    servers: PhantomData<S>,
}

/// Longer than any test: the server's own clock must not end a key whose world stands still.
const LINGER: Millis = Millis(3_600_000);

impl<S: Servers> World for RedisWorld<S> {
    type Store = RedisStore;

    const TELLS_LIMITS_APART: bool = false;
    const FORGETS_WHEN_TIDIED: bool = false;
    const SCATTERS: bool = S::ARE_A_CLUSTER;
    const WALKS: u32 = S::WALKS;

    fn is_here() -> bool {
        S::are_here()
    }

    async fn fresh() -> Self {
        let clock = Arc::new(FakeClock::default());
        let config = config(&S::url()).denial_cache(false).clock(clock.clone(), LINGER);
        Self { clock, store: connected(&config).await, servers: PhantomData }
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

/// A store as users have it: the server's clock decides, and denials are remembered. For rules in which no time
/// has to pass.
pub(crate) struct UsualWorld<S> {
    store: RedisStore,
    servers: PhantomData<S>,
}

impl<S: Servers> World for UsualWorld<S> {
    type Store = RedisStore;

    const TELLS_LIMITS_APART: bool = false;
    const FORGETS_WHEN_TIDIED: bool = false;
    const SCATTERS: bool = S::ARE_A_CLUSTER;
    const WALKS: u32 = 0;

    fn is_here() -> bool {
        S::are_here()
    }

    async fn fresh() -> Self {
        Self { store: connected(&config(&S::url())).await, servers: PhantomData }
    }

    fn store(&self) -> &Self::Store {
        &self.store
    }

    fn now(&self) -> Now {
        panic!("only the server knows")
    }

    fn advance(&self, _: Duration) {
        panic!("real time passes by itself")
    }

    fn step_back(&self, _: Duration) {
        panic!("real time does not go back")
    }

    async fn tidy(&self) {}
}

/// A store whose keys are its own, and which waits for a busy machine.
fn config(url: &str) -> RedisConfig {
    static WORLDS: AtomicU64 = AtomicU64::new(0);
    let prefix = format!("sg{}", WORLDS.fetch_add(1, Ordering::Relaxed));
    RedisConfig::parse(url).and_then(|config| config.prefix(&prefix)).unwrap().timeout(Millis(20_000))
}

async fn connected(config: &RedisConfig) -> RedisStore {
    let store = RedisStore::start(config).unwrap();
    assert!(store.connected(Millis(20_000)).await, "no connection: {config:?}");
    store
}
