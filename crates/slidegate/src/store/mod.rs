//! The seam between limiter and counters: one coarse, atomic question.
//!
//! [`Store`] has a single method that decides, because a store that offered `get` and `set` would need
//! several round trips and race between them. Durations cross the seam, instants never do: only the store
//! knows what time it is.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use slidegate_core::check::Terms;
use slidegate_core::decision::{Cost, Mode, Outcome};
use slidegate_core::key::Key;
use smallvec::SmallVec;

use crate::error::StoreError;
use crate::policy::{NamedLimit, Policy};

pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;

/// Where counters are kept.
///
/// # Contract
/// * [`check`](Self::check) is **atomic**: no other call sees or changes the counters between reading and
///   charging them, and all of them are charged or none.
/// * It decides what [`slidegate_core::check::decide`] decides on the same history and the same `now`.
/// * It is **cancel-safe**: a dropped future has charged or it has not, never half.
///
/// A wrong *allow* breaks the one promise that callers rely on, and nothing later can take it back. A wrong
/// *deny* costs a caller one retry. Where a store can't know, it must say so with an error, and the policy
/// decides; it must never guess.
pub trait Store: Send + Sync + 'static {
    /// Decides one check. A cost of 0 reads the counter and creates nothing.
    fn check(&self, check: &Check<'_>) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Settles a reservation at its actual cost, once: what was reserved beyond it is given back, what it
    /// exceeds is charged, even past the limit. A counter that has since come under another limit may give
    /// nothing back, and must forget nothing.
    fn settle(
        &self,
        id: ReservationId,
        actual: Cost,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// Empties one counter. Receipts and reservations of what it held give nothing back afterwards.
    fn reset(&self, counter: &Counter<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Limiters that share a store share its counters: so limits change without losing what they counted.
impl<S: Store> Store for Arc<S> {
    fn check(&self, check: &Check<'_>) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        (**self).check(check)
    }

    fn settle(
        &self,
        id: ReservationId,
        actual: Cost,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send {
        (**self).settle(id, actual)
    }

    fn reset(&self, counter: &Counter<'_>) -> impl Future<Output = Result<(), StoreError>> + Send {
        (**self).reset(counter)
    }
}

/// Names one counter: a limit of a policy, for one key.
#[derive(Clone, Copy, Debug)]
pub struct Counter<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The key. All limits of one policy and key lie together.
    pub key: &'a Key,
    /// The limit as it stands now, with its name.
    pub limit: &'a NamedLimit,
}

/// A check: one or several counters, all or nothing.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// How many equal checks this one stands for; at least 1.
    pub times: u32,
    /// The counters, each at most once.
    pub charges: &'a [Charge<'a>],
    /// Remember what is charged under this id until it is settled or its window has ended. `times` is 1
    /// then.
    pub reserve: Option<ReservationId>,
}

/// One counter of a check.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// Which counter.
    pub counter: Counter<'a>,
    /// What one check takes.
    pub cost: Cost,
    /// Counters of one policy share a group; groups are numbered from 0.
    pub group: u16,
    /// How the policy takes part.
    pub terms: Terms,
}

/// What a check came to.
#[derive(Clone, Debug)]
pub struct Answer {
    /// How many of the `times` checks were granted.
    pub granted: u32,
    /// One for each charge, in order.
    pub outcomes: SmallVec<[Outcome; 2]>,
    /// Who answered.
    pub mode: Mode,
    /// How far a refusal can be relied on.
    pub certainty: Certainty,
}

/// How far a refusal can be relied on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// It stands until the time that it tells: it may be told to others who ask for as much or more.
    #[default]
    Exact,
    /// It is true now, and may have been caused by checks that were refused themselves and are giving back what
    /// they took: it must not be told to anybody else. Only in a cluster, where the counters of a check may
    /// lie in several slots.
    Passing,
    /// As [`Passing`](Self::Passing); besides, the check took permits itself, and it is not known whether they
    /// were given back. If not, they end with their window.
    Unconfirmed,
}

/// What settling a reservation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Settled now. Both are the most of any of its limits: given back is less than was left over if part of
    /// it had slid out, been reset or been moved by the clock.
    Done {
        /// Units given back.
        given_back: Cost,
        /// Units charged on top.
        charged: Cost,
    },
    /// No such reservation: never made, settled before, or its window has ended.
    Unknown,
}

/// Names a reservation; 128 random bits, so that it can't be guessed. Written as 32 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReservationId(u128);

impl ReservationId {
    /// A fresh id.
    ///
    /// # Panics
    /// If the operating system has no random numbers to give, which ends processes that need secrets.
    pub fn random() -> Self {
        Self(crate::random::u128())
    }

    /// The bits.
    #[cfg(feature = "redis")]
    pub(crate) const fn as_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A text that is not a reservation id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reservation id has 32 hexadecimal digits")]
pub struct ParseReservationIdError;

impl std::str::FromStr for ReservationId {
    type Err = ParseReservationIdError;

    fn from_str(text: &str) -> Result<Self, ParseReservationIdError> {
        let plain = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !plain {
            return Err(ParseReservationIdError);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| ParseReservationIdError)
    }
}
