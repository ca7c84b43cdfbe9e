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
                (None, Missing::ClientIp) => facts
                    .client
                    .map(|client| Cow::Owned(client.to_string().into_bytes())),
            });
        }
        Ok(Some(values))
    }

    /// Values given by hand, one for each template.
    pub(crate) fn values_from<'a>(&self, given: &[&'a str]) -> Result<Values<'a>, CheckError> {
        if given.len() != self.key.len() {
            return Err(CheckError::KeyParts {
                policy: self.name.clone(),
                expected: self.key.len(),
                parts: self.key.iter().map(|template| template.name().clone()).collect(),
                given: given.len(),
            });
        }
        Ok(given
            .iter()
            .map(|value| Some(Cow::Borrowed(value.as_bytes())))
            .collect())
    }

    /// The key of these values, and the set of limits that applies to it.
    pub(crate) fn key_of(&self, values: &Values<'_>, secret: &SecretKey) -> (Key, usize) {
        let mut builder = KeyBuilder::default();
        for (template, value) in self.key.iter().zip(values) {
            match value {
                Some(value) if template.is_secret() => builder.part(template.name(), &secret.hash(value)),
                Some(value) => builder.part(template.name(), value),
                None => builder.part(&[ABSENT, template.name()].concat(), b""),
            }
        }
        let key = builder.finish();
        if self.overrides.is_empty() {
            return (key, 0);
        }
        let plain = values.iter().map(|value| value.as_deref()).collect();
        (key, self.overrides.find(&key, &plain))
    }
}
