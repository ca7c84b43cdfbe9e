//! Builds limiters, and refuses configurations whose names would meet.

use super::{Arc, HashMap, Limiter, MemoryStore, Policy, PolicyMetrics, SecretKey, Shared, Store};

/// The most policies of one limiter.
pub const POLICIES_MAX: usize = 10_000;

/// Why a limiter can't be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Two policies have the same name.
    #[error("two policies are called {name}: give each its own name")]
    DuplicatePolicy {
        /// The name.
        name: Arc<str>,
    },
    /// Two limits would have the same name in RateLimit fields.
    #[error("limits of policies {first} and {second} are both called {name} in answers: rename one of them")]
    DuplicateLimit {
        /// The name.
        name: Arc<str>,
        /// The policy that had it first.
        first: Arc<str>,
        /// The policy that wants it too.
        second: Arc<str>,
    },
    /// More than [`POLICIES_MAX`] policies.
    #[error("{count} policies: at most {POLICIES_MAX}")]
    TooManyPolicies {
        /// How many were given.
        count: usize,
    },
}

/// Builds a [`Limiter`].
#[derive(Debug)]
pub struct LimiterBuilder<S> {
    policies: Vec<Policy>,
    store: S,
    secret: Option<SecretKey>,
}

/// No store was chosen: the limiter gets a memory store of the default size.
#[derive(Debug)]
pub struct DefaultStore(());

impl Default for LimiterBuilder<DefaultStore> {
    fn default() -> Self {
        Self { policies: Vec::new(), store: DefaultStore(()), secret: None }
    }
}

impl LimiterBuilder<DefaultStore> {
    /// The limiter, over a memory store of the default size.
    ///
    /// # Errors
    /// [`BuildError`] when names meet.
    pub fn build(self) -> Result<Limiter, BuildError> {
        self.store(MemoryStore::default()).build()
    }
}

impl<S> LimiterBuilder<S> {
    /// Adds a policy.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Adds policies.
    pub fn policies(mut self, policies: impl IntoIterator<Item = Policy>) -> Self {
        self.policies.extend(policies);
        self
    }

    /// Hash secret key parts with this key. Needed when instances share a store; else it is random.
    pub fn secret_key(mut self, secret: SecretKey) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Keep counters in this store.
    pub fn store<T>(self, store: T) -> LimiterBuilder<T> {
        LimiterBuilder { policies: self.policies, store, secret: self.secret }
    }
}

impl<S: Store> LimiterBuilder<S> {
    /// The limiter.
    ///
    /// # Errors
    /// [`BuildError`] when names meet.
    pub fn build(self) -> Result<Limiter<S>, BuildError> {
        if self.policies.len() > POLICIES_MAX {
            return Err(BuildError::TooManyPolicies { count: self.policies.len() });
        }
        refuse_shared_names(&self.policies)?;
        let names = self.policies.iter().map(|policy| policy.name().clone()).collect();
        let entries =
            self.policies.into_iter().map(|policy| (policy.name().clone(), PolicyMetrics::new(policy)));
        let shared = Shared {
            policies: entries.collect(),
            names,
            store: self.store,
            secret: self.secret.unwrap_or_else(SecretKey::random),
        };
        Ok(Limiter { shared: Arc::new(shared) })
    }
}

/// RateLimit fields name limits only, so two policies of one answer must not share a name. The limits of an
/// override stand in for those of their own policy and may.
fn refuse_shared_names(policies: &[Policy]) -> Result<(), BuildError> {
    let mut owners: HashMap<&str, &Arc<str>> = HashMap::new();
    let mut seen = HashMap::new();
    for policy in policies {
        if seen.insert(policy.name(), ()).is_some() {
            return Err(BuildError::DuplicatePolicy { name: policy.name().clone() });
        }
        for limit in policy.all_limits() {
            let owner = *owners.entry(limit.public_name()).or_insert(policy.name());
            if owner != policy.name() {
                return Err(BuildError::DuplicateLimit {
                    name: limit.public_name().clone(),
                    first: owner.clone(),
                    second: policy.name().clone(),
                });
            }
        }
    }
    Ok(())
}
