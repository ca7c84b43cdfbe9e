//! A gateway, an upstream that does as told, and clients that see every byte.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prometheus_client::registry::Registry;
use slidegate::http::AnswerOptions;
use slidegate::http::client_ip::ClientIpRule;
use slidegate::http::path::PathRules;
use slidegate::{Limiter, Policy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::config::{GatewayConfig, PathMatch, Route, StoreConfig, Upstream};
use crate::context::Context;
use crate::gateway::Gateway;
use crate::metrics::Metrics;
use crate::serving::{Bounds, serve};
use crate::store::{self, AnyStore};

pub(super) const MAX_BODY_BYTES: u64 = 1 << 20;
pub(super) const MAX_HEADER_BYTES: usize = 16 * 1024;

/// Longer than any test takes: where it shows up, something hangs.
pub(super) const LONG: Duration = Duration::from_secs(60);

pub(super) type TestBody = BoxBody<Bytes, crate::serving::BoxError>;

pub(super) fn full(text: impl Into<Bytes>) -> TestBody {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
}

pub(super) fn empty() -> TestBody {
    full("")
}

/// Lets virtual time pass, and all that is due happen; for tests that start with time paused.
pub(super) async fn pass(secs: u64) {
    let _ = timeout(Duration::from_secs(secs), std::future::pending::<()>()).await;
}

/// A route that takes everything.
pub(super) fn route(upstream: Upstream) -> Route {
    Route {
        path: PathMatch::Prefix("/".into()),
        methods: Vec::new(),
        host: None,
        policies: Vec::new(),
        upstream,
        timeout: LONG,
    }
}

pub(super) fn exact(path: &str, upstream: Upstream) -> Route {
    Route { path: PathMatch::Exact(path.into()), ..route(upstream) }
}

/// What a gateway is made of.
pub(super) struct Setup {
    pub(super) routes: Vec<Route>,
    pub(super) policies: Vec<Policy>,
    pub(super) client_ip: ClientIpRule,
    pub(super) answers: AnswerOptions,
    pub(super) bounds: Bounds,
    pub(super) grace: Duration,
}

impl Setup {
    pub(super) fn new(routes: Vec<Route>) -> Self {
        Self {
            routes,
            policies: Vec::new(),
            client_ip: ClientIpRule::default(),
            answers: AnswerOptions::default(),
            bounds: Bounds::new(MAX_HEADER_BYTES),
            grace: LONG,
        }
    }

    /// One policy, on every route.
    pub(super) fn limited(mut self, policy: Policy) -> Self {
        for route in &mut self.routes {
            route.policies.push(policy.name().clone());
        }
        self.policies.push(policy);
        self
    }

    pub(super) fn gateway(self) -> Gateway {
        let limiter = store::limiter(self.policies, &StoreConfig::default()).unwrap();
        let context = Context {
            limiter,
            client_ip: Arc::new(self.client_ip),
            answers: self.answers,
            metrics: Arc::new(Metrics::new(&mut Registry::default())),
            leaving: Arc::default(),
        };
        let config = GatewayConfig {
            listen: ([127, 0, 0, 1], 0).into(),
            max_header_bytes: MAX_HEADER_BYTES,
            max_body_bytes: MAX_BODY_BYTES,
            paths: PathRules::default(),
            routes: self.routes,
        };
        Gateway::new(&config, context).unwrap()
    }

    pub(super) async fn start(self) -> Running {
        let (bounds, grace) = (self.bounds, self.grace);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let gateway = Arc::new(self.gateway());
        let limiter = gateway.context.limiter.clone();
        let metrics = gateway.context.metrics.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        let ended = tokio::spawn(serve(listener, gateway, bounds, stopped, grace));
        Running { address, limiter, metrics, stop: Some(stop), ended }
    }
}

/// A gateway that serves until this is dropped.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    pub(super) limiter: Limiter<AnyStore>,
    pub(super) metrics: Arc<Metrics>,
    stop: Option<oneshot::Sender<()>>,
    ended: JoinHandle<()>,
}

