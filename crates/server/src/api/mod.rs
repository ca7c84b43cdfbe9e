//! The API port: decisions for programs that ask over HTTP instead of sending their traffic through.
//!
//! | endpoint | |
//! |---|---|
//! | `POST /v1/check` | a [question](crate::doors::question): 200 or 429, with the limiter's fields and the decision |
//! | `POST /v1/check/batch` | up to 1000 questions, answered in order: see [`batch`] |
//! | `POST /v1/reserve`, `/v1/commit`, `/v1/refund` | charge now, settle later: see [`reserve`] |
//!
//! Anything but a decision is a [problem](crate::doors::problem): 400 for what can't be read or does not fit,
//! 401 without a token, 404 for an unknown policy, 422 for a cost that never fits, 503 when the store does not
//! answer. A `429` is a decision, and its body is one.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderValue, StatusCode, header};
use slidegate::clock::{Clock, SystemClock};
use slidegate::http::fields;
use slidegate::{Decision, Mode};

use crate::config::{DoorConfig, Role};
use crate::context::Context;
use crate::decision_json::DecisionJson;
use crate::doors::auth::{self, Demand};
use crate::doors::body::{Bodies, QUESTION_LEN_MAX};
use crate::doors::origin::{self, Names};
use crate::doors::problem::Problem;
use crate::doors::question::Question;
use crate::doors::refuse_the_rest;
use crate::metrics::Door;

mod batch;
mod reserve;
#[cfg(test)]
mod tests;

const PATHS: [&str; 5] = ["/v1/check", "/v1/check/batch", "/v1/reserve", "/v1/commit", "/v1/refund"];

/// What the endpoints share.
#[derive(Debug)]
struct Api {
    context: Context,
    bodies: Bodies,
}

/// The endpoints of the port, guarded as it is configured.
pub(crate) fn router(context: Context, door: &DoorConfig) -> Router {
    let api = Api { context, bodies: Bodies::default() };
    let routes = Router::new()
        .route("/v1/check", post(check))
        .route("/v1/check/batch", post(batch::check))
        .route("/v1/reserve", post(reserve::reserve))
        .route("/v1/commit", post(reserve::commit))
        .route("/v1/refund", post(reserve::refund));
    // Tokens of this port have no roles: any of them will do.
    let demand = Demand::new(&door.tokens, Role::Read);
    refuse_the_rest(routes, &PATHS)
        .layer(from_fn_with_state(demand, auth::require))
        .layer(from_fn_with_state(Names::under(&door.tokens), origin::refuse_pages))
        .with_state(Arc::new(api))
}

async fn check(State(api): State<Arc<Api>>, request: Request) -> Result<Response, Problem> {
    let body = api.bodies.read(request, QUESTION_LEN_MAX).await?;
    let question: Question<'_> = body.parse()?;
    let question = question.resolve(&api.context.limiter)?;
    let decision = api.timed(api.context.limiter.check_all(&question.asks())).await?;
    let json = DecisionJson::new(&decision, question.form);
    api.answer(&decision, &json)
}

impl Api {
    /// The decision as an answer: its status, the limiter's fields, and itself.
    fn answer(&self, decision: &Decision, json: &DecisionJson<'_>) -> Result<Response, Problem> {
        let body = serde_json::to_vec(json)
            .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        let mut response = (status(decision), body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let now_epoch_secs = SystemClock.now().floor_ms() / 1000;
        fields::apply(decision, self.context.answers, now_epoch_secs, headers);
        Ok(response)
    }

    /// Takes note of how long a decision takes.
    async fn timed<T>(&self, deciding: impl Future<Output = T>) -> T {
        let start = tokio::time::Instant::now();
        let decision = deciding.await;
        self.context.metrics.checked(Door::Api, start.elapsed());
        decision
    }
}

/// 429 says "later"; 503 that the policy denies because the store is away.
fn status(decision: &Decision) -> StatusCode {
    match (decision.is_allowed(), decision.mode()) {
        (true, _) => StatusCode::OK,
        (false, Mode::DenyAll) => StatusCode::SERVICE_UNAVAILABLE,
        (false, _) => StatusCode::TOO_MANY_REQUESTS,
    }
}
