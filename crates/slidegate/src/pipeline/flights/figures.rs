//! What the flights saved, and what they cost.

/// Counts since the start; but for the largest flight, they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlightFigures {
    /// Checks that were asked, those that found the queue full included.
    pub(crate) checks: u64,
    /// Calls that took checks to the store.
    pub(crate) flights: u64,
    /// Checks that travelled on the back of an equal one.
    pub(crate) coalesced: u64,
    /// The most checks that one call decided.
    pub(crate) largest: u64,
    /// Checks whose caller went away before the answer.
    pub(crate) cancelled: u64,
    /// Counters to which something was given back, because its caller was gone or another lane refused.
    pub(crate) given_back: u64,
    /// Counters of which it is not known whether it was: it ends with its window at the latest.
    pub(crate) unconfirmed: u64,
    /// Checks that found the queue full.
    pub(crate) queue_full: u64,
}

impl FlightFigures {
    /// Adds those of another part.
    pub(crate) fn add(&mut self, other: &Self) {
        self.checks += other.checks;
        self.flights += other.flights;
        self.coalesced += other.coalesced;
        self.largest = self.largest.max(other.largest);
        self.cancelled += other.cancelled;
        self.given_back += other.given_back;
        self.unconfirmed += other.unconfirmed;
        self.queue_full += other.queue_full;
    }
}
