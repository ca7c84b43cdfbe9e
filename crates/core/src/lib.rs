//! The decisions of slidegate: exact rate limiting as pure functions of `(now, limit, cost)`.
//!
//! ```
//! use slidegate_core::algorithm::State;
//! use slidegate_core::check::{Charge, Terms, decide};
//! use slidegate_core::limit::{Limit, parse_limit};
//! use slidegate_core::time::{Millis, Now};
//!
//! let limit: Limit = parse_limit("2/10s")?;
//! let mut state = State::new(&limit, 0);
//! let mut ask = |at_ms: u64| {
//!     let mut charges = [Charge::new(&mut state, &limit, 1, 0, Terms::default())];
//!     let granted = decide(Now::from_millis(at_ms), 1, &mut charges);
//!     (granted == 1, charges[0].outcome.retry_after)
//! };
//!
//! assert_eq!(ask(1_000), (true, None));
//! assert_eq!(ask(5_000), (true, None));
//! // The first of the two is a window old at 11 s, and then it no longer counts.
//! assert_eq!(ask(10_999), (false, Some(Millis(1))));
//! assert_eq!(ask(11_000), (true, None));
//! # Ok::<(), slidegate_core::limit::ParseLimitError>(())
//! ```
//!
//! # A tour
//! 1. [`time`]: instants in microseconds, durations in milliseconds, and which way each is rounded. Small,
//!    and everything rests on it.
//! 2. [`limit`]: N permits per window W under an [`Algorithm`](limit::Algorithm), and their grammar.
//! 3. [`algorithm`]: the counters, all with the same life: settle, room, charge, refund, outcome.
//!    [`algorithm::tick_log`] is the one that the product stands on; [`algorithm::sorted_log`] is what it is
//!    held against; [`algorithm::backstep`] is what all do when a clock goes backwards.
//! 4. [`check`]: several counters at once, all or nothing. [`decide`](check::decide) is the model of what a
//!    store does under its lock, or in its script.
//! 5. [`decision`]: what callers are told.
//! 6. [`key`]: how the parts of a key become one text that no other list of parts has.
//! 7. [`lease`], [`ledger`], [`algorithm::tick_log::image`], [`algorithm::tick_log::layout`]: the parts of a stored
//!    counter that serve leases and failover, the whole of it, and its bytes.
//! 8. [`instance`]: what an instance that shares a store works out for itself.
//!
//! # What it promises
//! * `sliding_window` and `sliding_log`: for every instant t of continuous time, what was admitted in
//!   (t - W, t] never exceeds N. Limits may change meanwhile, permits be leased, clocks step back.
//! * A denied check changes nothing; a refund gives back what was taken, until it has slid out.
//! * `retry_after` is exact: a millisecond before it the cost is denied, at it it fits.
//!
//! Each is a property test, with its exceptions in words.
//!
//! # What it does not do
//! No IO, no clock, no async, no serde, no floating point. `no_std`, so the compiler holds it to that.
//! `now` is always an argument; every integer operation is bounded, for any `u64` that a door lets in.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod algorithm;
pub mod check;
pub mod decision;
pub mod instance;
pub mod key;
pub mod lease;
pub mod ledger;
pub mod limit;
pub mod time;
