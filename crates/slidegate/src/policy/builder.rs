//! Builds policies, and refuses what can't be one.

use std::sync::Arc;

use slidegate_core::key::PartName;
use slidegate_core::limit::Algorithm;
use slidegate_core::time::Millis;

use super::limits::name_id;
use super::{
    Cost, CostSource, Exempt, Failover, KEY_PARTS_MAX, LIMITS_MAX, Lease, Limit, Missing, NAME_LEN_MAX,
    NamedLimit, OVERRIDES_MAX, OnStoreFailure, Overrides, ParseLimitError, Pattern, Policy, SHARDS_MAX,
    Template, TemplateError, Terms, WILDCARD_OVERRIDES_MAX, parse_limits,
};

/// Why a policy can't be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A name that can't stand in a RateLimit field, or is too long.
    #[error("the name {name:?} must have 1 to {NAME_LEN_MAX} printable ASCII characters")]
    Name {
        /// The name.
        name: String,
    },
    /// A policy without limits, or with too many.
    #[error("policy {policy} has {count} limits: give it 1 to {LIMITS_MAX}")]
    LimitCount {
        /// The policy.
        policy: Arc<str>,
        /// How many it has.
        count: usize,
    },
    /// Two limits of the policy have the same name.
    #[error("policy {policy} has two limits called {name:?}: give each its own name")]
    DuplicateLimit {
        /// The policy.
        policy: Arc<str>,
        /// The name.
        name: Arc<str>,
    },
    /// The text of a limit can't be read.
    #[error("policy {policy}, limits {text:?}: {error}")]
    Limit {
        /// The policy.
        policy: Arc<str>,
        /// The text.
        text: String,
        /// What is wrong with it.
        error: ParseLimitError,
    },
    /// A key template can't be read.
    #[error("policy {policy}, key {text:?}: {error}")]
    Template {
        /// The policy.
        policy: Arc<str>,
        /// The text.
        text: String,
        /// What is wrong with it.
        error: TemplateError,
    },
    /// Too many key templates.
    #[error("policy {policy} has {count} key templates: at most {KEY_PARTS_MAX}")]
    KeyCount {
        /// The policy.
        policy: Arc<str>,
        /// How many it has.
        count: usize,
    },
    /// Two key templates ask for the same part.
    #[error("policy {policy} names {name:?} twice in its key")]
    DuplicateKey {
        /// The policy.
        policy: Arc<str>,
        /// The template's name.
        name: Arc<str>,
    },
    /// The bounds of a cost that is taken from the request contradict each other.
    #[error("policy {policy}: a cost needs min <= default <= max, and has {min}, {default}, {max}")]
    Cost {
        /// The policy.
        policy: Arc<str>,
        /// The least.
        min: Cost,
        /// Without a number.
        default: Cost,
        /// The most.
        max: Cost,
    },
    /// An override that doesn't name every part of the key.
    #[error(
        "an override of policy {policy} names {given} parts, and its key has {expected}: use * for any value"
    )]
    OverrideParts {
        /// The policy.
        policy: Arc<str>,
        /// How many parts the key has.
        expected: usize,
        /// How many the override names.
        given: usize,
    },
    /// An override by the value of a secret part, which is not kept.
    #[error("an override of policy {policy} names a value of the secret part {part}: use * there")]
    OverrideSecret {
        /// The policy.
        policy: Arc<str>,
        /// The part.
        part: Arc<str>,
    },
    /// A lease that is longer than a limit of the policy allows.
    #[error("policy {policy}: a lease of {lease} is too long for a window of {window}: at most {longest}")]
    LeaseLength {
        /// The policy.
        policy: Arc<str>,
        /// What was asked for.
        lease: Millis,
        /// The window.
        window: Millis,
        /// The longest that it allows.
        longest: Millis,
    },
    /// A lease of a limit whose algorithm knows none, or whose window is too short for one.
    #[error(
        "policy {policy}: {algorithm} with a window of {window} can't be leased: use sliding_window, from 50ms"
    )]
    LeaseLimit {
        /// The policy.
        policy: Arc<str>,
        /// Its algorithm.
        algorithm: &'static str,
        /// Its window.
        window: Millis,
    },
    /// Shards that are none, too many, or more than a limit has permits.
    #[error(
        "policy {policy}: {shards} shards: from 1 to {SHARDS_MAX}, and at most as many as a limit has permits"
    )]
    Shards {
        /// The policy.
        policy: Arc<str>,
        /// What was asked for.
        shards: u32,
    },
    /// Refused requests can't be counted where permits are leased, or where a limit is split.
    #[error("policy {policy}: count_denied goes with neither lease nor shards: leave one of them out")]
    CountDenied {
        /// The policy.
        policy: Arc<str>,
    },
    /// Too many overrides, or too many with a `*`.
    #[error(
        "policy {policy} has too many overrides: at most {OVERRIDES_MAX}, {WILDCARD_OVERRIDES_MAX} of them with *"
    )]
    OverrideCount {
        /// The policy.
        policy: Arc<str>,
    },
}

