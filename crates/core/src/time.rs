//! Readings of the store's clock, and lengths of time.
//!
//! Two types keep the two apart: [`Now`] is an instant in microseconds, [`Millis`] a duration. The core
//! never asks what time it is.
//!
//! # Rounding
//! An admission is charged at the *ceiling* of `now` in milliseconds; expiry, `retry_after` and
//! `reset_after` use the *floor*. Flooring both ends would let two admissions of a 1/1ms limit be 486 µs
//! apart on the store's own clock (measured on a real server); with the ceiling at one end a permit never
//! leaves the window before it is a full window old, in continuous time.

use core::fmt;
use core::str::FromStr;

/// An instant on the store's clock: microseconds since the Unix epoch, up to [`Now::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now(u64);

impl Now {
    /// The last instant, in June 2255: the last microsecond that the scripts' doubles can tell from the
    /// next. Later ones are taken as this one. So every time in a stored state, a window and a lease
    /// later at most, stays far below 2^53 milliseconds too, and no sum of times overflows.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// An instant from microseconds since the Unix epoch; any `u64`, saturating at [`Now::MAX`].
    pub const fn from_micros(micros: u64) -> Self {
        if micros < Self::MAX.0 { Self(micros) } else { Self::MAX }
    }

    /// An instant from milliseconds since the Unix epoch; any `u64`, saturating at [`Now::MAX`].
    pub const fn from_millis(millis: u64) -> Self {
        Self::from_micros(millis.saturating_mul(1000))
    }

    /// The instant `millis` later; saturates at [`Now::MAX`].
    #[must_use]
    pub const fn after(self, millis: Millis) -> Self {
        Self::from_micros(self.0.saturating_add(millis.0.saturating_mul(1000)))
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The last whole millisecond at or before this instant: used wherever something ends.
    pub const fn floor_ms(self) -> u64 {
        self.0 / 1000
    }

    /// The first whole millisecond at or after this instant: used wherever something is charged.
    pub const fn ceil_ms(self) -> u64 {
        self.0.div_ceil(1000)
    }
}

/// A length of time in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// The number of milliseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole seconds, rounded up: what a client that counts in seconds has to wait.
    pub const fn ceil_secs(self) -> u64 {
        self.0.div_ceil(1000)
    }
}

impl From<Millis> for core::time::Duration {
    fn from(millis: Millis) -> Self {
        Self::from_millis(millis.0)
    }
}

/// Units of the duration grammar, longest first, with their milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Written as the largest unit that divides it: `90s`, `1h`, `1500ms`.
impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, ms)| self.0 != 0 && self.0.is_multiple_of(*ms)) {
            Some((unit, ms)) => write!(f, "{}{unit}", self.0 / ms),
            None => write!(f, "0ms"),
        }
    }
}

/// Why a text is not a duration. Byte offsets count from the start of the text that was parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurationError {
    /// No digits where the number should be.
    NoNumber {
        /// Byte offset of what stands there instead.
        at: usize,
    },
    /// The number, or the number times its unit, does not fit in 64 bits of milliseconds.
    TooLong {
        /// Byte offset of the number.
        at: usize,
    },
    /// The unit is missing, or none of `ms`, `s`, `m`, `h`, `d`.
    Unit {
        /// Byte offset of the unit.
        at: usize,
    },
}

impl DurationError {
    /// Byte offset of the fault in the text.
    pub const fn at(&self) -> usize {
        match *self {
            Self::NoNumber { at } | Self::TooLong { at } | Self::Unit { at } => at,
        }
    }
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNumber { .. } => {
                write!(f, "a duration starts with a whole number, as in 200ms, 1s, 5m, 1h, 1d")
            }
            Self::TooLong { .. } => write!(f, "the duration is too long to count in milliseconds"),
            Self::Unit { .. } => {
                write!(f, "a duration ends with one of the units ms, s, m, h, d, as in 200ms or 5m")
            }
        }
    }
}

impl core::error::Error for DurationError {}

/// `200ms`, `1s`, `5m`, `1h`, `1d`: a whole number and one unit, nothing between and nothing around.
impl FromStr for Millis {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(DurationError::NoNumber { at: 0 });
        }
        let (_, ms) =
            UNITS.iter().find(|(name, _)| *name == unit).ok_or(DurationError::Unit { at: digits })?;
        let number: u64 = number.parse().map_err(|_| DurationError::TooLong { at: 0 })?;
        number.checked_mul(*ms).map(Millis).ok_or(DurationError::TooLong { at: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn charged_at_the_ceiling_and_expired_at_the_floor() {
        assert_eq!((Now::from_micros(1_500).floor_ms(), Now::from_micros(1_500).ceil_ms()), (1, 2));
        assert_eq!((Now::from_micros(2_000).floor_ms(), Now::from_micros(2_000).ceil_ms()), (2, 2));
    }

    #[test]
    fn every_u64_is_an_instant() {
        assert_eq!(Now::from_micros(u64::MAX), Now::MAX);
        assert_eq!(Now::from_millis(u64::MAX), Now::MAX);
        assert_eq!(Now::MAX.after(Millis(u64::MAX)), Now::MAX);
        assert_eq!(Now::from_micros(1 << 52).as_micros(), 1 << 52);
        assert_eq!(Now::from_millis(5).after(Millis(7)), Now::from_millis(12));
    }

    #[test]
    fn durations_read_and_print_alike() {
        for text in ["200ms", "1s", "5m", "1h", "1d", "366d", "1500ms", "90s"] {
            assert_eq!(text.parse::<Millis>().unwrap().to_string(), text);
        }
        assert_eq!("60s".parse::<Millis>().unwrap().to_string(), "1m");
        assert_eq!("0s".parse::<Millis>(), Ok(Millis(0)));
    }

    #[test]
    fn durations_that_are_none_say_where() {
        assert_eq!("".parse::<Millis>(), Err(DurationError::NoNumber { at: 0 }));
        assert_eq!("-1s".parse::<Millis>(), Err(DurationError::NoNumber { at: 0 }));
        assert_eq!("1.5s".parse::<Millis>(), Err(DurationError::Unit { at: 1 }));
        assert_eq!("10".parse::<Millis>(), Err(DurationError::Unit { at: 2 }));
        assert_eq!("10 s".parse::<Millis>(), Err(DurationError::Unit { at: 2 }));
        assert_eq!("18446744073709551616ms".parse::<Millis>(), Err(DurationError::TooLong { at: 0 }));
        assert_eq!("18446744073709551615d".parse::<Millis>(), Err(DurationError::TooLong { at: 0 }));
    }

    #[test]
    fn a_client_that_counts_seconds_waits_long_enough() {
        assert_eq!([200, 2_000, 2_001].map(|ms| Millis(ms).ceil_secs()), [1, 2, 3]);
    }
}
