//! Reservations: charge now, settle later.
//!
//! For costs that are known only afterwards (tokens of a language model) and for counting only what failed:
//! reserve an estimate, then [`commit`](Reservation::commit) the actual cost. A reservation that is dropped
//! (an error, a panic, a cancelled request) is given back.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use slidegate_core::decision::Cost;

use crate::error::StoreError;
use crate::limiter::Limiter;
use crate::store::{ReservationId, Settled, Store};

/// Permits that are charged and not yet settled. Given back when dropped.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is given back at once"]
pub struct Reservation<S: Store> {
    /// `None` once settled or handed on.
    pending: Option<(Limiter<S>, ReservationId)>,
}

impl<S: Store> Reservation<S> {
    pub(crate) const fn new(limiter: Limiter<S>, id: ReservationId) -> Self {
        Self { pending: Some((limiter, id)) }
    }

    /// Settles it at its actual cost: the rest is given back, an excess is charged even past the limit.
    ///
    /// # Errors
    /// [`StoreError`] when the store does not answer; nothing is given back then.
    pub async fn commit(mut self, actual: Cost) -> Result<Settled, StoreError> {
        match self.pending.take() {
            Some((limiter, id)) => limiter.commit(id, actual).await,
            None => Ok(Settled::Unknown),
        }
    }

    /// Gives it back whole.
    ///
    /// # Errors
    /// [`StoreError`] when the store does not answer.
    pub async fn refund(self) -> Result<Settled, StoreError> {
        self.commit(0).await
    }

    /// Hands it on: it is no longer given back when dropped, and whoever holds the id settles it.
    pub fn into_id(mut self) -> Option<ReservationId> {
        self.pending.take().map(|(_, id)| id)
    }
}

impl<S: Store> Drop for Reservation<S> {
    fn drop(&mut self) {
        let Some((limiter, id)) = self.pending.take() else {
            return;
        };
        // The memory store is done at the first poll. With a store that is not, or that fails, the units stay
        // charged until they slide out: too few pass then, never too many.
        let _ = pin!(limiter.refund(id)).poll(&mut Context::from_waker(Waker::noop()));
    }
}
