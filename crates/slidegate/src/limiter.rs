//! The limiter: every door calls [`Limiter::check`] or one of its siblings, and all of them end in
//! `decide`, which asks the store one question.

use std::sync::Arc;

use hashbrown::HashMap;
use slidegate_core::decision::Cost;
use slidegate_core::key::Key;
use smallvec::SmallVec;

use crate::decision::{Decision, Mode, Outcomes, Part};
use crate::error::{CheckError, StoreError};
use crate::facts::RequestFacts;
use crate::metrics::{PolicyMetrics, Verdict};
use crate::policy::{Policy, Value};
use crate::reservation::Reservation;
use crate::secret::SecretKey;
use crate::store::memory::MemoryStore;
use crate::store::{self, Answer, Counter, ReservationId, Settled, Store};

mod builder;

pub use builder::{BuildError, DefaultStore, LimiterBuilder, POLICIES_MAX};

/// The most policies in one check.
pub const POLICIES_PER_CHECK_MAX: usize = 16;

/// Named policies over one store. Cheap to clone: clones share counters and metrics.
#[derive(Debug)]
pub struct Limiter<S: Store = MemoryStore> {
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    policies: HashMap<Arc<str>, PolicyMetrics>,
    /// In the order in which they were given.
    names: Vec<Arc<str>>,
    store: S,
    secret: SecretKey,
}

/// One policy of a check: whose key, at what cost.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    policy: &'a str,
    key: &'a [&'a str],
    cost: Cost,
}

impl<'a> Ask<'a> {
    /// Asks a policy about a key, given as one value for each key template in order, at a cost of 1.
    pub const fn new(policy: &'a str, key: &'a [&'a str]) -> Self {
        Self { policy, key, cost: 1 }
    }

    /// The same at another cost; 0 peeks: nothing is charged.
    pub const fn cost(self, cost: Cost) -> Self {
        Self { cost, ..self }
    }
}

/// Without the key, which may hold secrets.
impl std::fmt::Debug for Ask<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { policy, cost, .. } = self;
        f.debug_struct("Ask").field("policy", policy).field("cost", cost).finish_non_exhaustive()
    }
}

/// An [`Ask`] that found its policy, key and limits.
struct Question<'a> {
    entry: &'a PolicyMetrics,
    key: Key,
    set: usize,
    cost: Cost,
}

type Questions<'a> = SmallVec<[Question<'a>; 1]>;

impl<S: Store> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl Limiter {
    /// Starts a limiter: over a memory store, unless another is given.
    pub fn builder() -> LimiterBuilder<DefaultStore> {
        LimiterBuilder::default()
    }
}

impl<S: Store> Limiter<S> {
    /// Checks one policy for one key at a cost of 1, and charges it if it is allowed.
    ///
    /// # Errors
    /// [`CheckError`] for an unknown policy, a key that does not fit, or a store that does not answer.
    pub async fn check(&self, policy: &str, key: &[&str]) -> Result<Decision, CheckError> {
        let question = self.question(&Ask::new(policy, key))?;
        self.decide(&[question], None).await
    }

