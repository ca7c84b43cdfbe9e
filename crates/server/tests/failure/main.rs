//! Failures of real servers under eight real processes: what clients see, counted from outside.
//!
//! Each module is one bar. Its tests are slices of seconds, and run with all others; what is `#[ignore]`d is the whole of
//! it, in minutes, for `cargo xtask failure`, which prints the table that docs/failure.md shows. All traffic is on the
//! loopback. Rates are such that one machine of two processors is enough for the crowd, the processes and the servers.
//!
//! A number of admissions above a limit counts only if it is proved from outside: sent and answered within the window.

// Wall clocks of processes' own, and what a process uses, are to be had so on Linux only.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod clocks;
mod exact;
mod fleet;
mod kill;
mod planned;
mod processes;
mod rolling;
mod silence;
mod soak;
mod table;
mod topology;
