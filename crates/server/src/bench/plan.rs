//! What one run of the benchmark does: checked before it starts, and told in its report.

use std::time::Duration;

use slidegate::core::decision::Cost;
use slidegate::core::limit::{Algorithm, Limit};

use super::http::Url;
use super::keys::Keys;

/// The most callers: each has a histogram of 15 kB and, over HTTP, a connection.
pub(crate) const CALLERS_MAX: u32 = 4096;

/// The most arrivals each second: beyond what two cores can decide, and far beyond what one connection carries.
pub(crate) const RATE_MAX: u32 = 10_000_000;

/// The shortest run: one step of the admitted rate that is drawn.
pub(crate) const DURATION_MIN: Duration = Duration::from_millis(100);

/// The longest run: microseconds since its start fit in 32 bits, for [`super::window::Admitted`].
pub(crate) const DURATION_MAX: Duration = Duration::from_hours(1);

/// A run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) target: Target,
    /// What the target is held to. `None`: nobody said what an HTTP target's limit is.
    pub(crate) limit: Option<Limit>,
    /// Nobody chose the limit: it is the one that suits the keys.
    pub(crate) limit_is_default: bool,
    pub(crate) load: Load,
    pub(crate) duration: Duration,
    pub(crate) keys: Keys,
    pub(crate) cost: Cost,
    pub(crate) seed: u64,
}

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A store, through a limiter in this process.
    Store(StoreChoice),
    /// A server, with GET.
    Http(Url),
}

/// Which store, and which of the stages before it are left out.
#[derive(Clone, Debug)]
pub(crate) struct StoreChoice {
    pub(crate) url: String,
    pub(crate) flights: bool,
    pub(crate) denial_cache: bool,
}

impl StoreChoice {
    /// Whether it is the store in this process, which has no stages before it.
    pub(crate) fn is_embedded(&self) -> bool {
        self.url == "memory"
    }
}

/// When checks begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Each caller asks again as soon as it is answered.
    Closed {
        /// How many.
        callers: u32,
    },
    /// Checks arrive at this rate, however slowly they are answered (a Poisson process).
    Open {
        /// Arrivals each second.
        rate: u32,
        /// The most that are under way at once; what arrives when all are busy waits, and its wait counts.
        callers: u32,
    },
}

impl Load {
    /// How many checks can be under way at once.
    pub(crate) const fn callers(self) -> u32 {
        match self {
            Self::Closed { callers } | Self::Open { callers, .. } => callers,
        }
    }
}

/// The most permits that the algorithm lets through in any window of its length, where it promises anything.
pub(crate) fn bound(limit: &Limit) -> Option<u64> {
    let permits = u64::from(limit.permits());
    match limit.algorithm() {
        Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog => Some(permits),
        Algorithm::FixedWindow => Some(2 * permits),
        Algorithm::TokenBucket { burst } => Some(u64::from(burst) + permits),
        // It admits ahead of time what it then delays.
        _ => None,
    }
}
