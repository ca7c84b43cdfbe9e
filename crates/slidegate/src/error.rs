//! The ways in which a check does not come to a decision. Denied is not among them: it is a value.

use std::sync::Arc;

/// A check that could not be decided.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// No policy has this name.
    #[error("no policy is called {name:?}{}", suggestion(.nearest))]
    UnknownPolicy {
        /// The name that was asked for.
        name: Box<str>,
        /// The most similar name that exists.
        nearest: Option<Arc<str>>,
    },
    /// The same policy is named twice in one check.
    #[error("policy {policy} is named twice in one check: name it once, with the whole cost")]
    DuplicatePolicy {
        /// The policy.
        policy: Arc<str>,
    },
    /// More policies in one check than [`POLICIES_PER_CHECK_MAX`](crate::limiter::POLICIES_PER_CHECK_MAX).
    #[error("a check names {given} policies: name at most {most}")]
    TooManyPolicies {
        /// How many were named.
        given: usize,
        /// How many may be.
        most: usize,
    },
    /// The key does not have one value for each key template of the policy.
    #[error(
        "policy {policy} has {} in its key ({}), and {given} were given",
        plural(*.expected, "part"), .parts.join(", ")
    )]
    KeyParts {
        /// The policy.
        policy: Arc<str>,
        /// How many values it takes.
        expected: usize,
        /// What they are.
        parts: Vec<Arc<str>>,
        /// How many were given.
        given: usize,
    },
    /// The request lacks a part of the key, and the policy says `missing: deny`.
    #[error("policy {policy} needs {part}, which the request lacks")]
    MissingPart {
        /// The policy.
        policy: Arc<str>,
        /// The part, as in the configuration.
        part: Arc<str>,
    },
    /// The cost is above what the limit can ever hold: waiting does not help.
    #[error("a cost of {cost} never fits: limit {limit} of policy {policy} holds {capacity}")]
    Never {
        /// The policy.
        policy: Arc<str>,
        /// The limit's name in answers.
        limit: Arc<str>,
        /// The cost that was asked for.
        cost: u32,
        /// The most that fits at once.
        capacity: u32,
    },
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A store that could not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Too many reservations are waiting to be settled.
    #[error("{most} reservations are waiting to be committed or refunded: no more are taken")]
    ReservationsFull {
        /// The cap.
        most: usize,
    },
    /// The store can't be asked: nothing was executed.
    #[error("the store is unavailable: {fault}")]
    Unavailable {
        /// Why.
        fault: Fault,
    },
    /// The reply did not come: the call may have been executed, or may yet be.
    #[error("the store's reply was lost: {fault}")]
    Lost {
        /// How.
        fault: Fault,
    },
}

impl StoreError {
    /// What stands in the way, if the store itself is away.
    pub const fn fault(&self) -> Option<Fault> {
        match self {
            Self::ReservationsFull { .. } => None,
            Self::Unavailable { fault } | Self::Lost { fault } => Some(*fault),
        }
    }
}

/// What keeps a shared store from answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// There is no connection, or it broke.
    Disconnected,
    /// No reply before the deadline.
    Timeout,
    /// More calls wait than the queue holds.
    QueueFull,
    /// A replica, which takes no writes (READONLY).
    ReadOnly,
    /// It is reading its data from disk (LOADING).
    Loading,
    /// A replica without its master (MASTERDOWN).
    MasterDown,
    /// The cluster does not serve this slot (CLUSTERDOWN), or moves it around without end.
    ClusterDown,
    /// It takes no writes until somebody has seen to it: it can't save them, or has too few replicas (MISCONF,
    /// NOREPLICAS).
    WritesRefused,
    /// It is at its `maxmemory` and evicts nothing (OOM).
    OutOfMemory,
    /// The user may not run the command, or not on this key (NOPERM).
    NoPermission,
    /// The user or password is wrong, or missing (NOAUTH, WRONGPASS).
    NotAuthenticated,
    /// Another program's key stands where the counter belongs (WRONGTYPE, or bytes of no format).
    ForeignKey,
    /// The counter was written by a newer release: upgrade this one.
    NewerFormat,
    /// It is busy with somebody's slow script (BUSY).
    Busy,
    /// It is older than the scripts need: Redis 6.2.
    TooOld,
    /// It answered what makes no sense: a broken proxy, or no Redis at all.
    Protocol,
    /// This machine's clock decides, and differs from the server's by more than a second.
    ClockSkew,
}

impl Fault {
    /// Every fault, in the order of the metrics.
    pub const ALL: [Self; 17] = [
        Self::Disconnected,
        Self::Timeout,
        Self::QueueFull,
        Self::ReadOnly,
        Self::Loading,
        Self::MasterDown,
        Self::ClusterDown,
        Self::WritesRefused,
        Self::OutOfMemory,
        Self::NoPermission,
        Self::NotAuthenticated,
        Self::ForeignKey,
        Self::NewerFormat,
        Self::Busy,
        Self::TooOld,
        Self::Protocol,
        Self::ClockSkew,
    ];

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Timeout => "timeout",
            Self::QueueFull => "queue_full",
            Self::ReadOnly => "read_only",
            Self::Loading => "loading",
            Self::MasterDown => "master_down",
            Self::ClusterDown => "cluster_down",
            Self::WritesRefused => "writes_refused",
            Self::OutOfMemory => "out_of_memory",
            Self::NoPermission => "no_permission",
            Self::NotAuthenticated => "not_authenticated",
            Self::ForeignKey => "foreign_key",
            Self::NewerFormat => "newer_format",
            Self::Busy => "busy",
            Self::TooOld => "too_old",
            Self::Protocol => "protocol",
            Self::ClockSkew => "clock_skew",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Disconnected => "there is no connection",
            Self::Timeout => "no reply in time",
            Self::QueueFull => "too many calls are waiting",
            Self::ReadOnly => "it is a replica and takes no writes",
            Self::Loading => "it is still loading its data",
            Self::MasterDown => "it is a replica and its master is down",
            Self::ClusterDown => "the cluster does not serve this slot",
            Self::WritesRefused => "it refuses writes, as it can't save or replicate them: see its log",
            Self::OutOfMemory => "it is out of memory: raise maxmemory",
            Self::NoPermission => "its user may not do this: see the ACL rules in docs/redis.md",
            Self::NotAuthenticated => "user or password are wrong",
            Self::ForeignKey => "another program's key stands there: give each product a prefix of its own",
            Self::NewerFormat => "a newer release wrote this counter: upgrade this instance",
            Self::Busy => "it is busy with a slow script",
            Self::TooOld => "it is too old: slidegate needs Redis 6.2 or newer",
            Self::Protocol => "what answers is not Redis",
            Self::ClockSkew => {
                "this machine's clock and the server's differ by more than a second: see to NTP"
            }
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

fn suggestion(nearest: &Option<Arc<str>>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!(": did you mean {name:?}?"))
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}