impl Running {
    /// Tells it to stop.
    pub(super) fn stop(&mut self) {
        self.stop.take();
    }

    /// Waits until it has stopped.
    pub(super) async fn ended(self) {
        self.ended.await.unwrap();
    }

    pub(super) async fn h1(&self) -> conn::http1::SendRequest<TestBody> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (sender, connection) = conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        sender
    }

    pub(super) async fn h2(&self) -> conn::http2::SendRequest<TestBody> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let io = TokioIo::new(stream);
        let (sender, connection) = conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// One request on a connection of its own, with its answer read to the end.
    pub(super) async fn ask(&self, request: http::request::Builder) -> Got {
        let request = request.header("host", "gateway.test").body(empty()).unwrap();
        got(self.h1().await.send_request(request).await.unwrap()).await
    }

    pub(super) async fn get(&self, path: &str) -> Got {
        self.ask(Request::get(path)).await
    }

    /// Sends bytes, and reads until the gateway closes.
    pub(super) async fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        read_to_end(&mut stream).await
    }
}

/// Reads until the other end closes, however it does.
pub(super) async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads until these bytes have come.
pub(super) async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains(end) {
        let byte = stream.read_u8().await;
        let so_far = String::from_utf8_lossy(&answer);
        answer.push(byte.unwrap_or_else(|error| panic!("{error} after {so_far:?}")));
    }
    String::from_utf8(answer).unwrap()
}

/// An answer, whole.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
    pub(super) trailers: Option<HeaderMap>,
}

impl Got {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// That it is the gateway's own error, and says so in full.
    pub(super) fn assert_problem(&self, status: u16) {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(self.header("cache-control"), "no-store");
        assert_eq!(self.json()["status"], status);
    }
}

pub(super) async fn got(response: Response<Incoming>) -> Got {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().cloned();
    Got {
        status: parts.status,
        headers: parts.headers,
        body: String::from_utf8(body.to_bytes().to_vec()).unwrap(),
        trailers,
    }
}

type Answering = Pin<Box<dyn Future<Output = Response<TestBody>> + Send>>;

/// A server behind the gateway.
pub(super) struct Behind {
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<(Method, String, HeaderMap)>>>,
}

impl Behind {
    /// Answers as told.
    pub(super) async fn answering<F>(answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<TestBody>> + Send + 'static,
    {
        let answer: Arc<dyn Fn(Request<Incoming>) -> Answering + Send + Sync> =
            Arc::new(move |request| Box::pin(answer(request)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let behind = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            requests: Arc::default(),
        };
        let (connections, requests) = (behind.connections.clone(), behind.requests.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.fetch_add(1, Ordering::SeqCst);
                let (requests, answer) = (requests.clone(), answer.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    requests.lock().unwrap().push((
                        request.method().clone(),
                        request.uri().to_string(),
                        request.headers().clone(),
                    ));
                    let answering = answer(request);
                    async move { Ok::<_, Infallible>(answering.await) }
                });
                let serving = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(serving);
            }
        });
        behind
    }

    /// Reads the request, and answers 200 with its body.
    pub(super) async fn mirror() -> Self {
        Self::answering(|request| async {
            let body = request.into_body().collect().await;
            Response::new(full(body.map(http_body_util::Collected::to_bytes).unwrap_or_default()))
        })
        .await
    }

    /// As a route's upstream.
    pub(super) fn upstream(&self) -> Upstream {
        upstream(self.address)
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Method, target and headers of every request so far.
    pub(super) fn requests(&self) -> Vec<(Method, String, HeaderMap)> {
        self.requests.lock().unwrap().clone()
    }

    pub(super) fn last_headers(&self) -> HeaderMap {
        self.requests().last().unwrap().2.clone()
    }
}

pub(super) fn upstream(address: SocketAddr) -> Upstream {
    Upstream::Http(address.to_string().parse().unwrap())
}

/// An upstream that takes one connection, reads until `until` has come, writes these bytes, and closes.
pub(super) async fn behind_raw(until: &'static str, answer: &'static str) -> Upstream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = upstream(listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_until(&mut stream, until).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    upstream
}
