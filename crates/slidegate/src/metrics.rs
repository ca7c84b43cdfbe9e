//! Counts of decisions, by policy, outcome and mode: a fixed number of series, whatever keys come.
//!
//! Plain counters, read by whoever exports them. Each thread adds to one of a few stripes, so that a busy
//! policy does not make all cores write one cache line.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use slidegate_core::decision::Mode;

use crate::policy::Policy;

/// What a decision was for one policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request may go on, and this policy was charged.
    Allowed,
    /// This policy refused the request.
    Denied,
    /// This policy would have refused the request, and only watches.
    ShadowDenied,
    /// Another policy of the same check refused the request; this one was not charged.
    NotCharged,
}

impl Verdict {
    /// Every verdict, in the order of the metrics.
    pub const ALL: [Self; 4] = [Self::Allowed, Self::Denied, Self::ShadowDenied, Self::NotCharged];

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::ShadowDenied => "shadow_denied",
            Self::NotCharged => "not_charged",
        }
    }
}

const SERIES: usize = Verdict::ALL.len() * Mode::ALL.len();

/// Stripes of one policy. More would only cost memory: contention falls with the first few.
const STRIPES: usize = 8;

/// A policy with the counters of its decisions.
#[derive(Debug)]
pub struct PolicyMetrics {
    policy: Arc<Policy>,
    stripes: Box<[Stripe]>,
}

/// What the threads of a stripe write to for each decision. Aligned to two cache lines, which some
/// processors fetch together.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe {
    decisions: [AtomicU64; SERIES],
    shared: SharedPolicy,
}

/// A policy that decisions refer to. Its own reference count would be written by every thread for every
/// decision; this one is counted by the threads of a stripe only. Meant for many cores: on
/// two it makes no difference (docs/benchmarks.md).
pub(crate) type SharedPolicy = Arc<Arc<Policy>>;

impl PolicyMetrics {
    pub(crate) fn new(policy: Policy) -> Self {
        let policy = Arc::new(policy);
        let stripe =
            || Stripe { decisions: [const { AtomicU64::new(0) }; SERIES], shared: Arc::new(policy.clone()) };
        Self { stripes: (0..STRIPES).map(|_| stripe()).collect(), policy }
    }

    /// Lends the policy to a decision that is not counted: one that only looked.
    pub(crate) fn lend(&self) -> SharedPolicy {
        self.stripes[stripe()].shared.clone()
    }

    /// Counts a decision, and lends it the policy.
    pub(crate) fn add(&self, verdict: Verdict, mode: Mode) -> SharedPolicy {
        let stripe = &self.stripes[stripe()];
        stripe.decisions[series(verdict, mode)].fetch_add(1, Ordering::Relaxed);
        stripe.shared.clone()
    }

    /// The policy.
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Decisions of this kind since the start.
    pub fn decisions(&self, verdict: Verdict, mode: Mode) -> u64 {
        let of_stripe = |stripe: &Stripe| stripe.decisions[series(verdict, mode)].load(Ordering::Relaxed);
        self.stripes.iter().map(of_stripe).sum()
    }
}

const fn series(verdict: Verdict, mode: Mode) -> usize {
    verdict as usize * Mode::ALL.len() + mode as usize
}

/// This thread's stripe: threads take turns when they first count something.
fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
    }
    MINE.get()
}
