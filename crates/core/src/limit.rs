//! What a limit is: N permits per window W under an algorithm, checked once, where it enters.
//!
//! A [`Limit`] that exists is valid: every combination that an algorithm can't hold to is refused by
//! [`Limit::new`] or [`Limit::with_algorithm`] with a [`LimitError`] that says what to write instead.

use core::fmt;

use crate::time::Millis;

mod grammar;

pub use grammar::{LIMITS_MAX, ParseLimitError, ParseLimitFault, parse_limit, parse_limits};

/// The longest window: 366 days.
pub const WINDOW_MAX: Millis = Millis(366 * 86_400_000);

/// The most permits in a window. Above it, counts would not fit where the stores keep them.
pub const PERMITS_MAX: u32 = u32::MAX;

/// The most permits of a `sliding_log`, which keeps an entry for each: 138 bytes apiece in a sorted set.
pub const SLIDING_LOG_PERMITS_MAX: u32 = 1_000_000;

/// The most entries that a `resolution` may ask of one tick log: half a megabyte of 8-byte entries.
pub const RESOLUTION_ENTRIES_MAX: u32 = 65_536;

/// N permits per window W under an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    permits: u32,
    window: Millis,
    algorithm: Algorithm,
}

/// How permits are counted. Closed on purpose: each one has a twin script in Redis, so an open trait
/// would promise what it could not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Exact: never more than N in any window of continuous time. Kept as a tick log, whose memory depends
    /// on the window and never on the request rate.
    SlidingWindow {
        /// Tick length in milliseconds; `None` is automatic: 1 ms while the log fits in 4096 entries, else
        /// the largest power of two that keeps it at 4096 to 8192.
        resolution: Option<Millis>,
    },
    /// Exact, one entry for each permit: readable in the store, and costly.
    SlidingLog,
    /// N per window aligned to the store's clock. Up to 2N around a boundary.
    FixedWindow,
    /// Refills continuously at N/W up to `burst`; admits at most burst + rate x T in any T.
    TokenBucket {
        /// Capacity in permits.
        burst: u32,
    },
    /// Lets one permit out each W/N; what comes sooner waits, up to `max_delay`.
    LeakyBucket {
        /// The longest wait before a check is denied instead.
        max_delay: Millis,
    },
}

impl Algorithm {
    /// The default: `sliding_window` with automatic resolution.
    pub const SLIDING_WINDOW: Self = Self::SlidingWindow { resolution: None };

    /// The name in configuration and answers.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::SlidingWindow { .. } => "sliding_window",
            Self::SlidingLog => "sliding_log",
            Self::FixedWindow => "fixed_window",
            Self::TokenBucket { .. } => "token_bucket",
            Self::LeakyBucket { .. } => "leaky_bucket",
        }
    }
}

/// Why a limit can't be: each message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// More than [`PERMITS_MAX`] permits.
    Permits {
        /// What was asked for.
        permits: u64,
    },
    /// A window of less than 1 ms or more than [`WINDOW_MAX`].
    Window {
        /// What was asked for.
        window: Millis,
    },
    /// A `sliding_log` of more than [`SLIDING_LOG_PERMITS_MAX`] permits.
    SlidingLogTooLong {
        /// What was asked for.
        permits: u32,
    },
    /// A resolution of zero, or longer than the window.
    Resolution {
        /// What was asked for.
        resolution: Millis,
        /// The window of the limit.
        window: Millis,
    },
    /// A resolution that would need more than [`RESOLUTION_ENTRIES_MAX`] entries.
    ResolutionTooFine {
        /// What was asked for.
        resolution: Millis,
        /// The finest resolution that fits.
        finest: Millis,
    },
    /// A burst of 0 although the limit has permits, or more than fits.
    Burst {
        /// What was asked for.
        burst: u64,
    },
    /// A burst that takes longer than [`WINDOW_MAX`] to refill.
    BurstRefill {
        /// What was asked for.
        burst: u32,
    },
    /// A `max_delay` longer than [`WINDOW_MAX`].
    MaxDelay {
        /// What was asked for.
        max_delay: Millis,
    },
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permits { permits } => {
                write!(f, "{permits} permits are too many: write a whole number from 0 to {PERMITS_MAX}")
            }
            Self::Window { window } => {
                write!(f, "a window of {window} is out of range: write one from 1ms to 366d")
            }
            Self::SlidingLogTooLong { permits } => write!(
                f,
                "sliding_log keeps one entry for each permit, and {permits} are too many: write at most {SLIDING_LOG_PERMITS_MAX}, or use sliding_window"
            ),
            Self::Resolution { resolution, window } => write!(
                f,
                "a resolution of {resolution} is out of range: write auto, or one from 1ms to the window ({window})"
            ),
            Self::ResolutionTooFine { resolution, finest } => write!(
                f,
                "a resolution of {resolution} needs more than {RESOLUTION_ENTRIES_MAX} entries for each key: write auto, or at least {finest}"
            ),
            Self::Burst { burst } => {
                write!(f, "a burst of {burst} is out of range: write a whole number from 1 to {PERMITS_MAX}")
            }
            Self::BurstRefill { burst } => write!(
                f,
                "a burst of {burst} takes more than 366d to refill at this rate: write a smaller one"
            ),
            Self::MaxDelay { max_delay } => {
                write!(f, "a max_delay of {max_delay} is out of range: write one of at most 366d")
            }
        }
    }
}

