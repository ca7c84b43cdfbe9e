//! Opens the store that a run asks: the one place that knows store URLs.
//!
//! What a store counts about itself comes through [`Figured`]; what a Redis server counts is in
//! [`super::redis_info`].

use slidegate::core::time::Millis;
use slidegate::store::redis::{RedisConfig, RedisStore};
use slidegate::{MemoryStore, Store};

use super::keys::Keys;
use super::plan::StoreChoice;

/// A store that counts what it was asked.
pub(super) trait Figured: Store {
    /// Since it was opened; `None` for a store in this process, which has no calls to count.
    fn figures(&self) -> Option<StoreFigures>;
}

/// What a store was asked, as the asking side counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreFigures {
    /// Calls over the network.
    pub(super) calls: u64,
    /// Checks that those calls decided.
    pub(super) checks: u64,
    /// Sent and received.
    pub(super) bytes: u64,
}

impl StoreFigures {
    /// What came since an earlier reading.
    pub(super) const fn since(self, earlier: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(earlier.calls),
            checks: self.checks.saturating_sub(earlier.checks),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

impl Figured for MemoryStore {
    fn figures(&self) -> Option<StoreFigures> {
        None
    }
}

impl Figured for RedisStore {
    fn figures(&self) -> Option<StoreFigures> {
        let figures = Self::figures(self);
        let bytes = figures.bytes_sent + figures.bytes_received;
        Some(StoreFigures { calls: figures.calls, checks: figures.checks, bytes })
    }
}

/// A store that is ready.
#[derive(Debug)]
pub(super) enum Opened {
    Memory(MemoryStore),
    Redis(RedisStore),
}

/// How long a first connection may take. A run against a store that is away would measure what policies answer then.
const CONNECT_TIME: Millis = Millis(5_000);

/// Shared stores, by the scheme of their URL.
const REDIS_SCHEMES: [&str; 5] = ["redis", "rediss", "redis+unix", "redis-sentinel", "redis-cluster"];

/// Opens a store for so many keys.
pub(super) async fn open(choice: &StoreChoice, keys: Keys) -> Result<Opened, String> {
    const HOW: &str = "write memory, or redis://HOST:PORT";
    if choice.is_embedded() {
        if !choice.flights || !choice.denial_cache {
            let stage = if choice.flights { "--no-denial-cache" } else { "--no-flights" };
            return Err(format!(
                "{stage} leaves out a stage before a shared store, and the embedded one has none: leave the \
                 option out, or name another --store"
            ));
        }
        return Ok(Opened::Memory(MemoryStore::builder().max_keys(room_for(keys)).build()));
    }
    // The URL may hold a password: only its scheme is repeated.
    match choice.url.split_once("://").map(|(scheme, _)| scheme) {
        Some(scheme) if REDIS_SCHEMES.contains(&scheme) => redis(choice).await.map(Opened::Redis),
        Some("http" | "https") => Err("a server is no store: name it with --target".to_owned()),
        Some(_) => Err(format!("--store names no store that is known: {HOW}")),
        None => Err(format!("--store is no URL: {HOW}")),
    }
}

async fn redis(choice: &StoreChoice) -> Result<RedisStore, String> {
    let config = RedisConfig::parse(&choice.url).map_err(|error| error.to_string())?;
    let config = config.flights(choice.flights).denial_cache(choice.denial_cache);
    let store = RedisStore::start(&config).map_err(|error| error.to_string())?;
    if store.connected(CONNECT_TIME).await {
        return Ok(store);
    }
    let seconds = CONNECT_TIME.ceil_secs();
    Err(format!(
        "no connection to the store within {seconds} s: is it running, and does it let this user in?"
    ))
}

/// More than there are keys, since chance does not fill the store's shards evenly, and a run that evicts would
/// measure something else.
fn room_for(keys: Keys) -> usize {
    const SPARE_MIN: usize = 10_000;
    let keys = usize::try_from(keys.count()).unwrap_or(usize::MAX);
    keys.saturating_add(keys / 4).saturating_add(SPARE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(url: &str) -> StoreChoice {
        StoreChoice { url: url.into(), flights: true, denial_cache: true }
    }

    #[tokio::test]
    async fn what_is_no_store_says_what_to_write_and_repeats_no_password() {
        for (url, said) in [
            ("mongodb://u:secret@h", "names no store that is known: write memory"),
            ("http://127.0.0.1", "name it with --target"),
            ("memroy", "is no URL: write memory"),
        ] {
            let message = open(&choice(url), Keys::Hot).await.unwrap_err();
            assert!(message.contains(said) && !message.contains("secret"), "{url}: {message}");
        }
    }

    #[tokio::test]
    async fn stages_that_are_not_there_can_not_be_left_out() {
        let message = open(&StoreChoice { flights: false, ..choice("memory") }, Keys::Hot).await.unwrap_err();
        assert!(message.starts_with("--no-flights leaves out a stage"), "{message}");
        let message =
            open(&StoreChoice { denial_cache: false, ..choice("memory") }, Keys::Hot).await.unwrap_err();
        assert!(message.starts_with("--no-denial-cache leaves out a stage"), "{message}");
    }

    #[test]
    fn figures_are_those_of_the_run() {
        let before = StoreFigures { calls: 1, checks: 2, bytes: 30 };
        let after = StoreFigures { calls: 11, checks: 102, bytes: 1030 };
        assert_eq!(after.since(before), StoreFigures { calls: 10, checks: 100, bytes: 1000 });
    }
}
