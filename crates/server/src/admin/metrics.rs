//! `GET /metrics`: OpenMetrics text, as Prometheus reads it.
//!
//! | series | |
//! |---|---|
//! | `slidegate_decisions_total{policy,outcome,mode}` | decisions by what they were and who made them |
//! | `slidegate_store_...` | see [`store`]: others for each kind of store |
//! | `slidegate_check_duration_seconds{door}` | from question to decision |
//! | `slidegate_build_info{version}` | what is running |
//!
//! How many series there are depends on the configuration alone, never on keys or requests: four for each
//! policy, and four more for each degraded mode that it has been in. Nothing of a request is ever a label.

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use slidegate::metrics::Verdict;
use slidegate::{Limiter, Mode};

use super::Admin;
use crate::doors::problem::Problem;
use crate::store::AnyStore;

mod store;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Adds the counters of limiter and store, and which version this is.
pub(super) fn register(registry: &mut Registry, limiter: &Limiter<AnyStore>) {
    registry.register_collector(Box::new(Figures(limiter.clone())));
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    registry.register("build", "What is running", Info::new(version));
}

pub(super) async fn show(State(admin): State<Arc<Admin>>) -> Result<Response, Problem> {
    let mut body = String::new();
    text::encode(&mut body, &admin.registry)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], body).into_response())
}

/// Reads the counters that limiter and store keep for themselves, when they are asked for.
#[derive(Debug)]
struct Figures(Limiter<AnyStore>);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_decisions(&mut encoder)?;
        store::encode(self.0.store(), &mut encoder)
    }
}

impl Figures {
    /// Outcomes of the normal mode are there from the start, so that rates have something to rise from; those
    /// of other modes once they have occurred.
    fn encode_decisions(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Decisions by policy, outcome and mode.";
        let mut family = encoder.encode_descriptor("decisions", help, None, MetricType::Counter)?;
        for metrics in self.0.metrics() {
            for (verdict, mode) in Verdict::ALL
                .into_iter()
                .flat_map(|verdict| Mode::ALL.into_iter().map(move |mode| (verdict, mode)))
            {
                let count = metrics.decisions(verdict, mode);
                if count == 0 && mode != Mode::Normal {
                    continue;
                }
                let labels = [
                    ("policy", &**metrics.policy().name()),
                    ("outcome", verdict.name()),
                    ("mode", mode.name()),
                ];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
