//! The seam between the stages and a shared store: checks that own what they name, decided many at a time.
//!
//! A [`Check`] borrows from its caller and can't wait in a queue; an [`OwnedCheck`] is the same question
//! in the store's own terms. What travels together is decided in order, each all-or-nothing by itself.

use std::future::Future;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use slidegate_core::algorithm::Receipt;
use slidegate_core::check::Terms;
use slidegate_core::decision::Cost;
use slidegate_core::limit::Limit;
use smallvec::SmallVec;

use crate::error::StoreError;
use crate::store::{Answer, Check, ReservationId};

/// A store that decides many checks in one call.
pub(crate) trait Batch: Send + Sync + 'static {
    /// The check in the store's terms.
    fn own(&self, check: &Check<'_>) -> OwnedCheck;

    /// Decides checks of one lane in order, in one call, and answers each in its place.
    fn call(&self, checks: Vec<Counted>) -> impl Future<Output = Vec<Result<Decided, StoreError>>> + Send;

    /// Gives back what a check took, as far as its history is still there. At most once for each receipt.
    fn give_back(&self, taken: &[Taken]) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A check that waits for its call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnedCheck {
    /// The counters, each at most once.
    pub(crate) charges: SmallVec<[OwnedCharge; 2]>,
    /// Remember what is charged under this id.
    pub(crate) reserve: Option<ReservationId>,
    /// Decide, and charge nothing.
    pub(crate) probe: bool,
}

/// One counter of an [`OwnedCheck`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnedCharge {
    /// The counter.
    pub(crate) key: CounterKey,
    /// The limit that it is held to.
    pub(crate) limit: Limit,
    /// What one check takes.
    pub(crate) cost: Cost,
    /// Counters of one policy share a group.
    pub(crate) group: u16,
    /// How the policy takes part.
    pub(crate) terms: Terms,
    /// Whether a ledger is kept (`failover: exact`).
    pub(crate) exact: bool,
}

/// A counter's name in the store. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct CounterKey {
    name: Arc<[u8]>,
    lane: u16,
}

impl CounterKey {
    pub(crate) fn new(name: impl Into<Arc<[u8]>>, lane: u16) -> Self {
        Self { name: name.into(), lane }
    }

    /// The key as the store has it.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Counters of one lane can be decided in one call: the slot in a cluster, 0 elsewhere.
    pub(crate) const fn lane(&self) -> u16 {
        self.lane
    }
}

/// The lane follows from the name.
impl PartialEq for CounterKey {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for CounterKey {}

impl Hash for CounterKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// `times` equal checks.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) check: Arc<OwnedCheck>,
    pub(crate) times: u32,
}

/// What a check came to in the store.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(crate) answer: Answer,
    /// What was taken, one for each charge; `None` where nothing was.
    pub(crate) receipts: SmallVec<[Option<Receipt>; 2]>,
}

/// Units that a check took from a counter.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) key: CounterKey,
    pub(crate) limit: Limit,
    pub(crate) receipt: Receipt,
}
