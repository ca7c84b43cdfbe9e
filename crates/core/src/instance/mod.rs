//! What an instance that shares a store works out for itself, as pure functions of the time on its own clock.
//!
//! | module | is |
//! |---|---|
//! | [`grants`] | what it was granted of one key, so that it can be put back after a failover |
//! | [`ladder`] | how well a node of the store answers, in three steps |
//! | [`purse`] | what it has leased and not spent yet, and how much it leases next |
//! | [`roll_call`] | who has yet to put back, after a master change |
//! | [`share`] | which part of a limit is an instance's own while there is no store |
//! | [`standing`] | how much it may use while it can't know what the others use |
//!
//! `now_us` is microseconds since any start, on a clock of the instance that never steps. Durations are
//! [`Millis`](crate::time::Millis). No IO and no randomness.

pub mod grants;
pub mod ladder;
pub mod purse;
pub mod roll_call;
pub mod share;
pub mod standing;

/// One period of local share, or of a roll call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Era {
    /// Different for each period, for as long as the instance runs; never 0.
    pub number: u32,
    /// When it began, on the instance's clock.
    pub began_us: u64,
}
