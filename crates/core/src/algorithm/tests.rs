//! What the algorithms promise, held against oracles that know nothing of how they work: lists of what was
//! admitted when, in continuous time, and sums over them.

mod buckets;
mod clocks;
mod equal;
mod extremes;
mod fixed;
mod leases;
mod long_run;
pub(crate) mod promises;
mod refunds;
mod reports;
mod reports_limits;
mod sliding;
pub(crate) mod world;
