//! Limits with their names: one in the store, one in answers.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use slidegate_core::instance::share::{Place, share_of};
use slidegate_core::limit::Limit;

use crate::http::fields::LimitText;

/// A limit of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    store_name: Arc<str>,
    public_name: Arc<str>,
    id: u64,
    limit: Limit,
    text: LimitText,
    /// The different shares that shards have of it; empty: it is not split.
    shares: Vec<Self>,
    /// The share of each shard.
    share_of: Vec<u8>,
}

impl NamedLimit {
    /// A limit at a position (from 1) among `count` of a policy. Unnamed ones go by their position in the
    /// store, and by the policy's name in answers.
    pub(super) fn new(policy: &str, name: Option<&str>, position: usize, count: usize, limit: Limit) -> Self {
        let store_name: Arc<str> = name.map_or_else(|| position.to_string().into(), Into::into);
        let public_name: Arc<str> = match name {
            Some(name) => name.into(),
            None if count == 1 => policy.into(),
            None => format!("{policy}-{position}").into(),
        };
        let digest = Sha256::digest(store_name.as_bytes());
        let id = digest.iter().take(8).fold(0, |id, byte| (id << 8) | u64::from(*byte));
        let text = LimitText::new(&public_name, &limit);
        Self { store_name, public_name, id, limit, text, shares: Vec::new(), share_of: Vec::new() }
    }

    /// Splits it into so many shards, whose shares add up to it.
    pub(super) fn split(&mut self, shards: u32) {
        let whole = self.clone();
        for place in 0..shards {
            let limit = share_of(&whole.limit, Place::new(place, shards));
            let known = self.shares.iter().position(|share| share.limit == limit);
            let at = known.unwrap_or_else(|| {
                self.shares.push(Self { limit, ..whole.clone() });
                self.shares.len() - 1
            });
            // Shares differ by one permit at the most, and by one of the burst.
            self.share_of.push(u8::try_from(at).unwrap_or(u8::MAX));
        }
    }

    /// The share of one shard; the whole where it is not split.
    pub(crate) fn share(&self, place: u32) -> &Self {
        let at = usize::try_from(place).ok().and_then(|place| self.share_of.get(place));
        at.and_then(|at| self.shares.get(usize::from(*at))).unwrap_or(self)
    }

    /// The most that one check can ever be granted: what the smallest shard holds.
    pub fn most_at_once(&self) -> u32 {
        let shares = self.shares.iter().map(|share| share.limit.capacity());
        shares.min().unwrap_or_else(|| self.limit.capacity())
    }

    /// The name that its counters go by in the store: its own, or its position. Renaming a limit starts it
    /// afresh; reordering unnamed ones swaps their histories.
    pub fn store_name(&self) -> &str {
        &self.store_name
    }

    /// The name in answers and RateLimit fields: unique in a configuration.
    pub fn public_name(&self) -> &Arc<str> {
        &self.public_name
    }

    /// The first 64 bits of the SHA-256 of the store name: tells limits of one policy apart cheaply.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The limit itself.
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// What answers say about it whoever asks.
    pub(crate) const fn text(&self) -> &LimitText {
        &self.text
    }
}

/// The first 64 bits of the SHA-256 of a name: stands for it where hashing the text each time would cost.
pub(super) fn name_id(name: &str) -> u64 {
    let digest = Sha256::digest(name.as_bytes());
    digest.iter().take(8).fold(0, |id, byte| (id << 8) | u64::from(*byte))
}
