//! What a check comes to: numbers for each limit, and who answered.

use core::fmt;

use crate::time::Millis;

/// How much a check takes: 0 peeks.
pub type Cost = u32;

/// What a check found and left at one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The most permits that can be had at once.
    pub limit: u32,
    /// Permits in use after this check; clamped to `limit`, past which a lowered limit or a commit may
    /// have pushed the count.
    pub used: u32,
    /// Permits left after this check: how many single ones would pass now. `limit` less `used`, but for a
    /// leaky bucket what fits into its `max_delay`.
    pub remaining: u32,
    /// Time until `remaining` grows, if nobody takes any: zero when nothing is used, or when it never will.
    pub reset_after: Millis,
    /// Whether this limit refused the check.
    pub violated: bool,
    /// Violated only: the time at which this cost fits, if nobody else takes it. `None`: it never does.
    pub retry_after: Option<Millis>,
    /// How long the caller waits before it goes on (`leaky_bucket`); zero elsewhere. Of several equal checks
    /// decided at once, the first one's wait.
    pub delay: Millis,
}

/// Which part of slidegate answered. What is not `Normal`, `Cached` or `Leased` is degraded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// The store decided.
    #[default]
    Normal,
    /// Denied from the denial cache.
    Cached,
    /// Decided from a lease of this instance.
    Leased,
    /// The store is away: decided from this instance's share of the limit.
    Local,
    /// The store is away and the policy allows.
    AllowAll,
    /// The store is away and the policy denies.
    DenyAll,
    /// The memory store holds only keys that are denied now, so a new key is denied too.
    Full,
}

impl Mode {
    /// Every mode, in the order of the metrics.
    pub const ALL: [Self; 7] =
        [Self::Normal, Self::Cached, Self::Leased, Self::Local, Self::AllowAll, Self::DenyAll, Self::Full];

    /// The name in answers and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Cached => "cached",
            Self::Leased => "leased",
            Self::Local => "local",
            Self::AllowAll => "allow_all",
            Self::DenyAll => "deny_all",
            Self::Full => "full",
        }
    }

    /// Whether the exact promise does not cover this decision.
    pub const fn is_degraded(self) -> bool {
        !matches!(self, Self::Normal | Self::Cached | Self::Leased)
    }

    /// Whether the numbers of a decision come from its counters. Where they don't, they say nothing and are
    /// not to be told.
    pub const fn is_counted(self) -> bool {
        !matches!(self, Self::AllowAll | Self::DenyAll | Self::Full)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