    /// Checks several policies: all are charged, or none.
    ///
    /// # Errors
    /// As [`check`](Self::check), and [`CheckError::Never`] for a cost that no wait would make fit.
    pub async fn check_all(&self, asks: &[Ask<'_>]) -> Result<Decision, CheckError> {
        self.decide(&self.questions(asks)?, None).await
    }

    /// Checks the policies that apply to a request: keys and costs come from its parts; exempt requests,
    /// CORS preflights and policies that are skipped for lack of a key part are left out.
    ///
    /// # Errors
    /// As [`check_all`](Self::check_all), and [`CheckError::MissingPart`].
    pub async fn check_request(
        &self,
        policies: &[Arc<str>],
        facts: &RequestFacts<'_>,
    ) -> Result<Decision, CheckError> {
        let mut questions = Questions::new();
        if !facts.is_preflight() {
            for name in policies {
                let entry = self.entry(name)?;
                questions.extend(self.question_of_request(entry, facts)?);
            }
        }
        self.decide(&questions, None).await
    }

    /// Charges now what will be settled later: see [`Reservation`]. `None` when the decision is a denial.
    ///
    /// What is allowed while the store is away ([`Mode::AllowAll`], [`Mode::Local`]) can't be settled: that
    /// answers [`Settled::Unknown`], unless the store got the question after all.
    ///
    /// # Errors
    /// As [`check_all`](Self::check_all).
    pub async fn reserve(&self, asks: &[Ask<'_>]) -> Result<(Decision, Option<Reservation<S>>), CheckError> {
        let questions = self.questions(asks)?;
        let id = ReservationId::random();
        // Made before the question is asked: should this future be dropped while the store decides, the
        // guard gives back what may have been charged.
        let reservation = Reservation::new(self.clone(), id);
        let decision = self.decide(&questions, Some(id)).await?;
        if decision.is_allowed() {
            return Ok((decision, Some(reservation)));
        }
        reservation.into_id();
        Ok((decision, None))
    }

    /// Settles a reservation at its actual cost, once: the rest is given back, an excess is charged even
    /// past the limit.
    ///
    /// # Errors
    /// [`StoreError`] when the store does not answer.
    pub async fn commit(&self, id: ReservationId, actual: Cost) -> Result<Settled, StoreError> {
        self.shared.store.settle(id, actual).await
    }

    /// Gives a reservation back whole.
    ///
    /// # Errors
    /// [`StoreError`] when the store does not answer.
    pub async fn refund(&self, id: ReservationId) -> Result<Settled, StoreError> {
        self.commit(id, 0).await
    }

    /// Reads without charging: what a check of cost 0 would say.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn peek(&self, policy: &str, key: &[&str]) -> Result<Decision, CheckError> {
        self.check_all(&[Ask::new(policy, key).cost(0)]).await
    }

    /// Empties every counter of one policy and key.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn reset(&self, policy: &str, key: &[&str]) -> Result<(), CheckError> {
        for question in self.questions(&[Ask::new(policy, key)])? {
            let policy = question.entry.policy();
            for limit in policy.set(question.set) {
                let counter = Counter { policy, key: &question.key, limit };
                self.shared.store.reset(&counter).await?;
            }
        }
        Ok(())
    }

