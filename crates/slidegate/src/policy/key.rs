//! From the values of a request to a key and the limits that apply to it.

use std::borrow::Cow;
use std::sync::Arc;

use slidegate_core::key::{Key, KeyBuilder};
use smallvec::SmallVec;

use super::{Missing, Policy};
use crate::error::CheckError;
use crate::facts::RequestFacts;
use crate::secret::SecretKey;

/// One value for each key template, in order.
pub(crate) type Values<'a> = SmallVec<[Value<Cow<'a, [u8]>>; 4]>;

/// What a part of the key came to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<T> {
    /// The request has it, even if it is empty.
    Given(T),
    /// The request lacks it; this is the client's address instead.
    StandIn(T),
    /// The request lacks it.
    Absent,
}

impl Value<Cow<'_, [u8]>> {
    pub(crate) fn as_deref(&self) -> Value<&[u8]> {
        match self {
            Self::Given(value) => Value::Given(value),
            Self::StandIn(address) => Value::StandIn(address),
            Self::Absent => Value::Absent,
        }
    }
}

impl<T> Value<T> {
    fn given(self) -> Option<T> {
        if let Self::Given(value) = self { Some(value) } else { None }
    }
}

/// Stands before the name of a part that the request lacks. A part has the same template in every key of a
/// policy, so what is absent never meets what is there and empty, nor a stand-in a user who calls
/// themselves by an address.
const LACKING: &str = "?";

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
                (Some(value), _) => Value::Given(value),
                (None, Missing::Count) => Value::Absent,
                (None, Missing::Skip) => return Ok(None),
                (None, Missing::Deny) => {
                    return Err(CheckError::MissingPart {
                        policy: self.name.clone(),
                        part: Arc::clone(template.name()),
                    });
                }
                (None, Missing::ClientIp) => facts.client.map_or(Value::Absent, |client| {
                    Value::StandIn(Cow::Owned(client.to_string().into_bytes()))
                }),
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
        values: impl Iterator<Item = Value<&'a [u8]>> + Clone,
        secret: &SecretKey,
    ) -> (Key, usize) {
        let mut builder = KeyBuilder::default();
        for ((template, name), value) in self.key.iter().zip(&self.part_names).zip(values.clone()) {
            match value {
                Value::Given(value) if template.is_secret() => builder.named_part(name, &secret.hash(value)),
                Value::Given(value) => builder.named_part(name, value),
                Value::StandIn(address) => builder.part(&[LACKING, template.name()].concat(), address),
                Value::Absent => builder.part(&[LACKING, template.name()].concat(), b""),
            }
        }
        let key = builder.finish();
        let set =
            if self.overrides.is_empty() { 0 } else { self.overrides.find(&key, values.map(Value::given)) };
        (key, set)
    }
}
