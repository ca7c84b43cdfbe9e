//! A clock that stands still until a test moves it (feature `test-util`).
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use slidegate::testing::FakeClock;
//! use slidegate::{Limiter, MemoryStore, Policy};
//!
//! let clock = Arc::new(FakeClock::default());
//! let limiter = Limiter::builder()
//!     .policy(Policy::builder("login").limits("3/m").key("{client_ip}").build()?)
//!     .store(MemoryStore::builder().clock(clock.clone()).build())
//!     .build()?;
//!
//! for _ in 0..3 {
//!     assert!(limiter.check("login", &["203.0.113.7"]).await?.is_allowed());
//! }
//! let denied = limiter.check("login", &["203.0.113.7"]).await?;
//! clock.advance(denied.retry_after().unwrap());
//! assert!(limiter.check("login", &["203.0.113.7"]).await?.is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slidegate_core::time::Now;

use crate::clock::Clock;

/// A clock for tests. Starts at 2026-01-01T00:00:00Z.
#[derive(Debug)]
pub struct FakeClock {
    micros: AtomicU64,
}

/// 2026-01-01T00:00:00Z: a whole day, so that fixed windows start with the clock.
const START_MICROS: u64 = 1_767_225_600_000_000;

impl Default for FakeClock {
    fn default() -> Self {
        Self { micros: AtomicU64::new(START_MICROS) }
    }
}

impl FakeClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: impl Into<Duration>) {
        let micros = u64::try_from(by.into().as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// Moves the clock back, as a correction by hand would.
    pub fn step_back(&self, by: impl Into<Duration>) {
        let micros = u64::try_from(by.into().as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_sub(micros, Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Now {
        Now::from_micros(self.micros.load(Ordering::SeqCst))
    }
}
