//! Flights in front of a model, on virtual time.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::pipeline::model::Model;

mod exact;
mod handing;

/// A round trip of 2 ms.
const ROUND_TRIP: crate::pipeline::model::Course =
    crate::pipeline::model::Course { there_us: 1000, back_us: 1000, fails: None };

fn flights(model: &Model) -> Arc<Flights<Model>> {
    Arc::new(Flights::new(model.clone(), Handle::current()))
}

/// Lets all that is under way come to its end, in virtual time.
async fn settle_down() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// Runs on a paused clock, in one thread: the same steps each time.
fn on_paused_clock<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test)
}
