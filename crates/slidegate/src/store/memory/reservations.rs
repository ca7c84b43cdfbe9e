//! Reservations that wait to be settled: what was charged, where, until when.

use std::collections::{BTreeSet, HashMap};

use slidegate_core::algorithm::Receipt;
use slidegate_core::decision::Cost;
use slidegate_core::limit::Limit;
use smallvec::SmallVec;

use super::Address;
use crate::error::StoreError;
use crate::store::ReservationId;

/// The most reservations that may wait at a time: some 20 MB.
pub const RESERVATIONS_MAX: usize = 100_000;

/// One charge of a reservation.
#[derive(Clone, Copy)]
pub(super) struct Reserved {
    pub(super) address: Address,
    pub(super) limit: Limit,
    /// `None` for a reservation of cost 0, which took nothing yet.
    pub(super) receipt: Option<Receipt>,
    pub(super) cost: Cost,
    /// When nothing of it can be given back any more.
    pub(super) expires_ms: u64,
}

pub(super) type Entries = SmallVec<[Reserved; 2]>;

/// Reservations by id, and in order of their end.
#[derive(Default)]
pub(super) struct Reservations {
    by_id: HashMap<ReservationId, (u64, Entries)>,
    by_end: BTreeSet<(u64, ReservationId)>,
}

impl Reservations {
    pub(super) fn len(&self) -> u64 {
        self.by_id.len() as u64
    }

    /// Fails when no further reservation can be remembered.
    pub(super) fn make_space(&mut self, now_ms: u64) -> Result<(), StoreError> {
        self.forget_expired(now_ms);
        if self.by_id.len() >= RESERVATIONS_MAX {
            return Err(StoreError::ReservationsFull { most: RESERVATIONS_MAX });
        }
        Ok(())
    }

    pub(super) fn remember(&mut self, id: ReservationId, entries: Entries) {
        let end = entries.iter().map(|entry| entry.expires_ms).max().unwrap_or_default();
        self.by_id.insert(id, (end, entries));
        self.by_end.insert((end, id));
    }

    /// Takes a reservation out: it can be settled once only.
    pub(super) fn take(&mut self, id: ReservationId, now_ms: u64) -> Option<Entries> {
        self.forget_expired(now_ms);
        let (end, entries) = self.by_id.remove(&id)?;
        self.by_end.remove(&(end, id));
        Some(entries)
    }

    pub(super) fn forget_expired(&mut self, now_ms: u64) {
        while let Some((end, id)) = self.by_end.first().copied()
            && end <= now_ms
        {
            self.by_end.pop_first();
            self.by_id.remove(&id);
        }
    }
}

impl std::fmt::Debug for Reservations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservations").field("len", &self.by_id.len()).finish()
    }
}
