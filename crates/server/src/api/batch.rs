//! Many questions in one request.
//!
//! ```json
//! {"checks": [{"policy": "per-user", "key": ["203.0.113.7"]}, {"policy": "nobody"}]}
//! {"answers": [{"status": 200, "decision": {…}}, {"status": 404, "error": {…}}]}
//! ```
//! Each is decided by itself, in order, as `POST /v1/check` would: `status` and body are those of its answer.
//! The batch itself is answered 200 whenever it could be read; what can't be read is decided in no part.

use std::fmt;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use slidegate::Decision;

use super::{Api, status};
use crate::decision_json::DecisionJson;
use crate::doors::body::{BATCH_LEN_MAX, Object};
use crate::doors::problem::Problem;
use crate::doors::question::{Form, Question};

/// The most questions in one batch.
const CHECKS_MAX: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    #[serde(borrow)]
    checks: Checks<'a>,
}

struct Checks<'a>(Vec<Question<'a>>);

/// One answer, written while its decision is at hand.
#[derive(Serialize)]
struct Answer<'a> {
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<DecisionJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Problem>,
}

#[derive(Serialize)]
struct Answers<'a> {
    answers: Vec<Answer<'a>>,
}

pub(super) async fn check(State(api): State<Arc<Api>>, request: Request) -> Result<Response, Problem> {
    let body = api.bodies.read(request, BATCH_LEN_MAX).await?;
    let batch: Batch<'_> = body.parse()?;
    let mut decided = Vec::with_capacity(batch.checks.0.len());
    for question in &batch.checks.0 {
        // Whoever sends a batch must not keep the others waiting until it is done.
        tokio::task::coop::consume_budget().await;
        decided.push(decide(&api, question).await);
    }
    let answers = decided.iter().map(|outcome| match outcome {
        Ok((form, decision)) => Answer {
            status: status(decision).as_u16(),
            decision: Some(DecisionJson::new(decision, *form)),
            error: None,
        },
        Err(problem) => Answer { status: problem.status().as_u16(), decision: None, error: Some(problem) },
    });
    let answers = Answers { answers: answers.collect() };
    Ok(Json(answers).into_response())
}

async fn decide(api: &Api, question: &Question<'_>) -> Result<(Form, Decision), Problem> {
    let limiter = &api.context.limiter;
    let question = question.resolve(limiter)?;
    let decision = api.timed(limiter.check_all(&question.asks())).await?;
    Ok((question.form, decision))
}

struct ChecksVisitor;

impl<'de> Visitor<'de> for ChecksVisitor {
    type Value = Checks<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of checks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Checks<'de>, A::Error> {
        let mut checks = Vec::new();
        while let Some(Object(check)) = items.next_element()? {
            if checks.len() == CHECKS_MAX {
                let message = format_args!("a batch has at most {CHECKS_MAX} checks");
                return Err(de::Error::custom(message));
            }
            checks.push(check);
        }
        Ok(Checks(checks))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Checks<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ChecksVisitor)
    }
}
