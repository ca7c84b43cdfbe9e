//! Policies: which limits, for which key, at what cost, and for whom not.

use std::sync::Arc;

use slidegate_core::check::Terms;
use slidegate_core::decision::Cost;
use slidegate_core::key::PartName;
use slidegate_core::limit::{LIMITS_MAX, Limit, ParseLimitError, parse_limits};

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