/// Limits as they are given, with their names or without.
type GivenLimits = Vec<(Option<Arc<str>>, Limit)>;

/// Builds a [`Policy`]. The first fault is reported by [`build`](Self::build).
#[derive(Clone, Debug)]
pub struct PolicyBuilder {
    name: Arc<str>,
    limits: GivenLimits,
    key: Vec<Template>,
    missing: Missing,
    cost: CostSource,
    exempt: Exempt,
    terms: Terms,
    on_store_failure: OnStoreFailure,
    failover: Failover,
    lease: Lease,
    shards: u32,
    overrides: Vec<(Vec<Pattern>, GivenLimits)>,
    fault: Option<PolicyError>,
}

impl PolicyBuilder {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            limits: Vec::new(),
            key: Vec::new(),
            missing: Missing::default(),
            cost: CostSource::Fixed(1),
            exempt: Exempt::default(),
            terms: Terms::default(),
            on_store_failure: OnStoreFailure::default(),
            failover: Failover::default(),
            lease: Lease::default(),
            shards: 1,
            overrides: Vec::new(),
            fault: None,
        }
    }

    /// Adds limits as text: `"10/s; 100/m"`.
    pub fn limits(mut self, text: &str) -> Self {
        match parse_limits(text) {
            Ok(limits) => self.limits.extend(limits.into_iter().map(|limit| (None, limit))),
            Err(error) => self.fail(|policy| PolicyError::Limit { policy, text: text.into(), error }),
        }
        self
    }

    /// Adds one limit, with its own name or none.
    pub fn limit(mut self, name: Option<&str>, limit: Limit) -> Self {
        self.limits.push((name.map(Into::into), limit));
        self
    }

    /// Adds a part of the key as text: `"{client_ip}"`. Without any the policy has one counter.
    pub fn key(mut self, template: &str) -> Self {
        match template.parse() {
            Ok(template) => self.key.push(template),
            Err(error) => self.fail(|policy| PolicyError::Template { policy, text: template.into(), error }),
        }
        self
    }

    /// Adds a part of the key.
    pub fn key_template(mut self, template: Template) -> Self {
        self.key.push(template);
        self
    }

    /// What happens when a request lacks a part of the key.
    pub const fn missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }

    /// What a check of a request costs. A check by hand says so itself.
    pub fn cost(mut self, cost: CostSource) -> Self {
        self.cost = cost;
        self
    }

    /// Who the policy does not apply to.
    pub fn exempt(mut self, exempt: Exempt) -> Self {
        self.exempt = exempt;
        self
    }

    /// Decide and count, never deny.
    pub const fn shadow(mut self, shadow: bool) -> Self {
        self.terms.shadow = shadow;
        self
    }

    /// Count denied requests as well, as a penalty: who keeps trying stays out.
    pub const fn count_denied(mut self, count_denied: bool) -> Self {
        self.terms.count_denied = count_denied;
        self
    }

    /// What a check is answered when a shared store does not decide it in time. Decided from this instance's share
    /// unless this says otherwise; the memory store always decides.
    pub const fn on_store_failure(mut self, answer: OnStoreFailure) -> Self {
        self.on_store_failure = answer;
        self
    }

    /// What a failover of a shared store may do to the limits: nothing, unless this says otherwise.
    pub const fn failover(mut self, failover: Failover) -> Self {
        self.failover = failover;
        self
    }

    /// Takes permits of a shared store ahead, and spends them on this instance: a busy key then costs a call in the time
    /// of a lease. Exact, at the price of W / (W + lease) of the limit. Not unless this says so.
    pub const fn lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// Splits the limits of each key into so many parts in a shared store, which may lie on different nodes of a
    /// cluster. A check must fit into one of them. One, unless this says otherwise.
    pub const fn shards(mut self, shards: u32) -> Self {
        self.shards = shards;
        self
    }

    /// Other limits, named or not, for keys that match these patterns, one for each part of the key.
    pub fn override_limits(mut self, key: Vec<Pattern>, limits: Vec<(Option<Arc<str>>, Limit)>) -> Self {
        self.overrides.push((key, limits));
        self
    }

    /// The policy.
    ///
    /// # Errors
    /// The first [`PolicyError`] in what was given.
    pub fn build(self) -> Result<Policy, PolicyError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        check_name(&self.name)?;
        self.check_key()?;
        self.check_cost()?;
        let names: Vec<&str> = self.key.iter().map(|template| &**template.name()).collect();
        let mut sets = vec![self.name_limits(&self.limits)?];
        let mut overrides = Overrides::default();
        for (patterns, limits) in &self.overrides {
            self.check_patterns(patterns)?;
            overrides.add(&names, patterns.clone(), sets.len());
            sets.push(self.name_limits(limits)?);
        }
        self.check_lease(&sets)?;
        self.check_shards(&sets)?;
        if self.overrides.len() > OVERRIDES_MAX || overrides.wildcards() > WILDCARD_OVERRIDES_MAX {
            return Err(PolicyError::OverrideCount { policy: self.name });
        }
        Ok(Policy {
            id: name_id(&self.name),
            name: self.name,
            sets,
            part_names: names.iter().map(|name| PartName::new(name)).collect(),
            key: self.key,
            missing: self.missing,
            cost: self.cost,
            exempt: self.exempt,
            overrides,
            terms: self.terms,
            on_store_failure: self.on_store_failure,
            failover: self.failover,
            lease: self.lease,
            shards: self.shards,
        })
    }

    fn fail(&mut self, error: impl FnOnce(Arc<str>) -> PolicyError) {
        let policy = self.name.clone();
        self.fault.get_or_insert_with(|| error(policy));
    }

    fn check_key(&self) -> Result<(), PolicyError> {
        if self.key.len() > KEY_PARTS_MAX {
            return Err(PolicyError::KeyCount { policy: self.name.clone(), count: self.key.len() });
        }
        for (index, template) in self.key.iter().enumerate() {
            if self.key[..index].iter().any(|earlier| earlier.name() == template.name()) {
                return Err(PolicyError::DuplicateKey {
                    policy: self.name.clone(),
                    name: template.name().clone(),
                });
            }
        }
        Ok(())
    }

    fn check_cost(&self) -> Result<(), PolicyError> {
        match self.cost {
            CostSource::From { min, max, default, .. } if min > default || default > max => {
                Err(PolicyError::Cost { policy: self.name.clone(), min, default, max })
            }
            CostSource::From { .. } | CostSource::Fixed(_) => Ok(()),
        }
    }

    fn check_lease(&self, sets: &[Vec<NamedLimit>]) -> Result<(), PolicyError> {
        if self.lease == Lease::None {
            return Ok(());
        }
        let policy = self.name.clone();
        if self.terms.count_denied {
            return Err(PolicyError::CountDenied { policy });
        }
        for limit in sets.iter().flatten().map(NamedLimit::limit) {
            let (window, longest) = (limit.window(), Lease::longest(limit));
            let algorithm = limit.algorithm();
            if !matches!(algorithm, Algorithm::SlidingWindow { .. }) || longest == Millis::ZERO {
                return Err(PolicyError::LeaseLimit { policy, algorithm: algorithm.name(), window });
            }
            if let Lease::For(lease) = self.lease
                && !(Millis(1)..=longest).contains(&lease)
            {
                return Err(PolicyError::LeaseLength { policy, lease, window, longest });
            }
        }
        Ok(())
    }

    fn check_shards(&self, sets: &[Vec<NamedLimit>]) -> Result<(), PolicyError> {
        let policy = self.name.clone();
        let too_small = |limit: &NamedLimit| (1..self.shards).contains(&limit.limit().permits());
        if !(1..=SHARDS_MAX).contains(&self.shards) || sets.iter().flatten().any(too_small) {
            return Err(PolicyError::Shards { policy, shards: self.shards });
        }
        if self.shards > 1 && self.terms.count_denied {
            return Err(PolicyError::CountDenied { policy });
        }
        Ok(())
    }

    fn check_patterns(&self, patterns: &[Pattern]) -> Result<(), PolicyError> {
        let (expected, given) = (self.key.len(), patterns.len());
        if expected != given {
            return Err(PolicyError::OverrideParts { policy: self.name.clone(), expected, given });
        }
        let named_secret = self
            .key
            .iter()
            .zip(patterns)
            .find(|(part, pattern)| part.is_secret() && **pattern != Pattern::Any);
        match named_secret {
            Some((part, _)) => {
                Err(PolicyError::OverrideSecret { policy: self.name.clone(), part: part.name().clone() })
            }
            None => Ok(()),
        }
    }

    fn name_limits(&self, limits: &[(Option<Arc<str>>, Limit)]) -> Result<Vec<NamedLimit>, PolicyError> {
        let count = limits.len();
        if count == 0 || count > LIMITS_MAX {
            return Err(PolicyError::LimitCount { policy: self.name.clone(), count });
        }
        let mut named: Vec<NamedLimit> = Vec::with_capacity(count);
        for (index, (name, limit)) in limits.iter().enumerate() {
            if let Some(name) = name {
                check_name(name)?;
            }
            let mut limit = NamedLimit::new(&self.name, name.as_deref(), index + 1, count, *limit);
            if (2..=SHARDS_MAX).contains(&self.shards) && !self.terms.shadow {
                limit.split(self.shards);
            }
            if let Some(name) = shared_name(&named, &limit) {
                return Err(PolicyError::DuplicateLimit { policy: self.name.clone(), name });
            }
            named.push(limit);
        }
        Ok(named)
    }
}

/// Limits of a policy must differ in the store, where they would share a counter, and in answers.
fn shared_name(named: &[NamedLimit], limit: &NamedLimit) -> Option<Arc<str>> {
    if named.iter().any(|earlier| earlier.store_name() == limit.store_name()) {
        return Some(limit.store_name().into());
    }
    let in_answers = named.iter().any(|earlier| earlier.public_name() == limit.public_name());
    in_answers.then(|| limit.public_name().clone())
}

/// Names stand in RateLimit fields as structured-field strings, which hold printable ASCII only.
fn check_name(name: &str) -> Result<(), PolicyError> {
    let printable = name.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if name.is_empty() || name.len() > NAME_LEN_MAX || !printable {
        return Err(PolicyError::Name { name: name.into() });
    }
    Ok(())
}
