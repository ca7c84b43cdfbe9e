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
}

fn suggestion(nearest: &Option<Arc<str>>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!(": did you mean {name:?}?"))
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}
