//! A port for tests: policies, a router in front of them, and answers taken apart. No sockets.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use prometheus_client::registry::Registry;
use serde_json::Value;
use slidegate::Policy;
use slidegate::http::AnswerOptions;
use slidegate::http::client_ip::ClientIpRule;
use slidegate::policy::PolicyBuilder;
use tower::ServiceExt;

use crate::config::{DoorConfig, Role, StoreConfig, StoreKind, Token, Tokens};
use crate::context::Context;
use crate::metrics::Metrics;
use crate::store;

pub(crate) const READER: &str = "reader-reader-reader";
pub(crate) const WRITER: &str = "writer-writer-writer";

/// What these policies come to, with the registry of the server's metrics. Windows of an hour keep tests
/// apart from the clock.
pub(crate) fn context(policies: impl IntoIterator<Item = PolicyBuilder>) -> (Context, Registry) {
    // Enough for the tests that fill it, and quickly made.
    context_over(policies, StoreKind::Memory { max_keys: 250_000 })
}

/// The same over another store.
pub(crate) fn context_over(
    policies: impl IntoIterator<Item = PolicyBuilder>,
    kind: StoreKind,
) -> (Context, Registry) {
    let policies: Vec<Policy> = policies.into_iter().map(|policy| policy.build().unwrap()).collect();
    let mut registry = Registry::with_prefix("slidegate");
    let context = Context {
        limiter: store::limiter(policies, &StoreConfig { kind, secret_key: None }).unwrap(),
        client_ip: Arc::new(ClientIpRule::default()),
        answers: AnswerOptions::default(),
        metrics: Arc::new(Metrics::new(&mut registry)),
        leaving: Arc::default(),
    };
    (context, registry)
}

pub(crate) fn door(tokens: Tokens) -> DoorConfig {
    DoorConfig { listen: ([127, 0, 0, 1], 0).into(), tokens }
}

pub(crate) fn tokens() -> Tokens {
    let token = |role, secret: &str| Token { role, secret: secret.into() };
    Tokens::List(vec![token(Role::Read, READER), token(Role::Write, WRITER)])
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The detail of a problem, after a look at whether it is one.
    pub(crate) fn detail(&self) -> String {
        let json = self.json();
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(self.header("cache-control"), Some("no-store"), "{self:?}");
        assert_eq!(json["status"], self.status, "{self:?}");
        json["detail"].as_str().unwrap().to_owned()
    }
}

/// Sends a request with these header lines, as a program on this machine would.
pub(crate) async fn send(
    router: &Router,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> Reply {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "127.0.0.1:8082");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = router.clone().oneshot(request.body(body.into()).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Reply {
        status: head.status.as_u16(),
        headers: head.headers,
        text: String::from_utf8(bytes.to_vec()).unwrap(),
    }
}

/// Posts JSON.
pub(crate) async fn post(router: &Router, path: &str, body: impl Into<Body>) -> Reply {
    send(router, Method::POST, path, &[("content-type", "application/json")], body).await
}
