//! The whole stack on real servers while things go wrong: what is admitted in all, what callers are told, and how
//! soon it is over. What each fault does to a connection is the link's own business, and tested there.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]
// A check passes through stages that are futures in futures.
#![recursion_limit = "256"]

mod asking;
mod churn;
mod crowds;
mod failover;
mod faults;
mod memory;
mod outage;
mod put_back;
mod replies;
mod resharding;
mod upgrades;
