//! From the values of a request to a key and the limits that apply to it.

use std::borrow::Cow;
use std::sync::Arc;

use slidegate_core::key::{Key, KeyBuilder};
use smallvec::SmallVec;

use super::{Missing, Policy};
use crate::error::CheckError;
use crate::facts::RequestFacts;
use crate::secret::SecretKey;

/// One value for each key template, in order; `None` is an absent part.
pub(crate) type Values<'a> = SmallVec<[Option<Cow<'a, [u8]>>; 4]>;

/// Stands before the name of an absent part. No template's name starts with it, so an absent part is
/// never taken for one that is there and empty.
const ABSENT: &str = "?";

impl Policy {
    /// The values of a request; `None` when the policy does not apply to it.
    pub(crate) fn values_of<'a>(
        &'a self,
        facts: &RequestFacts<'a>,
    ) -> Result<Option<Values<'a>>, CheckError> {
        let mut values = Values::new();
        for template in &self.key {
            let value = template.resolve(facts);
            values.push(match (value, self.missing) {
                (Some(value), _) => Some(value),
                (None, Missing::Count) => None,
                (None, Missing::Skip) => return Ok(None),
                (None, Missing::Deny) => {
                    return Err(CheckError::MissingPart {
                        policy: self.name.clone(),
                        part: Arc::clone(template.name()),
                    });
                }
                (None, Missing::ClientIp) => {
                    facts.client.map(|client| Cow::Owned(client.to_string().into_bytes()))
                }
            });
        }
        Ok(Some(values))
    }

    /// Whether as many values were given by hand as the key has parts.
    pub(crate) fn check_given(&self, given: &[&str]) -> Result<(), CheckError> {
        if given.len() == self.key.len() {
            return Ok(());
        }
        Err(CheckError::KeyParts {
            policy: self.name.clone(),
            expected: self.key.len(),
            parts: self.key.iter().map(|template| template.name().clone()).collect(),
            given: given.len(),
        })
    }

    /// The key of these values, one for each template, and the set of limits that applies to it.
    pub(crate) fn key_of<'a>(
        &self,
        values: impl Iterator<Item = Option<&'a [u8]>> + Clone,
        secret: &SecretKey,
    ) -> (Key, usize) {
        let mut builder = KeyBuilder::default();
        for (template, value) in self.key.iter().zip(values.clone()) {
            match value {
                Some(value) if template.is_secret() => builder.part(template.name(), &secret.hash(value)),
                Some(value) => builder.part(template.name(), value),
                None => builder.part(&[ABSENT, template.name()].concat(), b""),
            }
        }
        let key = builder.finish();
        let set = if self.overrides.is_empty() { 0 } else { self.overrides.find(&key, values) };
        (key, set)
    }
}
