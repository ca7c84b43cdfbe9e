//! The decisions of slidegate: exact rate limiting as pure functions of `(now, limit, cost)`.
//!
//! Read it in this order:
//!
//! 1. [`time`]: instants in microseconds, durations in milliseconds, and which way each is rounded.
//! 2. [`limit`]: N permits per window W under an [`Algorithm`](limit::Algorithm), and their grammar.
//! 3. [`algorithm`]: the counters. [`algorithm::tick_log`] is the one that the product stands on.
//! 4. [`check`]: several counters at once, all or nothing.
//! 5. [`decision`]: what callers are told.
//! 6. [`key`], [`lease`], [`ledger`]: how keys are written, and the parts of the stored layout that serve
//!    leases and failover.
//!
//! # What this crate does not do
//! No IO, no clock, no async, no serde, no floating point. `no_std`, so the compiler holds it to that.
//! `now` is always an argument; every integer operation is bounded, for any `u64` that a door lets in.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod algorithm;
pub mod check;
pub mod decision;
pub mod key;
pub mod lease;
pub mod ledger;
pub mod limit;
pub mod time;
