//! Questions as they are written in JSON. Read by hand where a value may have several forms, so that a fault
//! is told in the words of this API and with its position, which serde's untagged enums lose.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use slidegate::core::decision::Cost;
use slidegate::limiter::POLICIES_PER_CHECK_MAX;

/// A question as it came, still without regard to which policies there are.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question<'a> {
    #[serde(borrow, default, deserialize_with = "given")]
    pub(super) policy: Option<OneOrMany<'a>>,
    #[serde(borrow, default, deserialize_with = "given")]
    pub(super) policies: Option<Many<'a>>,
    #[serde(borrow, default, deserialize_with = "given")]
    pub(super) key: Option<KeyArg<'a>>,
    #[serde(default, deserialize_with = "given")]
    pub(super) cost: Option<CostArg>,
}

/// One policy with everything that belongs to it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WholePart<'a> {
    #[serde(borrow)]
    pub(super) policy: Text<'a>,
    #[serde(borrow, default, deserialize_with = "given")]
    pub(super) key: Option<KeyArg<'a>>,
    #[serde(default)]
    pub(super) cost: CostArg,
}

#[derive(Debug)]
pub(super) enum OneOrMany<'a> {
    One(Cow<'a, str>),
    Many(Many<'a>),
}

#[derive(Debug)]
pub(super) struct Many<'a>(pub(super) Vec<PolicyArg<'a>>);

#[derive(Debug)]
pub(super) enum PolicyArg<'a> {
    Name(Cow<'a, str>),
    Whole(WholePart<'a>),
}

#[derive(Debug)]
pub(super) enum KeyArg<'a> {
    List(Vec<Text<'a>>),
    /// In the order in which it came, without duplicates.
    Map(Vec<(Cow<'a, str>, Cow<'a, str>)>),
}

/// A string, borrowed from the body where it holds no escapes.
#[derive(Debug)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct CostArg(pub(crate) Cost);

impl Default for CostArg {
    fn default() -> Self {
        Self(1)
    }
}

/// For fields that may be left out but not be `null`, which could mean anything.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct CostVisitor;

impl Visitor<'_> for CostVisitor {
    type Value = CostArg;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a cost: a whole number from 0 to {}", Cost::MAX)
    }

    fn visit_u64<E: de::Error>(self, cost: u64) -> Result<CostArg, E> {
        Cost::try_from(cost).map(CostArg).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(cost), &self))
    }

    fn visit_i64<E: de::Error>(self, cost: i64) -> Result<CostArg, E> {
        Err(E::invalid_value(de::Unexpected::Signed(cost), &self))
    }
}

impl<'de> Deserialize<'de> for CostArg {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u32(CostVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = KeyArg<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key: a list of strings, or a map from names to strings")
    }

    /// Serde would quote it, and the value of a key may be a secret.
    fn visit_str<E: de::Error>(self, _: &str) -> Result<KeyArg<'de>, E> {
        Err(E::invalid_type(de::Unexpected::Other("string"), &self))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<KeyArg<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = items.next_element()? {
            list.push(value);
        }
        Ok(KeyArg::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<KeyArg<'de>, A::Error> {
        let mut map: Vec<(Cow<'de, str>, Cow<'de, str>)> = Vec::new();
        while let Some((Text(name), Text(value))) = entries.next_entry()? {
            if map.len() == NAMES_MAX {
                return Err(de::Error::custom(format_args!("a key has at most {NAMES_MAX} names")));
            }
            if map.iter().any(|(earlier, _)| *earlier == name) {
                return Err(de::Error::custom(format_args!("the key has {name:?} twice")));
            }
            map.push((name, value));
        }
        Ok(KeyArg::Map(map))
    }
}

/// The most names in one map: every name of every policy of a check.
const NAMES_MAX: usize = POLICIES_PER_CHECK_MAX * slidegate::policy::KEY_PARTS_MAX;

impl<'de: 'a, 'a> Deserialize<'de> for KeyArg<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyVisitor)
    }
}

struct PolicyVisitor;

impl<'de> Visitor<'de> for PolicyVisitor {
    type Value = PolicyArg<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy: its name, or {\"policy\": NAME, \"key\": …, \"cost\": …}")
    }

    fn visit_borrowed_str<E: de::Error>(self, name: &'de str) -> Result<PolicyArg<'de>, E> {
        Ok(PolicyArg::Name(Cow::Borrowed(name)))
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<PolicyArg<'de>, E> {
        Ok(PolicyArg::Name(Cow::Owned(name.to_owned())))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<PolicyArg<'de>, A::Error> {
        WholePart::deserialize(de::value::MapAccessDeserializer::new(entries)).map(PolicyArg::Whole)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for PolicyArg<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PolicyVisitor)
    }
}

struct ManyVisitor;

impl<'de> Visitor<'de> for ManyVisitor {
    type Value = Many<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of policies")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Many<'de>, A::Error> {
        let mut many = Vec::new();
        while let Some(one) = items.next_element()? {
            if many.len() == POLICIES_PER_CHECK_MAX {
                let message = format_args!("a check names at most {POLICIES_PER_CHECK_MAX} policies");
                return Err(de::Error::custom(message));
            }
            many.push(one);
        }
        Ok(Many(many))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Many<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ManyVisitor)
    }
}

struct OneOrManyVisitor;

impl<'de> Visitor<'de> for OneOrManyVisitor {
    type Value = OneOrMany<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a policy, or a list of policies")
    }

    fn visit_borrowed_str<E: de::Error>(self, name: &'de str) -> Result<OneOrMany<'de>, E> {
        Ok(OneOrMany::One(Cow::Borrowed(name)))
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<OneOrMany<'de>, E> {
        Ok(OneOrMany::One(Cow::Owned(name.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<OneOrMany<'de>, A::Error> {
        ManyVisitor.visit_seq(items).map(OneOrMany::Many)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for OneOrMany<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor)
    }
}
