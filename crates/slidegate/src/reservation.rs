//! Reservations: charge now, settle later.
//!
//! For costs that are known only afterwards (tokens of a language model) and for counting only what failed:
//! reserve an estimate, then [`commit`](Reservation::commit) the actual cost. A reservation that is dropped
//! (an error, a panic, a cancelled request) is given back.
//!
//! With a store that is not in this process, that takes a while: it goes on as a task of the tokio runtime
//! that the reservation was made in. If that runtime is shut down before the task is done, or the store does
//! not answer, the units stay charged until they slide out: too few pass then, never too many.

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
    /// Where it was made; whoever drops it may be somewhere else.
    #[cfg(feature = "redis")]
    runtime: Option<tokio::runtime::Handle>,
}

impl<S: Store> Reservation<S> {
    pub(crate) fn new(limiter: Limiter<S>, id: ReservationId) -> Self {
        Self {
            pending: Some((limiter, id)),
            #[cfg(feature = "redis")]
            runtime: tokio::runtime::Handle::try_current().ok(),
        }
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
        #[cfg(feature = "redis")]
        if let Some(runtime) = self.runtime.take() {
            drive(&runtime, async move { limiter.refund(id).await });
            return;
        }
        // The memory store is done at the first poll, and others are not used without a runtime.
        let _ = pin!(limiter.refund(id)).poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// Drives a future on to its end: at once if it is ready, as with the memory store, else as a task.
#[cfg(feature = "redis")]
fn drive<F: Future + Send + 'static>(runtime: &tokio::runtime::Handle, future: F)
where
    F::Output: Send,
{
    let _inside = runtime.enter();
    let mut future = Box::pin(future);
    if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        runtime.spawn(future);
    }
}
