//! Reservations: an estimate is charged now, and settled at what it came to.
//!
//! | endpoint | body | answer |
//! |---|---|---|
//! | `/v1/reserve` | as for a check, at a cost of 1 or more | as for a check, with `"reservation": ID` when it is allowed |
//! | `/v1/commit` | `{"reservation": ID, "cost": ACTUAL}` | `{"settled": true, "given_back": N, "charged": N}` |
//! | `/v1/refund` | `{"reservation": ID}` | the same: a commit at 0 |
//!
//! A reservation is settled once. Whoever settles one again, or too late, is answered 404 and nothing changes:
//! once its window has ended there is nothing to give back. So a settlement whose answer was lost may be sent
//! again, and a 404 then says that it had arrived, or that it no longer matters.
//!
//! A caller that goes away before it is told the id has its reservation given back, as far as this process
//! notices; what is not noticed slides out with its window.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use slidegate::core::decision::Cost;
use slidegate::{ReservationId, Settled};

use super::Api;
use crate::decision_json::DecisionJson;
use crate::doors::body::QUESTION_LEN_MAX;
use crate::doors::problem::Problem;
use crate::doors::question::{CostArg, Question, Text};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Commit<'a> {
    #[serde(borrow)]
    reservation: Text<'a>,
    cost: CostArg,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refund<'a> {
    #[serde(borrow)]
    reservation: Text<'a>,
}

/// What settling came to.
#[derive(Debug, Serialize)]
pub(super) struct SettledJson {
    settled: bool,
    /// The most that any limit got back: less than was left over where part of it had slid out.
    given_back: Cost,
    /// Charged on top of what had been reserved.
    charged: Cost,
}

pub(super) async fn reserve(State(api): State<Arc<Api>>, request: Request) -> Result<Response, Problem> {
    let body = api.bodies.read(request, QUESTION_LEN_MAX).await?;
    let question: Question<'_> = body.parse()?;
    let limiter = &api.context.limiter;
    let question = question.resolve(limiter)?;
    if question.peeks() {
        return Err(Problem::bad_request(
            "a reservation costs at least 1: reserve what it will probably cost",
        ));
    }
    let (decision, reservation) = api.timed(limiter.reserve(&question.asks())).await?;
    let mut json = DecisionJson::new(&decision, question.form);
    let id = reservation.and_then(slidegate::Reservation::into_id);
    json.reservation = id.map(|id| id.to_string());
    api.answer(&decision, &json)
}

pub(super) async fn commit(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Json<SettledJson>, Problem> {
    let body = api.bodies.read(request, QUESTION_LEN_MAX).await?;
    let commit: Commit<'_> = body.parse()?;
    settle(&api, commit.reservation, commit.cost.0).await
}

pub(super) async fn refund(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Json<SettledJson>, Problem> {
    let body = api.bodies.read(request, QUESTION_LEN_MAX).await?;
    let refund: Refund<'_> = body.parse()?;
    settle(&api, refund.reservation, 0).await
}

async fn settle(api: &Api, id: Text<'_>, actual: Cost) -> Result<Json<SettledJson>, Problem> {
    let id: ReservationId = id.0.parse().map_err(|error: slidegate::store::ParseReservationIdError| {
        Problem::bad_request(error.to_string())
    })?;
    match api.context.limiter.commit(id, actual).await? {
        Settled::Done { given_back, charged } => Ok(Json(SettledJson { settled: true, given_back, charged })),
        Settled::Unknown => Err(Problem::new(
            StatusCode::NOT_FOUND,
            "there is no such reservation: it was settled before, its window has ended, or it never was",
        )),
    }
}
