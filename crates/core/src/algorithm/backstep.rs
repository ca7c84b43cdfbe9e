//! The one rule for a store's clock that goes backwards: clamp small steps, shift large ones.
//!
//! Dropping what lies ahead of the clock would admit up to 2N; clamping alone would lock a key out for as
//! long as the step was. So stored time that is a little ahead is kept, as if the clock stood still until
//! it has caught up; stored time that is far ahead is moved back so that its newest part is now.

use crate::time::Millis;

/// The most that stored time may be ahead before it is shifted: a clock that NTP slews stays below, a
/// step by hand does not.
pub const CLAMP_MAX: Millis = Millis(10_000);

/// By how much stored time must be moved back, given its newest instant and the instant at which a charge
/// would be made now, both in milliseconds. Zero: it is not ahead, or so little that it is clamped.
pub const fn shift_ms(newest_ms: u64, natural_ms: u64, window: Millis) -> u64 {
    let ahead = newest_ms.saturating_sub(natural_ms);
    let clamp = if window.0 < CLAMP_MAX.0 { window.0 } else { CLAMP_MAX.0 };
    if ahead > clamp { ahead } else { 0 }
}
