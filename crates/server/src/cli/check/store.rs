//! A decision without a server: of the store that a configuration names, by an API of this process that no port
//! leads to. So it is decided and told as every other instance would, what the policies say of a store that is
//! away included.

use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use http::{Request, header};
use http_body_util::{BodyExt, Limited};
use prometheus_client::registry::Registry;
use slidegate::core::time::Millis;
use slidegate::error::Fault;
use tower::ServiceExt;

use super::{ANSWER_LEN_MAX, Answer, understand};
use crate::config::{self, DoorConfig, StoreConfig, StoreKind, Tokens};
use crate::context::Context;
use crate::metrics::Metrics;
use crate::store::{self, AnyStore};
use crate::{api, config::Config};

/// How long the store may take to be connected to, and again to answer. A shell has more patience than a
/// request, and no connection that is open already.
const PATIENCE: Millis = Millis(2000);

/// Asks the store that `file` names.
pub(super) async fn ask(file: &Path, question: String) -> Result<Answer, String> {
    let config = config::load(file).map_err(|report| report.to_string())?.config;
    let StoreKind::Redis { config: redis, time } = &config.store.kind else {
        return Err(only_through_its_server(file, &config));
    };
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let time = PATIENCE.max(*time);
    let kind = StoreKind::Redis { config: Box::new((**redis).clone().timeout(time)), time };
    let store = StoreConfig { kind, secret_key: config.store.secret_key };
    let limiter = store::limiter(config.policies, &store).map_err(|error| failed(&error))?;
    // Whether it came to a connection, the answer tells.
    limiter.store().connected(PATIENCE).await;
    let context = Context {
        limiter: limiter.clone(),
        client_ip: Arc::new(config.client_ip),
        answers: config.answers,
        metrics: Arc::new(Metrics::new(&mut Registry::default())),
        leaving: Arc::default(),
    };
    let api =
        api::router(context, &DoorConfig { listen: ([127, 0, 0, 1], 0).into(), tokens: Tokens::Anyone });
    let request = Request::post("/v1/check")
        .header(header::HOST, "127.0.0.1")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(question))
        .map_err(|error| failed(&error))?;
    let Ok(response) = api.oneshot(request).await;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_LEN_MAX).collect().await.map_err(|error| failed(&error))?;
    let mut answer = understand(head.status, &body.to_bytes()).map_err(|error| failed(&error))?;
    answer.note =
        fault_of(limiter.store()).map(|fault| failed(&format_args!("the store did not decide: {fault}")));
    Ok(answer)
}

/// Why the one check that was made was not decided by the store.
fn fault_of(store: &AnyStore) -> Option<Fault> {
    let AnyStore::Redis(store) = store else { return None };
    let faults = Fault::ALL.into_iter().zip(store.figures().faults);
    faults.into_iter().find(|(_, count)| *count > 0).map(|(fault, _)| fault)
}

/// An embedded store lives in the process that serves it.
fn only_through_its_server(file: &Path, config: &Config) -> String {
    let how = match &config.api {
        Some(api) => format!("ask that server: slidegate check --server http://{}", api.listen),
        None => "give it an `api` section and ask that server with --server".to_owned(),
    };
    format!(
        "{}: the store is in the memory of the process that serves it, where nobody else can read it\n{how}",
        file.display()
    )
}
