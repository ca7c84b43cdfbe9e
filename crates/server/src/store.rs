//! The store that a configuration names, behind one type: every door asks the same limiter.
//!
//! A closed enum and no trait object: which stores there are is known, and a check in memory, which takes
//! less time than an allocation, must not pay for the other kind.

use std::future::Future;

use slidegate::core::decision::Cost;
use slidegate::core::instance::ladder::Step;
use slidegate::core::time::Millis;
use slidegate::limiter::BuildError;
use slidegate::store::redis::RedisConfigError;
use slidegate::store::{Answer, Check, Counter};
use slidegate::{Limiter, MemoryStore, Policy, RedisStore, ReservationId, Settled, Store, StoreError};

use crate::config::{StoreConfig, StoreKind};

/// Where counters are kept.
#[derive(Debug)]
pub(crate) enum AnyStore {
    /// In this process.
    Memory(MemoryStore),
    /// In Redis or Valkey, shared with other instances.
    Redis(RedisStore),
}

/// Why there is no limiter.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LimiterError {
    /// The store can never work.
    #[error(transparent)]
    Store(#[from] RedisConfigError),
    /// Policies whose names meet.
    #[error(transparent)]
    Policies(#[from] BuildError),
}

/// Starts the store, and puts the policies over it. A shared store needs the tokio runtime at hand; whether its
/// server is there shows later.
pub(crate) fn limiter(
    policies: Vec<Policy>,
    config: &StoreConfig,
) -> Result<Limiter<AnyStore>, LimiterError> {
    let mut builder = Limiter::builder().policies(policies);
    if let Some(key) = &config.secret_key {
        builder = builder.secret_key(key.clone());
    }
    Ok(builder.store(AnyStore::start(&config.kind)?).build()?)
}

impl AnyStore {
    fn start(kind: &StoreKind) -> Result<Self, RedisConfigError> {
        Ok(match kind {
            StoreKind::Memory { max_keys } => {
                Self::Memory(MemoryStore::builder().max_keys(*max_keys).build())
            }
            StoreKind::Redis { config, .. } => Self::Redis(RedisStore::start(config)?),
        })
    }

    /// Waits until it can be asked, or until `most` has passed; says which of the two it was.
    pub(crate) async fn connected(&self, most: Millis) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Redis(store) => store.connected(most).await,
        }
    }

    /// Gives back what is leased and not spent, and takes leave of the other instances, within `most`; says whether
    /// all of it was done. To be called when no more checks come.
    pub(crate) async fn close(&self, most: Millis) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Redis(store) => store.close(most).await,
        }
    }

    /// Gives the memory of expired counters back, and says of how many. Redis does so by itself.
    pub(crate) fn sweep(&self) -> u64 {
        match self {
            Self::Memory(store) => store.sweep(),
            Self::Redis(_) => 0,
        }
    }

    /// Whether it can be asked now, and answered when it was asked last.
    pub(crate) fn is_well(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Redis(store) => {
                let figures = store.figures();
                figures.connected && !figures.failing
            }
        }
    }
}

impl AnyStore {
    /// The nodes of a shared store that are slow or fail.
    pub(crate) fn ailing(&self) -> Vec<(String, Step)> {
        match self {
            Self::Memory(_) => Vec::new(),
            Self::Redis(store) => {
                let nodes = store.nodes().into_iter();
                nodes.filter(|node| node.step != Step::Normal).map(|node| (node.name, node.step)).collect()
            }
        }
    }
}

impl Store for AnyStore {
    async fn check(&self, check: &Check<'_>) -> Result<Answer, StoreError> {
        match self {
            Self::Memory(store) => store.check(check).await,
            Self::Redis(store) => shared(store.check(check)).await,
        }
    }

    async fn settle(&self, id: ReservationId, actual: Cost) -> Result<Settled, StoreError> {
        match self {
            Self::Memory(store) => store.settle(id, actual).await,
            Self::Redis(store) => shared(store.settle(id, actual)).await,
        }
    }

    async fn reset(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.reset(counter).await,
            Self::Redis(store) => shared(store.reset(counter)).await,
        }
    }
}

/// What waits for a network is kept apart from the future that holds it, which would else be as large for checks
/// in memory. One allocation is nothing beside a round trip.
fn shared<'a, T>(
    asked: impl Future<Output = T> + Send + 'a,
) -> std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>> {
    Box::pin(asked)
}
