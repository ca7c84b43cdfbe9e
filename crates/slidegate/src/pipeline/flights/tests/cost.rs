//! What the stage itself costs: a measurement, not a test.
//!
//! `cargo test --release --package slidegate --lib flights::tests::cost -- --ignored --nocapture`

use std::sync::atomic::{AtomicU64, Ordering};

use slidegate_core::decision::{Mode, Outcome};
use tokio::time::Instant;

use super::*;
use crate::pipeline::batch::Counted;
use crate::pipeline::model;
use crate::store::Certainty;

/// Callers at once, as in the figures that the product is held to.
const CALLERS: u64 = 512;

const CHECKS_PER_CALLER: u64 = 2_000;

/// Answers as soon as it is asked, and always yes.
struct Yes;

impl Batch for Yes {
    fn own(&self, _: &Check<'_>) -> OwnedCheck {
        model::check([])
    }

    async fn call(&self, checks: Vec<Counted>) -> Vec<Result<Decided, StoreError>> {
        tokio::task::yield_now().await;
        let outcome = Outcome { limit: 100, used: 100, ..Outcome::default() };
        let yes = |counted: Counted| {
            let outcomes = SmallVec::from_elem(outcome, counted.check.charges.len());
            let certainty = Certainty::Exact;
            let answer = Answer { granted: counted.times, outcomes, mode: Mode::Normal, certainty };
            Ok(Decided { answer, receipts: SmallVec::from_elem(None, counted.check.charges.len()) })
        };
        checks.into_iter().map(yes).collect()
    }

    async fn give_back(&self, _: &[Taken]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn remember(&self, _: ReservationId, _: &[Taken]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn settle(&self, _: ReservationId, _: Cost) -> Result<Settled, StoreError> {
        Ok(Settled::Unknown)
    }

    async fn reset(&self, _: &Counter<'_>) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Nanoseconds of wall time for each check, over both threads; `keys` is how many there are to choose from.
async fn measure(keys: u64, direct: bool) -> (u64, FlightFigures) {
    let flights = Arc::new(Flights::new(Yes, Handle::current(), true, PATIENCE));
    let granted = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let tasks: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (flights, granted) = (flights.clone(), granted.clone());
            tokio::spawn(async move {
                for check in 0..CHECKS_PER_CALLER {
                    let at = (caller * CHECKS_PER_CALLER + check).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                    let name = format!("sg:{{per-user:user-{:08}}}:10/s", at % keys);
                    let check = model::check([model::charge(&name, 0, 10, 1000)]);
                    let answer = if direct {
                        let counted = Counted { check: Arc::new(check), times: 1 };
                        flights.batch().call(vec![counted]).await.pop().unwrap()
                    } else {
                        flights.decide(check, 1).await
                    };
                    granted.fetch_add(u64::from(answer.unwrap().answer.granted), Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let each = start.elapsed().as_nanos() / u128::from(CALLERS * CHECKS_PER_CALLER);
    assert_eq!(granted.load(Ordering::Relaxed), CALLERS * CHECKS_PER_CALLER);
    (u64::try_from(each).unwrap(), flights.figures())
}

#[test]
#[ignore = "a measurement, not a test"]
fn what_a_check_costs() {
    for threads in [1, 2] {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_time()
            .build()
            .unwrap();
        for (name, keys, direct) in
            [("no flights", 1_000_000, true), ("uniform", 1_000_000, false), ("hot", 1, false)]
        {
            for _ in 0..3 {
                let (ns, figures) =
                    runtime.block_on(async { tokio::spawn(measure(keys, direct)).await.unwrap() });
                let per_call = (figures.checks / figures.flights.max(1), figures.largest);
                println!("{threads} threads, {name}: {ns} ns a check, (mean, largest) call {per_call:?}");
            }
        }
    }
}
