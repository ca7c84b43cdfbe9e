//! The one rule for a store's clock that goes backwards: clamp small steps, shift large ones.
//!
//! Dropping what lies ahead of the clock would admit up to 2N; clamping alone would lock a key out for as
//! long as the step was. So stored time that is a little ahead is kept, as if the clock stood still until
//! it has caught up; stored time that is far ahead is moved back to the present.
//!
//! # Where to
//! A state that keeps one instant (bucket, fixed window) moves it to now. A log moves all its ticks alike,
//! so that their distances stay. Those distances can be almost one tick longer than the time that really
//! passed, because ticks are rounded up: two charges 1 µs apart may lie in different milliseconds. So the
//! newest tick of a log that holds more than one goes to the tick *after* now; at now itself, its older
//! permits would leave up to one tick early.

use crate::time::Millis;

/// The most that stored time may be ahead before it is shifted: a clock that NTP slews stays below, a
/// step by hand does not.
pub const CLAMP_MAX: Millis = Millis(10_000);

/// Whether stored time must be moved back, given its newest instant and the instant at which a charge would
/// be made now, both in milliseconds. If not, it is not ahead, or so little that it is clamped.
pub const fn must_shift(newest_ms: u64, natural_ms: u64, window: Millis) -> bool {
    let clamp = if window.0 < CLAMP_MAX.0 { window.0 } else { CLAMP_MAX.0 };
    newest_ms.saturating_sub(natural_ms) > clamp
}
