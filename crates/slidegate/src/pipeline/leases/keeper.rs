//! The task that fills a purse, and gives back at the lease's end what nobody spent.
//!
//! It goes on calling while somebody waits, then sees its lease to the end. Another one may have been sent by then:
//! leases are numbered, and each keeper ends its own only.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::Shared;
use super::account::{Landed, Order, Rest};
use crate::error::{Fault, StoreError};
use crate::pipeline::batch::{Batch, OwnedCheck};

/// Looks after one purse.
pub(super) struct Keeper<B: Batch> {
    shared: Arc<Shared<B>>,
    name: u128,
    /// Somebody may wait for it.
    calling: bool,
}

impl<B: Batch> Keeper<B> {
    /// Sends one for a purse that has been marked as calling. Not under its lock: a runtime that has ended drops it
    /// here.
    pub(super) fn send(shared: &Arc<Shared<B>>, name: u128) {
        shared.keepers.send_modify(|keepers| *keepers += 1);
        let keeper = Self { shared: shared.clone(), name, calling: true };
        shared.runtime.spawn(keeper.run());
    }

    async fn run(mut self) {
        let mut last = None;
        while self.calling {
            let order = self.order();
            let Some(order) = order else { break };
            last = self.call(order).await;
        }
        if let Some(landed) = last {
            self.see_to_the_end(landed).await;
        }
    }

    fn order(&mut self) -> Option<Order> {
        let now_us = self.shared.clock.now_us();
        let order =
            self.shared.accounts.of(self.name).find(self.name).and_then(|account| account.order(now_us));
        self.calling = order.is_some();
        order
    }

    async fn call(&mut self, mut order: Order) -> Option<Landed> {
        let shared = &self.shared;
        shared.figures.calls.fetch_add(1, Ordering::Relaxed);
        // On its way before the call, whether it is confirmed or not.
        let _confirmed = self.give_back(std::mem::take(&mut order.rest));
        let check = OwnedCheck { lease: order.length, ..(*order.check).clone() };
        let result = shared.scatter.flights().decide(check, order.asked).await;
        let now_us = shared.clock.now_us();
        shared.round_trip.note(now_us.saturating_sub(order.sent_us));
        let mut accounts = shared.accounts.of(self.name);
        let account = accounts.find(self.name)?;
        match result {
            Ok(decided) => {
                let landed = account.land(&order, decided, now_us);
                self.calling = landed.again;
                Some(landed)
            }
            Err(error) => {
                account.fail(&error);
                self.calling = false;
                None
            }
        }
    }

    async fn see_to_the_end(&self, landed: Landed) {
        let mut closing = self.shared.closing.subscribe();
        loop {
            // The clock that counts may be ahead of the one that is slept by, never behind it.
            let left_us = landed.end_us.saturating_sub(self.shared.clock.now_us());
            if left_us == 0 || *closing.borrow_and_update() {
                break;
            }
            tokio::select! {
                () = sleep(Duration::from_micros(left_us)) => {}
                _ = closing.changed() => {}
            }
        }
        let rest =
            self.shared.accounts.of(self.name).find(self.name).map(|account| account.end(landed.lease));
        if let Some(confirmed) = self.give_back(rest.unwrap_or_default()) {
            let _ = confirmed.confirmed().await;
        }
    }

    fn give_back(&self, rest: Rest) -> Option<crate::pipeline::flights::Confirmed> {
        if rest.taken.is_empty() {
            return None;
        }
        self.shared.figures.given_back.fetch_add(rest.checks.into(), Ordering::Relaxed);
        Some(self.shared.scatter.flights().give_back(rest.taken))
    }
}

/// A keeper that ends before its time (its runtime is shut down, or the store panicked) leaves nobody waiting.
impl<B: Batch> Drop for Keeper<B> {
    fn drop(&mut self) {
        if self.calling
            && let Some(account) = self.shared.accounts.of(self.name).find(self.name)
        {
            account.fail(&StoreError::Unavailable { fault: Fault::Disconnected });
        }
        self.shared.keepers.send_modify(|keepers| *keepers -= 1);
    }
}
