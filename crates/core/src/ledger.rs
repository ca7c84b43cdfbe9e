//! Ledger rows: what a key remembers of the last call of each instance.
//!
//! With asynchronous replication the last writes before a failover are lost. A row lets the next call of an
//! instance find out what became of its last one: executed, lost on the way back, or lost with the old
//! master. The rows are part of the stored layout; deciding by them belongs to the shared stores.

/// The most rows of one key: instances that were granted permits of it within a window. The oldest row
/// makes way for a new one.
pub const ROWS_MAX: usize = 64;

/// The last executed call of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Who: fresh whenever the instance's ledger starts empty.
    pub identity: u64,
    /// The sequence number of its last executed call, below 2^53. 32 bits would be used up by a key that an
    /// instance asks for 1000 times a second in 49.7 days.
    pub seq: u64,
    /// Permits that this call was granted.
    pub count: u32,
    /// The low 32 bits of the tick that they went to.
    pub tick: u32,
}
