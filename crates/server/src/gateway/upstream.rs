//! Sending requests on, over connections that are kept.
//!
//! One pool for all routes: those with the same upstream share its connections. A kept connection that the
//! upstream has closed is noticed, and a request that was not begun on it goes to another one; nothing that
//! may have reached an upstream is ever sent twice.
//!
//! Upstreams speak HTTP/1.1 in clear. What an upstream says before its answer (1xx) ends here.

use std::error::Error;
use std::io;
use std::time::Duration;

use http::header::TRANSFER_ENCODING;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;

use super::body::RequestBody;
use super::hop_by_hop;
use super::refusal::Refusal;

/// How long a connection to an upstream may take: a handshake in one data centre takes less than a
/// millisecond, and one lost packet costs a second.
const CONNECT_TIME: Duration = Duration::from_secs(3);

/// Idle connections are dropped before the upstream does it: Node.js, uvicorn and Apache wait 5 s, others
/// longer. A request that crosses a connection's end can't be told from one that was worked on.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// Idle connections kept to one upstream: as many as requests are usually worked on at once, few enough
/// for any limit on open files.
const IDLE_MAX: usize = 512;

/// After this long in silence the kernel asks whether the upstream is still there.
const KEEPALIVE_TIME: Duration = Duration::from_secs(60);

/// All upstreams and the connections to them.
#[derive(Debug)]
pub(super) struct Upstreams {
    client: Client<HttpConnector, RequestBody>,
}

impl Upstreams {
    pub(super) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIME));
        connector.set_keepalive(Some(KEEPALIVE_TIME));
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(IDLE_MAX)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .build(connector);
        Self { client }
    }

    /// Sends a request on, and waits for the head of its answer for at most `time`.
    pub(super) async fn send(
        &self,
        upstream: &Authority,
        parts: Parts,
        body: RequestBody,
        time: Duration,
    ) -> Result<Response<Incoming>, Refusal> {
        let upload = body.upload();
        let request = onward(upstream, parts, body)?;
        let mut response = match timeout(time, self.client.request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let refusal = upload.fault().unwrap_or_else(|| blame(&error));
                tracing::debug!(%upstream, error = &error as &dyn Error, "no answer");
                return Err(refusal);
            }
            Err(_) => return Err(upload.late()),
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            // Nobody asked it to.
            return Err(Refusal::UpstreamBroken);
        }
        hop_by_hop::strip_response(response.headers_mut());
        // The version of this hop; that of the client's is its connection's.
        *response.version_mut() = Version::HTTP_11;
        Ok(response)
    }
}

/// The request as the upstream gets it: path and query byte for byte as they came.
fn onward(
    upstream: &Authority,
    mut parts: Parts,
    body: RequestBody,
) -> Result<Request<RequestBody>, Refusal> {
    let target = parts.uri.path_and_query().cloned();
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(upstream.clone());
    uri.path_and_query = Some(target.unwrap_or(PathAndQuery::from_static("/")));
    parts.uri = Uri::from_parts(uri).map_err(|_| Refusal::Malformed("the target can't be sent on"))?;
    parts.version = Version::HTTP_11;
    // Without a length hyper would leave the body of a GET out, whatever it holds.
    if !body.is_end_stream() && body.size_hint().exact().is_none() {
        parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    // Upgrades of the client's connection are not for the upstream's.
    parts.extensions.clear();
    Ok(Request::from_parts(parts, body))
}

fn blame(error: &hyper_util::client::legacy::Error) -> Refusal {
    if !error.is_connect() {
        return Refusal::UpstreamBroken;
    }
    let mut cause = error.source();
    while let Some(inner) = cause {
        let io = inner.downcast_ref::<io::Error>();
        if io.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            return Refusal::UpstreamLate;
        }
        cause = inner.source();
    }
    Refusal::Unreachable
}
