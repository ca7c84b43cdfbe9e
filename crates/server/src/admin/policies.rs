//! `GET /v1/policies`: `{"policies": [POLICY, …]}`, each as in [`policy_json`](crate::policy_json).

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::Admin;
use crate::policy_json::PolicyJson;

#[derive(Serialize)]
struct Policies<'a> {
    policies: Vec<PolicyJson<'a>>,
}

pub(super) async fn list(State(admin): State<Arc<Admin>>) -> Response {
    let policies = admin.context.limiter.policies().map(|policy| PolicyJson::from(&**policy));
    Json(Policies { policies: policies.collect() }).into_response()
}
