//! What a caller is told: allowed or denied, by which limits, until when, and who answered.

use smallvec::SmallVec;

pub use slidegate_core::decision::{Mode, Outcome};
use slidegate_core::limit::Limit;
use slidegate_core::time::Millis;

use crate::http::fields::LimitText;
use crate::metrics::SharedPolicy;
use crate::policy::{OnStoreFailure, Policy};

/// The answer to a check of one or several policies. Denied is a value, never an error.
#[derive(Clone, Debug)]
#[must_use = "a decision that nobody looks at limits nothing"]
pub struct Decision {
    allowed: bool,
    mode: Mode,
    parts: SmallVec<[Part; 1]>,
}

/// What one policy of a check came to.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) policy: SharedPolicy,
    /// Which of the policy's limit sets applied: the base set or an override's.
    pub(crate) set: usize,
    /// One for each limit of the set, in its order.
    pub(crate) outcomes: Outcomes,
}

/// Outcomes of a few limits: most policies have one or two, which then need no allocation.
pub(crate) type Outcomes = SmallVec<[Outcome; 2]>;

/// One limit of a decision.
#[derive(Clone, Copy, Debug)]
pub struct LimitState<'a> {
    /// The policy that the limit belongs to.
    pub policy: &'a Policy,
    /// The limit's name in answers: unique in a configuration, printable ASCII.
    pub name: &'a str,
    /// The limit that was applied, after overrides.
    pub limit: &'a Limit,
    /// The numbers.
    pub outcome: &'a Outcome,
    /// The parts of its fields that never change.
    pub(crate) text: &'a LimitText,
}

impl LimitState<'_> {
    /// Whether the policy only watches: its refusals deny nobody.
    pub fn is_shadow(&self) -> bool {
        self.policy.is_shadow()
    }
}

impl Decision {
    pub(crate) const fn new(allowed: bool, mode: Mode, parts: SmallVec<[Part; 1]>) -> Self {
        Self { allowed, mode, parts }
    }

    /// Whether the request may go on.
    pub const fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Which part of slidegate answered.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether a shadow policy would have denied it.
    pub fn is_shadow_denied(&self) -> bool {
        self.limits().any(|state| state.is_shadow() && state.outcome.violated)
    }

    /// The names of the policies that were checked, in the order in which they were asked. Exempt and
    /// skipped ones are not among them.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.parts.iter().map(|part| &**part.policy)
    }

    /// Every limit that was checked, shadow ones included.
    pub fn limits(&self) -> impl Iterator<Item = LimitState<'_>> {
        self.parts.iter().flat_map(|part| {
            part.policy.set(part.set).iter().zip(&part.outcomes).map(|(limit, outcome)| LimitState {
                policy: &part.policy,
                name: limit.public_name(),
                limit: limit.limit(),
                outcome,
                text: limit.text(),
            })
        })
    }

    /// The limits that denied the check: empty when it was allowed. While the store is away
    /// ([`Mode::DenyAll`]) nobody counted, and these are the limits of the policies that deny then.
    pub fn violated(&self) -> impl Iterator<Item = LimitState<'_>> {
        self.limits().filter(|state| state.outcome.violated && !state.is_shadow())
    }

    /// Whether the numbers of a limit of this decision come from its counter. Where they don't, they say nothing and
    /// are not to be told: nobody counted ([`Mode::is_counted`]), or, while others decided from their share
    /// ([`Mode::Local`]), not for this policy.
    pub fn is_counted(&self, state: &LimitState<'_>) -> bool {
        self.mode.is_counted()
            && (self.mode != Mode::Local || state.policy.on_store_failure() == OnStoreFailure::Local)
    }

    /// Denied only: the time after which this cost fits in all violated limits, if nobody else takes it.
    /// `None` when allowed, when no wait would help (a limit of 0, a full store), and when nobody knows (the
    /// store is away).
    pub fn retry_after(&self) -> Option<Millis> {
        let mut longest = None;
        for state in self.violated() {
            longest = longest.max(Some(state.outcome.retry_after?));
        }
        longest
    }

    /// How long an allowed request waits before it goes on: zero but for leaky buckets.
    pub fn delay(&self) -> Millis {
        self.limits()
            .filter(|state| !state.is_shadow())
            .map(|state| state.outcome.delay)
            .max()
            .unwrap_or_default()
    }
}
