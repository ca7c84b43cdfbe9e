//! The gateway: a reverse proxy with limits.
//!
//! # The path of a request, stop by stop
//! 1. [`intake`]: what the message must be before anything is made of it. One host, one framing, no tunnel,
//!    a head within bounds, a path that can be read. Else 400, 431 or 501.
//! 2. [`router`]: the first route in the order of the file. Else 404 or 405.
//! 3. A body that says it is too large: 413, before a byte of it is read.
//! 4. The limiter, with every policy of the route: all are charged or none. Denied is answered here.
//! 5. [`upstream`], or [`echo`]: the request goes on as it came, without what was meant for this hop
//!    ([`hop_by_hop`]) and with who asked ([`forwarded`]); the body ([`body`]) streams through under its cap.
//! 6. The answer streams back, with the fields of the decision.
//!
//! Charging comes late on purpose: who is refused by stops 1 to 3 has cost the upstream nothing and is not
//! charged, and no limit is used up by requests that no route takes. From stop 4 on a request stays charged,
//! whatever becomes of it: the upstream has worked for it, or may have.
//!
//! # What is not here
//! Accepting connections and their bounds: [`serving`](crate::serving). How denials and their fields look:
//! `slidegate::http`.

use std::sync::Once;

use bytes::Bytes;
use http::header::ACCESS_CONTROL_REQUEST_METHOD;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body as _;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use slidegate::clock::{Clock, SystemClock};
use slidegate::http::answer::{self, NeverIs};
use slidegate::{Client, Decision, RequestFacts};
use tokio::time::{Instant, timeout};

mod body;
mod echo;
mod fields;
mod forwarded;
mod hop_by_hop;
mod intake;
mod refusal;
mod router;
#[cfg(test)]
mod tests;
mod upstream;

pub(crate) use router::{RouteError, Router};

use crate::config::{GatewayConfig, Route, Upstream};
use crate::context::Context;
use crate::metrics::Door;
use crate::serving::{Bounds, Connection, Handle};
use body::RequestBody;
use intake::Intake;
use refusal::Refusal;
use upstream::Upstreams;

/// The body of an answer: made here, or streamed from the upstream.
pub(crate) type AnswerBody = Either<Full<Bytes>, Incoming>;

type Answer = Response<AnswerBody>;

/// A reverse proxy, ready to answer.
#[derive(Debug)]
pub(crate) struct Gateway {
    context: Context,
    router: Router,
    max_header_bytes: usize,
    max_body_bytes: u64,
    upstreams: Upstreams,
    /// A lack of client addresses is said once: it is the set-up that lacks them, not a request.
    without_address: Once,
}

impl Gateway {
    /// Prepares the routes and a pool of connections for each upstream.
    ///
    /// # Errors
    /// The first route whose path can't be read.
    pub(crate) fn new(config: &GatewayConfig, context: Context) -> Result<Self, RouteError> {
        Ok(Self {
            context,
            router: Router::new(&config.routes, config.paths)?,
            max_header_bytes: config.max_header_bytes,
            max_body_bytes: config.max_body_bytes,
            upstreams: Upstreams::new(),
            without_address: Once::new(),
        })
    }

    /// What clients may take on this port.
    pub(crate) const fn bounds(&self) -> Bounds {
        Bounds::new(self.max_header_bytes)
    }
}

impl Handle for Gateway {
    type Body = AnswerBody;

    async fn handle(&self, request: Request<Incoming>, connection: &Connection) -> Answer {
        let (mut parts, incoming) = request.into_parts();
        let body = RequestBody::new(incoming, self.max_body_bytes, connection.activity.clone());
        let (version, is_head) = (parts.version, parts.method == Method::HEAD);
        let admitted = match self.admit(&parts, &body, connection).await {
            Ok(admitted) => admitted,
            Err(refusal) => return refusal.into_answer(version, is_head),
        };
        hop_by_hop::strip_request(&mut parts.headers, version);
        forwarded::announce(&mut parts, &admitted.intake, connection.peer, &self.context.client_ip);
        let mut answer = self
            .forward(admitted.route, parts, body)
            .await
            .unwrap_or_else(|refusal| refusal.into_answer(version, is_head));
        if let Some(decision) = admitted.decision {
            fields::add(&decision, self.context.answers, epoch_secs(), answer.headers_mut());
        }
        answer
    }
}

