//! Flights in front of a model, on virtual time.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::pipeline::model::{Model, PATIENCE, ROUND_TRIP, ask, on_paused_clock, pass, settle_down};

mod bounds;
mod cancelling;
mod cost;
mod exact;
mod failing;
mod sharing;

fn flights(model: &Model) -> Arc<Flights<Model>> {
    Arc::new(Flights::new(model.clone(), Handle::current(), true, PATIENCE))
}
