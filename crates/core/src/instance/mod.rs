//! What an instance that shares a store works out for itself, as pure functions of the time on its own clock.
//!
//! | module | is |
//! |---|---|
//! | [`ladder`] | how well a node of the store answers, in three steps |
//! | [`share`] | which part of a limit is an instance's own while there is no store |
//!
//! `now_us` is microseconds since any start, on a clock of the instance that never steps. Durations are
//! [`Millis`](crate::time::Millis). No IO and no randomness.

pub mod ladder;
pub mod share;
