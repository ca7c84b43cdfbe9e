//! Counts of decisions, by policy, outcome and mode: a fixed number of series, whatever keys come.
//!
//! Plain counters, read by whoever exports them. Each thread adds to one of a few stripes, so that a busy
//! policy does not make all cores fight for one cache line.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use slidegate_core::decision::Mode;

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

/// Stripes of one policy's counters. More would only cost memory: contention falls with the first few.
const STRIPES: usize = 8;

/// The counters of one policy.
#[derive(Debug)]
pub struct PolicyMetrics {
    policy: Arc<str>,
    stripes: Box<[Stripe]>,
}

/// Aligned to two cache lines, which processors fetch together.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe([AtomicU64; SERIES]);

impl PolicyMetrics {
    pub(crate) fn new(policy: Arc<str>) -> Self {
        let stripes = (0..STRIPES).map(|_| Stripe([const { AtomicU64::new(0) }; SERIES])).collect();
        Self { policy, stripes }
    }

    pub(crate) fn add(&self, verdict: Verdict, mode: Mode) {
        self.stripes[stripe()].0[series(verdict, mode)].fetch_add(1, Ordering::Relaxed);
    }

    /// The policy's name.
    pub const fn policy(&self) -> &Arc<str> {
        &self.policy
    }

    /// Decisions of this kind since the start.
    pub fn decisions(&self, verdict: Verdict, mode: Mode) -> u64 {
        let of_stripe = |stripe: &Stripe| stripe.0[series(verdict, mode)].load(Ordering::Relaxed);
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
