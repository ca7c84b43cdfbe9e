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
use slidegate_core::time::Millis;
use smallvec::SmallVec;

use crate::error::StoreError;
use crate::store::{Answer, Check, Counter, ReservationId, Settled};

/// A store that decides many checks in one call.
///
/// Every call ends, after a deadline if need be: what waits for it holds its counters until then. None is
/// repeated by the stages, since what was [lost](StoreError::Lost) may have been executed.
pub(crate) trait Batch: Send + Sync + 'static {
    /// The check in the store's terms.
    fn own(&self, check: &Check<'_>) -> OwnedCheck;

    /// Decides checks of one lane in order, in one call and at one instant, and answers each in its place.
    fn call(&self, checks: Vec<Counted>) -> impl Future<Output = Vec<Result<Decided, StoreError>>> + Send;

    /// Gives back what checks of one lane took, in one call, as far as the history is still there. Called at
    /// most once for each unit; what fails is not tried again.
    fn give_back(&self, taken: &[Taken]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Remembers, to be settled under this id, what the parts of one check took in several lanes. A part
    /// that took nothing, since its cost is 0, has a receipt of no units.
    fn remember(
        &self,
        id: ReservationId,
        taken: &[Taken],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// As [`Store::settle`](crate::store::Store::settle).
    fn settle(
        &self,
        id: ReservationId,
        actual: Cost,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// As [`Store::reset`](crate::store::Store::reset).
    fn reset(&self, counter: &Counter<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A check that waits for its call. All its counters lie in one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnedCheck {
    /// The counters, each at most once.
    pub(crate) charges: SmallVec<[OwnedCharge; 2]>,
    /// Remember what is charged under this id.
    pub(crate) reserve: Option<ReservationId>,
    /// Decide, and charge nothing: the outcomes are those of the counters as they are.
    pub(crate) probe: bool,
    /// For how long what is granted may be spent, at most [`LEASE_MAX`](slidegate_core::lease::LEASE_MAX); zero: at
    /// once. Only for `sliding_window` limits.
    pub(crate) lease: Millis,
}

impl OwnedCheck {
    /// The lane of its counters; 0 if it has none.
    pub(crate) fn lane(&self) -> u16 {
        self.charges.first().map_or(0, |charge| charge.key.lane())
    }

    /// What an answer says was taken, less what took nothing.
    pub(crate) fn taken(&self, receipts: &[Option<Receipt>]) -> SmallVec<[Taken; 2]> {
        let taken = |(charge, receipt): (&OwnedCharge, &Option<Receipt>)| {
            let receipt = receipt.filter(|receipt| receipt.units > 0)?;
            Some(Taken { key: charge.key.clone(), limit: charge.limit, receipt })
        };
        self.charges.iter().zip(receipts).filter_map(taken).collect()
    }
}

/// One counter of an [`OwnedCheck`].
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// The same, to keep.
    pub(crate) const fn shared_name(&self) -> &Arc<[u8]> {
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
