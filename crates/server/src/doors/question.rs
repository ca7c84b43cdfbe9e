//! Questions to the limiter as JSON, the same on every endpoint that asks about a key.
//!
//! ```json
//! {"policy": "per-user", "key": {"client_ip": "203.0.113.7"}, "cost": 1}
//! {"policies": [{"policy": "per-user", "key": ["203.0.113.7"], "cost": 5}, {"policy": "global"}]}
//! {"policies": ["per-user", "per-tenant"], "key": {"client_ip": "203.0.113.7", "header:x-tenant": "42"}}
//! ```
//! * `key` has a value for each key template of the policy: a list in their order, or a map from their names.
//!   A policy without key templates takes none. An absent `cost` is 1; 0 peeks.
//! * Several policies are charged together or not at all. Those that are only named share the `key` beside
//!   the list: of a map each takes the names that it has, and each name must be of use to one of them; a
//!   list is the key of each.
//! * `policy` takes a list as well, and `policies` means the same.
//!
//! The caller's time is nowhere in it, and a field that is not known is refused, never ignored.

use std::sync::Arc;

use slidegate::core::decision::Cost;
use slidegate::spelling::nearest;
use slidegate::{Ask, CheckError, Limiter, Policy, Store};

use super::problem::Problem;

mod wire;

pub(crate) use wire::{CostArg, Question, Text};
use wire::{KeyArg, OneOrMany, PolicyArg, WholePart};

/// How many policies were asked, which decides how the answer names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One, by its name: the answer is about it.
    One,
    /// A list: each limit of the answer says whose it is.
    Many,
}

/// Whether a key has values for other policies as well.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    None,
    Share,
}

/// A question whose keys fit the policies.
#[derive(Debug)]
pub(crate) struct Resolved<'a> {
    pub(crate) form: Form,
    parts: Vec<ResolvedPart<'a>>,
}

#[derive(Debug)]
struct ResolvedPart<'a> {
    policy: &'a str,
    values: Vec<&'a str>,
    cost: Cost,
}

impl Resolved<'_> {
    /// The question as the limiter takes it.
    pub(crate) fn asks(&self) -> Vec<Ask<'_>> {
        self.parts.iter().map(|part| Ask::new(part.policy, &part.values).cost(part.cost)).collect()
    }

    /// Each policy with its key.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&str, &[&str])> {
        self.parts.iter().map(|part| (part.policy, &*part.values))
    }

    /// The same question without charge, whatever its costs.
    pub(crate) fn at_no_cost(mut self) -> Self {
        for part in &mut self.parts {
            part.cost = 0;
        }
        self
    }

    /// Whether any part of it would charge nothing.
    pub(crate) fn peeks(&self) -> bool {
        self.parts.iter().any(|part| part.cost == 0)
    }
}

impl Question<'_> {
    /// Finds the value for each part of each policy's key.
    ///
    /// # Errors
    /// 404 for an unknown policy, 400 for keys that don't fit and for a question that names no policy.
    pub(crate) fn resolve<S: Store>(&self, limiter: &Limiter<S>) -> Result<Resolved<'_>, Problem> {
        let (form, many) = match (&self.policy, &self.policies) {
            (Some(OneOrMany::One(name)), None) => {
                return Ok(Resolved {
                    form: Form::One,
                    parts: vec![self.part(limiter, name, Others::None)?],
                });
            }
            (Some(OneOrMany::Many(many)), None) | (None, Some(many)) => (Form::Many, &many.0),
            (None, None) => {
                return Err(Problem::bad_request(
                    "no policy is named: write {\"policy\": NAME}, or {\"policies\": [NAME, …]}",
                ));
            }
            (Some(_), Some(_)) => {
                return Err(Problem::bad_request(
                    "`policy` and `policies` are there both: name all policies in one of them",
                ));
            }
        };
        self.check_shared(limiter, many)?;
        let parts = many.iter().map(|one| match one {
            PolicyArg::Name(name) => self.part(limiter, name, Others::Share),
            PolicyArg::Whole(part) => part.resolve(limiter),
        });
        Ok(Resolved { form, parts: parts.collect::<Result<_, _>>()? })
    }

    /// The part of a policy that is only named: key and cost are those of the whole question.
    fn part<'s, S: Store>(
        &'s self,
        limiter: &Limiter<S>,
        name: &'s str,
        others: Others,
    ) -> Result<ResolvedPart<'s>, Problem> {
        Ok(ResolvedPart {
            policy: name,
            values: values(find(limiter, name)?, self.key.as_ref(), others)?,
            cost: self.cost.unwrap_or_default().0,
        })
    }

    /// What lies beside the list must be of use to somebody: a value that nobody takes is a misspelled name.
    fn check_shared<S: Store>(&self, limiter: &Limiter<S>, many: &[PolicyArg<'_>]) -> Result<(), Problem> {
        if many.is_empty() {
            return Err(Problem::bad_request("the list of policies is empty: name at least one"));
        }
        let named: Vec<&Policy> = many
            .iter()
            .filter_map(|one| match one {
                PolicyArg::Name(name) => Some(find(limiter, name)),
                PolicyArg::Whole(_) => None,
            })
            .collect::<Result<_, _>>()?;
        if named.is_empty() && (self.key.is_some() || self.cost.is_some()) {
            return Err(Problem::bad_request(
                "`key` and `cost` beside the list are for policies that it only names: write them into its entries",
            ));
        }
        if let Some(KeyArg::Map(map)) = &self.key {
            let known: Vec<&str> = named.iter().flat_map(|policy| names(policy)).collect();
            for (name, _) in map {
                if !known.contains(&&**name) {
                    return Err(unknown_name(name, &known, "none of these policies has a key part"));
                }
            }
        }
        Ok(())
    }
}

