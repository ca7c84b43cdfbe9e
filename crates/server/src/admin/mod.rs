//! The admin port: what is in force, single counters, health and metrics.
//!
//! | endpoint | role | |
//! |---|---|---|
//! | `GET /healthz` | none | `ok`: the process answers |
//! | `GET /readyz` | none | `{"ready":true,"store":"ok"}`, or `"degraded"` with the nodes that are slow or fail, whatever the store does; 503 once it was told to stop |
//! | `GET /metrics` | read | OpenMetrics: see [`metrics`] |
//! | `GET /v1/policies` | read | see [`policies`] |
//! | `POST /v1/peek` | read | a [question](crate::doors::question), decided at no cost: 200 with the decision |
//! | `POST /v1/reset` | write | empties the counters of its keys: `{"reset":true}` |
//!
//! Probes take no token and are never limited: a probe that fails restarts a healthy process.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use prometheus_client::registry::Registry;
use serde::Serialize;

use crate::config::{DoorConfig, Role};
use crate::context::Context;
use crate::decision_json::DecisionJson;
use crate::doors::auth::{self, Demand};
use crate::doors::body::{Bodies, QUESTION_LEN_MAX};
use crate::doors::origin::{self, Names};
use crate::doors::problem::Problem;
use crate::doors::question::Question;
use crate::doors::{refuse_the_rest, refuse_wrong_methods};

mod metrics;
mod policies;
#[cfg(test)]
mod tests;

const PATHS: [&str; 6] = ["/healthz", "/readyz", "/metrics", "/v1/policies", "/v1/peek", "/v1/reset"];

/// What the endpoints share.
#[derive(Debug)]
struct Admin {
    context: Context,
    registry: Registry,
    bodies: Bodies,
}

/// The endpoints of the port, guarded as it is configured. `registry` has the server's own metrics; those of
/// limiter and store are added here.
pub(crate) fn router(context: Context, mut registry: Registry, door: &DoorConfig) -> Router {
    metrics::register(&mut registry, &context.limiter);
    let admin = Admin { context, registry, bodies: Bodies::default() };
    let demand = |role| from_fn_with_state(Demand::new(&door.tokens, role), auth::require);
    let probes = Router::new().route("/healthz", get(async || "ok")).route("/readyz", get(ready));
    let reading = Router::new()
        .route("/metrics", get(metrics::show))
        .route("/v1/policies", get(policies::list))
        .route("/v1/peek", post(peek));
    let writing = Router::new().route("/v1/reset", post(reset));
    refuse_the_rest(reading, &PATHS)
        .layer(demand(Role::Read))
        .merge(refuse_wrong_methods(writing).layer(demand(Role::Write)))
        .merge(refuse_wrong_methods(probes))
        .layer(from_fn_with_state(Names::under(&door.tokens), origin::refuse_pages))
        .with_state(Arc::new(admin))
}

/// `store` is `degraded` while it can't be asked, and when it failed as it was asked last. Ready stays what it
/// is: restarting a server, or taking its traffic away, does not mend its store.
#[derive(Serialize)]
struct Readiness {
    ready: bool,
    store: &'static str,
    /// The nodes of a shared store that are not as they should be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<Ailing>,
}

#[derive(Serialize)]
struct Ailing {
    node: String,
    step: &'static str,
}

/// The port opens once a configuration is in force, so whoever gets here is served by a server that is ready, until it
/// is told to stop.
async fn ready(State(admin): State<Arc<Admin>>) -> (StatusCode, Json<Readiness>) {
    let store = admin.context.limiter.store();
    let ailing = store.ailing().into_iter();
    let nodes: Vec<_> = ailing.map(|(node, step)| Ailing { node, step: step.name() }).collect();
    let store = if store.is_well() && nodes.is_empty() { "ok" } else { "degraded" };
    let ready = !admin.context.leaving.load(Ordering::Relaxed);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready, store, nodes }))
}

async fn peek(State(admin): State<Arc<Admin>>, request: Request) -> Result<Response, Problem> {
    let body = admin.bodies.read(request, QUESTION_LEN_MAX).await?;
    let question: Question<'_> = body.parse()?;
    let limiter = &admin.context.limiter;
    let question = question.resolve(limiter)?.at_no_cost();
    let decision = limiter.check_all(&question.asks()).await?;
    Ok(Json(DecisionJson::new(&decision, question.form)).into_response())
}

#[derive(Serialize)]
struct Reset {
    reset: bool,
}

/// All keys have been found to fit before the first is emptied: a question with a fault empties nothing.
async fn reset(State(admin): State<Arc<Admin>>, request: Request) -> Result<Json<Reset>, Problem> {
    let body = admin.bodies.read(request, QUESTION_LEN_MAX).await?;
    let question: Question<'_> = body.parse()?;
    let limiter = &admin.context.limiter;
    let question = question.resolve(limiter)?;
    for (policy, key) in question.keys() {
        limiter.reset(policy, key).await?;
    }
    Ok(Json(Reset { reset: true }))
}
