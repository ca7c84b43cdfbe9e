//! The text form of limits: `5000/1s`, `10/s`, `100/m`, and several of them as `10/s; 100/m`.
//!
//! ```text
//! limits  = limit *( ";" limit )          at most 16
//! limit   = number "/" window
//! window  = unit | number unit            unit: ms s m h d
//! ```
//! Spaces around limits, `/` and `;` are allowed. Errors carry the byte offset of the fault.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use super::{Limit, LimitError};
use crate::time::{DurationError, Millis};

/// The most limits in one text, and of one policy: each is a key in the store and a header entry.
pub const LIMITS_MAX: usize = 16;

/// A text that is not a limit: where, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseLimitError {
    /// Byte offset of the fault in the text.
    pub at: usize,
    /// What is wrong there.
    pub fault: ParseLimitFault,
}

/// What is wrong with the text of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseLimitFault {
    /// Nothing where a limit should be.
    Empty,
    /// Not a whole number where the permits should be.
    Permits,
    /// No `/` after the permits.
    Slash,
    /// The window is not a duration.
    Window(DurationError),
    /// The numbers are readable but out of range.
    Limit(LimitError),
    /// More than [`LIMITS_MAX`] limits.
    TooMany,
}

impl fmt::Display for ParseLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            ParseLimitFault::Empty => write!(f, "a limit is missing here: write one such as 100/m"),
            ParseLimitFault::Permits => {
                write!(f, "a limit starts with a whole number of permits, as in 100/m")
            }
            ParseLimitFault::Slash => write!(f, "a limit is permits / window, as in 100/m or 5000/1s"),
            ParseLimitFault::Window(error) => write!(f, "{error}"),
            ParseLimitFault::Limit(error) => write!(f, "{error}"),
            ParseLimitFault::TooMany => write!(f, "too many limits: write at most {LIMITS_MAX}"),
        }
    }
}

impl core::error::Error for ParseLimitError {}

impl FromStr for Limit {
    type Err = ParseLimitError;

    fn from_str(text: &str) -> Result<Self, ParseLimitError> {
        parse_limit(text)
    }
}

/// One limit such as `5000/1s` or `100/m`.
///
/// # Errors
/// [`ParseLimitError`] with the byte offset of the fault.
pub fn parse_limit(text: &str) -> Result<Limit, ParseLimitError> {
    let start = text.len() - text.trim_start().len();
    let body = text.trim();
    let fail = |at: usize, fault| Err(ParseLimitError { at: start + at, fault });
    if body.is_empty() {
        return fail(0, ParseLimitFault::Empty);
    }
    let Some((number, window)) = body.split_once('/') else {
        let digits = body.bytes().take_while(u8::is_ascii_digit).count();
        let fault = if digits == 0 { ParseLimitFault::Permits } else { ParseLimitFault::Slash };
        return fail(digits, fault);
    };
    let window_at = number.len() + 1 + (window.len() - window.trim_start().len());
    let (number, window) = (number.trim_end(), window.trim_start());
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return fail(0, ParseLimitFault::Permits);
    }
    let permits = number.parse().unwrap_or(u64::MAX);
    let window = match parse_window(window) {
        Ok(window) => window,
        Err(error) => return fail(window_at + error.at(), ParseLimitFault::Window(error)),
    };
    match Limit::new(permits, window) {
        Ok(limit) => Ok(limit),
        Err(error @ LimitError::Window { .. }) => fail(window_at, ParseLimitFault::Limit(error)),
        Err(error) => fail(0, ParseLimitFault::Limit(error)),
    }
}

/// A duration, or a bare unit for one of it: `s` is `1s`.
fn parse_window(text: &str) -> Result<Millis, DurationError> {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return text.parse();
    }
    let mut one = alloc::string::String::from("1");
    one.push_str(text);
    one.parse().map_err(|_| DurationError::Unit { at: 0 })
}

/// One or several limits separated by `;`, such as `10/s; 100/m`.
///
/// # Errors
/// [`ParseLimitError`] with the byte offset of the fault in the whole text.
pub fn parse_limits(text: &str) -> Result<Vec<Limit>, ParseLimitError> {
    let mut limits = Vec::new();
    let mut at = 0;
    for part in text.split(';') {
        if limits.len() == LIMITS_MAX {
            return Err(ParseLimitError { at, fault: ParseLimitFault::TooMany });
        }
        limits.push(parse_limit(part).map_err(|error| ParseLimitError { at: at + error.at, ..error })?);
        at += part.len() + 1;
    }
    Ok(limits)
}
