//! An axum router on the same accept loop, with the same bounds, as the gateway.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use tower::ServiceExt as _;

use crate::serving::{Connection, Handle};

/// The router of a port.
#[derive(Debug)]
pub(crate) struct DoorHandler(Router);

impl DoorHandler {
    /// Ready to be served.
    pub(crate) fn of(router: Router) -> Arc<Self> {
        Arc::new(Self(router))
    }
}

impl Handle for DoorHandler {
    type Body = Body;

    async fn handle(&self, request: Request<Incoming>, _: &Connection) -> Response<Body> {
        match self.0.clone().oneshot(request.map(Body::new)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}