    /// The policies, in the order in which they were given.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.metrics().map(PolicyMetrics::policy)
    }

    /// A policy by its name.
    pub fn policy(&self, name: &str) -> Option<&Arc<Policy>> {
        self.shared.policies.get(name).map(PolicyMetrics::policy)
    }

    /// The counters of decisions, one for each policy.
    pub fn metrics(&self) -> impl Iterator<Item = &PolicyMetrics> {
        self.shared.names.iter().filter_map(|name| self.shared.policies.get(name))
    }

    /// The store, for its own figures.
    pub fn store(&self) -> &S {
        &self.shared.store
    }

    fn entry(&self, name: &str) -> Result<&PolicyMetrics, CheckError> {
        self.shared.policies.get(name).ok_or_else(|| CheckError::UnknownPolicy {
            name: name.into(),
            nearest: crate::spelling::nearest(name, self.shared.names.iter()).cloned(),
        })
    }

    fn questions(&self, asks: &[Ask<'_>]) -> Result<Questions<'_>, CheckError> {
        refuse_too_many(asks.len())?;
        let mut questions = Questions::new();
        for ask in asks {
            questions.push(self.question(ask)?);
        }
        Ok(questions)
    }

    fn question(&self, ask: &Ask<'_>) -> Result<Question<'_>, CheckError> {
        let entry = self.entry(ask.policy)?;
        entry.policy().check_given(ask.key)?;
        let values = ask.key.iter().map(|value| Value::Given(value.as_bytes()));
        let (key, set) = entry.policy().key_of(values, &self.shared.secret);
        Ok(Question { entry, key, set, cost: ask.cost })
    }

    fn question_of_request<'a>(
        &self,
        entry: &'a PolicyMetrics,
        facts: &RequestFacts<'_>,
    ) -> Result<Option<Question<'a>>, CheckError> {
        let policy = entry.policy();
        if policy.exempt().matches(facts) {
            return Ok(None);
        }
        let Some(values) = policy.values_of(facts)? else { return Ok(None) };
        let (key, set) = policy.key_of(values.iter().map(Value::as_deref), &self.shared.secret);
        Ok(Some(Question { entry, key, set, cost: policy.cost().resolve(facts) }))
    }

    /// The one place where a check becomes a question to the store, and its answer a decision.
    async fn decide(
        &self,
        questions: &[Question<'_>],
        reserve: Option<ReservationId>,
    ) -> Result<Decision, CheckError> {
        refuse_impossible(questions)?;
        if questions.is_empty() {
            return Ok(Decision::new(true, Mode::Normal, SmallVec::new()));
        }
        let mut charges: SmallVec<[store::Charge<'_>; 2]> = SmallVec::new();
        for (group, question) in (0..).zip(questions) {
            let policy = &**question.entry.policy();
            for limit in policy.set(question.set) {
                let counter = Counter { policy, key: &question.key, limit };
                charges.push(store::Charge { counter, cost: question.cost, group, terms: policy.terms() });
            }
        }
        let answer = self.shared.store.check(&store::Check { times: 1, charges: &charges, reserve }).await?;
        Ok(conclude(questions, answer))
    }
}

/// What can never be decided by waiting is the caller's fault, and typed as such.
fn refuse_impossible(questions: &[Question<'_>]) -> Result<(), CheckError> {
    refuse_too_many(questions.len())?;
    for (index, question) in questions.iter().enumerate() {
        let policy = question.entry.policy();
        if questions[..index].iter().any(|earlier| Arc::ptr_eq(earlier.entry.policy(), policy)) {
            return Err(CheckError::DuplicatePolicy { policy: policy.name().clone() });
        }
        if policy.is_shadow() {
            continue;
        }
        // A limit of 0 is an ordinary denial: whoever set it meant to deny everybody.
        let too_small = policy
            .set(question.set)
            .iter()
            .find(|limit| limit.limit().permits() > 0 && question.cost > limit.most_at_once());
        if let Some(limit) = too_small {
            return Err(CheckError::Never {
                policy: policy.name().clone(),
                limit: limit.public_name().clone(),
                cost: question.cost,
                capacity: limit.most_at_once(),
            });
        }
    }
    Ok(())
}

fn refuse_too_many(given: usize) -> Result<(), CheckError> {
    if given > POLICIES_PER_CHECK_MAX {
        return Err(CheckError::TooManyPolicies { given, most: POLICIES_PER_CHECK_MAX });
    }
    Ok(())
}

fn conclude(questions: &[Question<'_>], answer: Answer) -> Decision {
    let allowed = answer.granted > 0;
    let mut parts = SmallVec::new();
    if let [question] = questions {
        parts.push(question.part(allowed, answer.mode, answer.outcomes));
    } else {
        let mut outcomes = answer.outcomes.into_iter();
        for question in questions {
            let limits = question.entry.policy().set(question.set).len();
            parts.push(question.part(allowed, answer.mode, outcomes.by_ref().take(limits).collect()));
        }
    }
    Decision::new(allowed, answer.mode, parts)
}

impl Question<'_> {
    /// This policy's part of the decision, which it counts, unless nothing was asked for.
    fn part(&self, allowed: bool, mode: Mode, outcomes: Outcomes) -> Part {
        if self.cost == 0 {
            return Part { policy: self.entry.lend(), set: self.set, outcomes };
        }
        let refused = outcomes.iter().any(|outcome| outcome.violated);
        let verdict = match (refused, self.entry.policy().is_shadow()) {
            (true, true) => Verdict::ShadowDenied,
            (true, false) => Verdict::Denied,
            (false, _) if allowed => Verdict::Allowed,
            (false, _) => Verdict::NotCharged,
        };
        Part { policy: self.entry.add(verdict, mode), set: self.set, outcomes }
    }
}

#[cfg(test)]
mod tests;
