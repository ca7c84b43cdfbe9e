//! Policies: which limits, for which key, at what cost, and for whom not.

use std::sync::Arc;

use slidegate_core::check::Terms;
use slidegate_core::decision::Cost;
use slidegate_core::key::PartName;
use slidegate_core::limit::{LIMITS_MAX, Limit, ParseLimitError, parse_limits};
use slidegate_core::time::Millis;

mod builder;
mod exempt;
mod key;
mod limits;
mod overrides;
mod template;

pub use builder::{PolicyBuilder, PolicyError};
pub use exempt::Exempt;
pub use limits::NamedLimit;
pub use overrides::{OVERRIDES_MAX, Pattern, WILDCARD_OVERRIDES_MAX};
pub use template::{CostSource, TEMPLATE_LEN_MAX, Template, TemplateError};

pub(crate) use key::Value;
use overrides::Overrides;

/// The longest name of a policy or limit, in bytes.
pub const NAME_LEN_MAX: usize = 64;

/// A lease takes at most this part of the window: so at least 98 % of the limit can be used.
pub const LEASE_PARTS: u64 = 50;

/// The most shards of a policy.
pub const SHARDS_MAX: u32 = 64;

/// The most key templates of one policy.
pub const KEY_PARTS_MAX: usize = 8;

/// A named set of limits that share a key. Immutable; built by [`Policy::builder`].
#[derive(Clone, Debug)]
pub struct Policy {
    name: Arc<str>,
    id: u64,
    /// The base set, then one for each override.
    sets: Vec<Vec<NamedLimit>>,
    key: Vec<Template>,
    /// The templates' names, as keys have them.
    part_names: Vec<PartName>,
    missing: Missing,
    cost: CostSource,
    exempt: Exempt,
    overrides: Overrides,
    terms: Terms,
    on_store_failure: OnStoreFailure,
    failover: Failover,
    lease: Lease,
    shards: u32,
}

/// What a check is answered when a shared store does not decide it in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// It is decided from this instance's share of the limits ([`Mode::Local`](crate::Mode::Local)). As long as
    /// nobody knows how many instances there are, it is denied: see
    /// [`RedisConfig::instances`](crate::store::redis::RedisConfig::instances).
    #[default]
    Local,
    /// It is allowed ([`Mode::AllowAll`](crate::Mode::AllowAll)).
    Allow,
    /// It is denied ([`Mode::DenyAll`](crate::Mode::DenyAll)).
    Deny,
}

/// What a shared store that loses its last writes in a failover may do to a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failover {
    /// Every instance remembers what it was granted, so that lost and late calls are recognised
    /// (`sliding_window`; other algorithms are always `Fast`).
    #[default]
    Exact,
    /// Nothing is remembered: what was lost is admitted again.
    Fast,
}

/// Whether an instance takes permits of a shared store ahead, to spend them itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lease {
    /// It asks for each check.
    #[default]
    None,
    /// For so long, at most a fiftieth of the window.
    For(Millis),
    /// For 20 ms, or four round trips to the store where that is longer; at most a fiftieth of the window.
    Auto,
}

impl Lease {
    /// How long permits of a limit may be leased, at the most. Every caller counts the window as so much longer.
    pub const fn longest(limit: &Limit) -> Millis {
        Millis(limit.window().get() / LEASE_PARTS)
    }
}

/// What happens when a request lacks a part of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// Such requests share a counter of their own.
    #[default]
    Count,
    /// The policy does not apply to such a request.
    Skip,
    /// Such a request is refused.
    Deny,
    /// The client's address stands in for the part.
    ClientIp,
}

impl Policy {
    /// Starts a policy of this name.
    pub fn builder(name: impl Into<Arc<str>>) -> PolicyBuilder {
        PolicyBuilder::new(name.into())
    }

    /// The name.
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The first 64 bits of the SHA-256 of the name: tells policies apart cheaply.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The limits without overrides.
    pub fn limits(&self) -> &[NamedLimit] {
        &self.sets[0]
    }

    /// The limits of the base set (0) or of an override.
    pub(crate) fn set(&self, set: usize) -> &[NamedLimit] {
        &self.sets[set]
    }

    /// Every limit, those of overrides included.
    pub fn all_limits(&self) -> impl Iterator<Item = &NamedLimit> {
        self.sets.iter().flatten()
    }

    /// How many overrides there are.
    pub fn override_count(&self) -> usize {
        self.sets.len() - 1
    }

    /// The key templates, in order.
    pub fn key(&self) -> &[Template] {
        &self.key
    }

    /// What happens when a request lacks a part of the key.
    pub const fn missing(&self) -> Missing {
        self.missing
    }

    /// What a check costs.
    pub const fn cost(&self) -> &CostSource {
        &self.cost
    }

    /// Who the policy does not apply to.
    pub const fn exempt(&self) -> &Exempt {
        &self.exempt
    }

    /// Whether it decides and counts without denying.
    pub const fn is_shadow(&self) -> bool {
        self.terms.shadow
    }

    /// Whether denied requests are counted as well.
    pub const fn counts_denied(&self) -> bool {
        self.terms.count_denied
    }

    /// What a check is answered when a shared store does not decide it.
    pub const fn on_store_failure(&self) -> OnStoreFailure {
        self.on_store_failure
    }

    /// What a failover of a shared store may do to its limits.
    pub const fn failover(&self) -> Failover {
        self.failover
    }

    /// Whether permits are taken ahead.
    pub const fn lease(&self) -> Lease {
        self.lease
    }

    /// How many parts the limits of each key are split into in a shared store; 1: not at all.
    pub const fn shards(&self) -> u32 {
        self.shards
    }

    /// The same, as far as it is done: a policy that only watches is not split, since what it would have denied is not
    /// told by one of its shards.
    #[cfg(feature = "redis")]
    pub(crate) const fn split(&self) -> u32 {
        if self.terms.shadow { 1 } else { self.shards }
    }

    pub(crate) const fn terms(&self) -> Terms {
        self.terms
    }

    /// Whether any part of the key is hashed with the secret key.
    pub fn uses_secrets(&self) -> bool {
        self.key.iter().any(Template::is_secret)
    }
}

#[cfg(test)]
mod tests;
