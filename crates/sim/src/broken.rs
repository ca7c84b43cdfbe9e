//! Faults that the simulation can be told to have: each must be caught, or the oracles are blind.
//!
//! They are switches of the simulated world, never of the product.

use std::fmt;

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Broken {
    /// Nothing.
    #[default]
    Nothing,
    /// No ledger: what a failover loses stays lost.
    LedgerOff,
    /// Running totals of what was granted in place of sequence numbers.
    Totals,
    /// After a change of the master nobody waits for the others.
    NoRollCall,
    /// Leases, but the window is not held open for them.
    LeasesWithoutSpan,
    /// The clock is cut to whole milliseconds where permits are charged, too.
    FlooredTwice,
}

impl Broken {
    /// All that must be caught.
    pub const ALL: [Self; 5] =
        [Self::LedgerOff, Self::Totals, Self::NoRollCall, Self::LeasesWithoutSpan, Self::FlooredTwice];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::LedgerOff => "ledger-off",
            Self::Totals => "totals",
            Self::NoRollCall => "no-roll-call",
            Self::LeasesWithoutSpan => "leases-without-span",
            Self::FlooredTwice => "floored-twice",
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
