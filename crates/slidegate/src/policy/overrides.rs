//! Other limits for particular keys.
//!
//! An override names every part of the key, `*` for any value. The one with the most exact parts wins, and
//! among equals the first. Those without `*` are found by hash, so there may be one for every tenant.

use std::collections::HashMap;

use slidegate_core::key::Key;

/// The most overrides with a `*` in one policy: they are tried one after another.
pub const WILDCARD_OVERRIDES_MAX: usize = 256;

/// The most overrides of one policy.
pub const OVERRIDES_MAX: usize = 100_000;

/// Which set of limits applies to a key.
#[derive(Clone, Debug, Default)]
pub(super) struct Overrides {
    exact: HashMap<Box<[u8]>, usize>,
    /// Most exact parts first; each with its patterns and its set.
    wildcard: Vec<(Vec<Pattern>, usize)>,
}

/// What one part of the key must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Any value, and an absent one too.
    Any,
    /// Exactly this value.
    Exact(Box<str>),
}

impl Pattern {
    /// `*` is any value, everything else itself.
    pub fn parse(text: &str) -> Self {
        if text == "*" { Self::Any } else { Self::Exact(text.into()) }
    }

    fn matches(&self, value: Option<&[u8]>) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(text) => value == Some(text.as_bytes()),
        }
    }
}

impl Overrides {
    /// Adds an override; earlier ones win over later ones of the same exactness.
    pub(super) fn add(&mut self, names: &[&str], patterns: Vec<Pattern>, set: usize) {
        let values: Option<Vec<&str>> = patterns
            .iter()
            .map(|pattern| match pattern {
                Pattern::Exact(text) => Some(&**text),
                Pattern::Any => None,
            })
            .collect();
        if let Some(values) = values {
            let key = Key::from_parts(names.iter().copied().zip(values.iter().map(|value| value.as_bytes())));
            self.exact.entry(key.as_bytes().into()).or_insert(set);
        } else {
            self.wildcard.push((patterns, set));
            self.wildcard.sort_by_key(|(patterns, _)| {
                patterns.iter().filter(|pattern| **pattern == Pattern::Any).count()
            });
        }
    }

    /// The set for a key: 0, the base set, unless an override matches.
    pub(super) fn find<'a>(
        &self,
        key: &Key,
        values: impl Iterator<Item = Option<&'a [u8]>> + Clone,
    ) -> usize {
        if let Some(set) = self.exact.get(key.as_bytes()) {
            return *set;
        }
        let matches = |patterns: &[Pattern]| {
            patterns.iter().zip(values.clone()).all(|(pattern, value)| pattern.matches(value))
        };
        self.wildcard.iter().find(|(patterns, _)| matches(patterns)).map_or(0, |(_, set)| *set)
    }

    pub(super) fn wildcards(&self) -> usize {
        self.wildcard.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty()
    }
}