impl Gateway {
    /// Stops 1 to 4: whether the request may go on, and where.
    async fn admit(
        &self,
        parts: &Parts,
        body: &RequestBody,
        connection: &Connection,
    ) -> Result<Admitted<'_>, Refusal> {
        let intake = Intake::read(parts, self.max_header_bytes)?;
        let path = self.router.normalize(parts.uri.path())?;
        let mut facts = RequestFacts {
            method: &parts.method,
            headers: &parts.headers,
            path: &path,
            query: parts.uri.query(),
            host: intake.name.as_deref(),
            route: None,
            path_params: &[],
            client: self.client(connection, &parts.headers),
        };
        let announced = announced_method(&facts);
        let matched = self.router.find(facts.method, announced.as_ref(), facts.host, &path)?;
        if body.size_hint().lower() > self.max_body_bytes {
            return Err(Refusal::BodyTooLarge { most: self.max_body_bytes });
        }
        facts.route = Some(matched.text);
        facts.path_params = &matched.params;
        let route = matched.route;
        Ok(Admitted { decision: self.decide(route, &facts).await?, route, intake })
    }

    /// Stop 5: the answer of whoever the route names.
    async fn forward(&self, route: &Route, parts: Parts, body: RequestBody) -> Result<Answer, Refusal> {
        match &route.upstream {
            Upstream::Http(authority) => {
                let response = self.upstreams.send(authority, parts, body, route.timeout).await?;
                Ok(response.map(Either::Right))
            }
            Upstream::Echo => {
                let upload = body.upload();
                timeout(route.timeout, echo::answer(&parts, body))
                    .await
                    .unwrap_or_else(|_| Err(upload.late()))
            }
        }
    }

    fn client(&self, connection: &Connection, headers: &HeaderMap) -> Option<Client> {
        let found = self.context.client_ip.find(connection.peer, headers);
        if found.too_few_hops {
            self.context.metrics.too_few_hops.inc();
        }
        if found.client.is_none() {
            self.context.metrics.no_client_ip.inc();
            self.without_address.call_once(|| {
                tracing::error!(
                    "requests come from peers without an address (a Unix socket): have the proxy in front \
                     send one, and name it in client_ip.header; until then such requests share one counter"
                );
            });
        }
        found.client
    }

    /// Asks the limiter. `None` where the route has no policies; a denial is a refusal.
    async fn decide(&self, route: &Route, facts: &RequestFacts<'_>) -> Result<Option<Decision>, Refusal> {
        if route.policies.is_empty() {
            return Ok(None);
        }
        let start = Instant::now();
        let checked = self.context.limiter.check_request(&route.policies, facts).await;
        self.context.metrics.checked(Door::Gateway, start.elapsed());
        match checked {
            Ok(decision) if decision.is_allowed() => Ok(Some(decision)),
            Ok(decision) => {
                let denial = answer::denied(&decision, self.context.answers, epoch_secs(), None);
                Err(Refusal::Limited(Box::new(denial)))
            }
            Err(error) => Err(Refusal::Limited(Box::new(answer::refused(&error, NeverIs::Denied, None)))),
        }
    }
}

/// A request that may go on.
struct Admitted<'a> {
    route: &'a Route,
    /// `None` where the route has no policies.
    decision: Option<Decision>,
    intake: Intake,
}

/// The method that a CORS preflight asks about.
fn announced_method(facts: &RequestFacts<'_>) -> Option<Method> {
    if !facts.is_preflight() {
        return None;
    }
    let name = facts.headers.get(ACCESS_CONTROL_REQUEST_METHOD)?;
    Method::from_bytes(name.as_bytes()).ok()
}

/// Needed for legacy fields that count from the epoch, no more.
fn epoch_secs() -> u64 {
    SystemClock.now().floor_ms() / 1000
}