impl WholePart<'_> {
    fn resolve<S: Store>(&self, limiter: &Limiter<S>) -> Result<ResolvedPart<'_>, Problem> {
        Ok(ResolvedPart {
            policy: &self.policy.0,
            values: values(find(limiter, &self.policy.0)?, self.key.as_ref(), Others::None)?,
            cost: self.cost.0,
        })
    }
}

fn find<'l, S: Store>(limiter: &'l Limiter<S>, name: &str) -> Result<&'l Policy, Problem> {
    let unknown = || -> Problem {
        let names = limiter.policies().map(|policy| policy.name());
        CheckError::UnknownPolicy { name: name.into(), nearest: nearest(name, names).map(Arc::clone) }.into()
    };
    limiter.policy(name).map(|policy| &**policy).ok_or_else(unknown)
}

/// The values of a policy's key, in the order of its templates.
fn values<'k>(policy: &Policy, key: Option<&'k KeyArg<'_>>, others: Others) -> Result<Vec<&'k str>, Problem> {
    let map = match key {
        Some(KeyArg::Map(map)) => map,
        Some(KeyArg::List(list)) if list.len() == policy.key().len() => {
            return Ok(list.iter().map(|value| &*value.0).collect());
        }
        None if policy.key().is_empty() => return Ok(Vec::new()),
        Some(KeyArg::List(list)) => return Err(wrong_count(policy, list.len())),
        None => return Err(wrong_count(policy, 0)),
    };
    let names: Vec<&str> = names(policy).collect();
    if others == Others::None
        && let Some((name, _)) = map.iter().find(|(name, _)| !names.contains(&&**name))
    {
        return Err(unknown_name(name, &names, &format!("policy {} has no key part", policy.name())));
    }
    let value_of = |wanted: &&str| {
        let found = map.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| &**value).ok_or_else(|| {
            let detail = format!("the key of policy {} needs {wanted:?}, which is missing", policy.name());
            Problem::bad_request(detail)
        })
    };
    names.iter().map(value_of).collect()
}

fn names(policy: &Policy) -> impl Iterator<Item = &str> {
    policy.key().iter().map(|template| &**template.name())
}

fn wrong_count(policy: &Policy, given: usize) -> Problem {
    let parts = policy.key().iter().map(|template| template.name().clone());
    let parts: Vec<_> = parts.collect();
    CheckError::KeyParts { policy: policy.name().clone(), expected: parts.len(), parts, given }.into()
}

fn unknown_name(name: &str, known: &[&str], who: &str) -> Problem {
    let hint = match (nearest(name, known.iter()), known) {
        (Some(nearest), _) => format!("did you mean {nearest:?}?"),
        (None, []) => "there is none".to_owned(),
        (None, known) => format!("there is {}", known.join(", ")),
    };
    Problem::bad_request(format!("{who} {name:?}: {hint}"))
}