impl core::error::Error for LimitError {}

impl Limit {
    /// `permits` per `window` as a `sliding_window` with automatic resolution.
    ///
    /// # Errors
    /// [`LimitError`] for more than [`PERMITS_MAX`] permits and for windows outside 1 ms to [`WINDOW_MAX`].
    pub const fn new(permits: u64, window: Millis) -> Result<Self, LimitError> {
        if permits > PERMITS_MAX as u64 {
            return Err(LimitError::Permits { permits });
        }
        if window.0 == 0 || window.0 > WINDOW_MAX.0 {
            return Err(LimitError::Window { window });
        }
        #[expect(clippy::cast_possible_truncation, reason = "checked above")]
        Ok(Self { permits: permits as u32, window, algorithm: Algorithm::SLIDING_WINDOW })
    }

    /// The same permits and window under another algorithm.
    ///
    /// # Errors
    /// [`LimitError`] where the algorithm can't hold to these numbers.
    pub fn with_algorithm(self, algorithm: Algorithm) -> Result<Self, LimitError> {
        match algorithm {
            Algorithm::SlidingWindow { resolution: Some(resolution) } => self.check_resolution(resolution)?,
            Algorithm::SlidingWindow { resolution: None } | Algorithm::FixedWindow => {}
            Algorithm::SlidingLog if self.permits > SLIDING_LOG_PERMITS_MAX => {
                return Err(LimitError::SlidingLogTooLong { permits: self.permits });
            }
            Algorithm::SlidingLog => {}
            Algorithm::TokenBucket { burst } => self.check_burst(burst)?,
            Algorithm::LeakyBucket { max_delay } if max_delay > WINDOW_MAX => {
                return Err(LimitError::MaxDelay { max_delay });
            }
            Algorithm::LeakyBucket { .. } => {}
        }
        Ok(Self { algorithm, ..self })
    }

    fn check_resolution(&self, resolution: Millis) -> Result<(), LimitError> {
        if resolution.0 == 0 || resolution > self.window {
            return Err(LimitError::Resolution { resolution, window: self.window });
        }
        let entries = u64::from(self.permits).min(self.window.0 / resolution.0);
        let most = u64::from(RESOLUTION_ENTRIES_MAX);
        if entries > most {
            let finest = Millis(self.window.0.div_ceil(most));
            return Err(LimitError::ResolutionTooFine { resolution, finest });
        }
        Ok(())
    }

    fn check_burst(&self, burst: u32) -> Result<(), LimitError> {
        if burst == 0 && self.permits != 0 {
            return Err(LimitError::Burst { burst: 0 });
        }
        // Bounds every elapsed time that the bucket has to multiply, so that the script's doubles stay exact.
        // Both sides exceed 64 bits.
        let refill = u128::from(burst) * u128::from(self.window.0);
        if self.permits != 0 && refill > u128::from(self.permits) * u128::from(WINDOW_MAX.0) {
            return Err(LimitError::BurstRefill { burst });
        }
        Ok(())
    }

    /// N: the permits of one window.
    pub const fn permits(&self) -> u32 {
        self.permits
    }

    /// W: the length of the window.
    pub const fn window(&self) -> Millis {
        self.window
    }

    /// How permits are counted.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The most permits that can be had at once: the largest cost that is not `never`. N, but for a token
    /// bucket its burst. What answers show as the limit.
    pub fn capacity(&self) -> u32 {
        match self.algorithm {
            Algorithm::TokenBucket { .. } if self.permits == 0 => 0,
            Algorithm::TokenBucket { burst } => burst,
            Algorithm::SlidingWindow { .. }
            | Algorithm::SlidingLog
            | Algorithm::FixedWindow
            | Algorithm::LeakyBucket { .. } => self.permits,
        }
    }
}

/// As in configuration: `100/1m`, with the algorithm named where it is not `sliding_window`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.permits, self.window)?;
        match self.algorithm {
            Algorithm::SlidingWindow { resolution: None } => Ok(()),
            Algorithm::SlidingWindow { resolution: Some(resolution) } => {
                write!(f, " resolution {resolution}")
            }
            Algorithm::SlidingLog | Algorithm::FixedWindow => write!(f, " {}", self.algorithm.name()),
            Algorithm::TokenBucket { burst } => write!(f, " token_bucket burst {burst}"),
            Algorithm::LeakyBucket { max_delay } => write!(f, " leaky_bucket max_delay {max_delay}"),
        }
    }
}

#[cfg(test)]
mod tests;
