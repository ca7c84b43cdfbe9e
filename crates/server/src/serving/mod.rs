//! Serving HTTP on a port: accepting, keeping slow and silent clients within bounds, and ending in order.
//!
//! What a request means is not decided here: every request goes to one [`Handle`]. HTTP/1.1 and HTTP/2 (with
//! prior knowledge) share the port; the connection's first bytes tell which it is.
//!
//! # Bounds
//! | what | bound | beyond it |
//! |---|---|---|
//! | connections | [`CONNECTIONS_MAX`] | wait in the kernel's backlog |
//! | request line and headers | [`Bounds::head_bytes`] | 431: see [`HEAD_SLACK_BYTES`] |
//! | time for a request's head | [`Bounds::head_time`] | closed |
//! | silence between requests | [`Bounds::idle_time`] | closed |
//! | HTTP/2 streams of a connection | [`STREAMS_MAX`] | refused, the client retries |
//! | HTTP/2 peers that vanished | [`PING_INTERVAL`], [`PING_TIMEOUT`] | closed |
//!
//! How long a client takes to *read* an answer is not bounded: the answer waits in the kernel's buffers and in
//! the upstream, and takes no memory here but one buffer.
//!
//! # Ending
//! When told to stop, the port is closed first, so that a balancer goes elsewhere. Connections without a
//! request are closed at once, HTTP/2 clients get GOAWAY, and what is being answered is answered in full;
//! what has not ended after the grace is cut.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

mod activity;
mod lent;
#[cfg(test)]
mod tests;

pub(crate) use activity::Activity;

use activity::{Busy, Due};
use lent::Lent;

/// Connections that one port serves at a time; more wait. Each takes a descriptor, and one more while its
/// request is with an upstream: usually the limit on open files comes first, and this is for where it is high.
const CONNECTIONS_MAX: usize = 10_000;

/// Requests of one HTTP/2 connection that are worked on at a time: what browsers and gRPC clients reckon
/// with (RFC 9113 asks for at least 100), and a bound on what one connection can ask for.
const STREAMS_MAX: u32 = 200;

/// The parser takes heads a little larger than allowed, so that the handler answers most of those that are
/// too large in its own words. Beyond this the parser answers by itself: a bare 431.
const HEAD_SLACK_BYTES: usize = 8 * 1024;

/// How often an HTTP/2 client is asked whether it is still there: TCP alone would not tell for hours.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// How long an HTTP/2 client may take to say so.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// After a failed `accept` (no descriptors left, most likely) the port rests this long: trying again at once
/// would only burn the processor that could finish requests and so free descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// A connection that was told to end in order and is still there after this long is cut.
const FAREWELL_TIME: Duration = Duration::from_secs(1);

/// How long a socket is read to its end after an answer that did not wait for the whole request: closing it
/// with unread bytes would reset the connection, and take the answer from a client that is still sending.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// What a client may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Request line and headers together.
    pub(crate) head_bytes: usize,
    /// From the connection, or from the first byte of a later request, until its head is complete. May take
    /// up to twice as long.
    pub(crate) head_time: Duration,
    /// From the end of a request until the first byte of the next.
    pub(crate) idle_time: Duration,
}

impl Bounds {
    /// The bounds in time, with this bound on heads.
    ///
    /// Idle connections are kept for 75 s: longer than the balancers in front (60 s is common), so that it
    /// is they who close, and no request crosses a closing connection.
    pub(crate) const fn new(head_bytes: usize) -> Self {
        Self { head_bytes, head_time: Duration::from_secs(30), idle_time: Duration::from_secs(75) }
    }
}

/// Answers the requests of a port.
pub(crate) trait Handle: Send + Sync + 'static {
    /// The body of its answers.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static;

    /// Answers one request. The future is dropped when the client goes away.
    fn handle(
        &self,
        request: Request<Incoming>,
        connection: &Connection,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// Any error, as bodies report them.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a handler knows about the connection of a request. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// The other end of the socket; `None` where it has no address.
    pub(crate) peer: Option<IpAddr>,
    pub(crate) activity: Arc<Activity>,
}

/// Serves a port until `shutdown` is ready, then for at most `grace` what is still being answered.
pub(crate) async fn serve<H: Handle>(
    listener: TcpListener,
    handler: Arc<H>,
    bounds: Bounds,
    shutdown: impl Future<Output = ()>,
    grace: Duration,
) {
    let mut shutdown = pin!(shutdown);
    let mut door = Door { listener, failing: false };
    let server = Arc::new(Server { handler, bounds, protocols: protocols(bounds.head_bytes) });
    let (closing, closed) = watch::channel(false);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_ended) = connections.join_next() => {}
            (stream, peer) = door.accept(), if connections.len() < CONNECTIONS_MAX => {
                let (server, closed) = (server.clone(), closed.clone());
                connections.spawn(async move { server.attend_tcp(stream, peer, closed).await });
            }
        }
    }
    drop(door);
    closing.send_replace(true);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(grace, ended).await.is_err() {
        let count = connections.len();
        tracing::warn!(
            count,
            grace_secs = grace.as_secs(),
            "connections cut: they did not end within the grace"
        );
        connections.shutdown().await;
    }
}

/// The listening side.
struct Door {
    listener: TcpListener,
    /// The last `accept` failed: said once, not every time.
    failing: bool,
}

impl Door {
    /// The next connection. Never gives up: what `accept` reports is about one connection, or about a lack
    /// that passes.
    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok(accepted) => {
                    self.failing = false;
                    return accepted;
                }
                Err(error) if is_about_one_connection(&error) => {}
                Err(error) => {
                    if !self.failing {
                        tracing::error!(%error, "no connections can be accepted: raise the limit on open files");
                        self.failing = true;
                    }
                    sleep(ACCEPT_REST).await;
                }
            }
        }
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// What the connections of a port share.
struct Server<H> {
    handler: Arc<H>,
    bounds: Bounds,
    protocols: auto::Builder<TokioExecutor>,
}

fn protocols(head_bytes: usize) -> auto::Builder<TokioExecutor> {
    let head_bytes = head_bytes.saturating_add(HEAD_SLACK_BYTES);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // The activity of the connection is watched here, for both protocols.
        .header_read_timeout(None)
        .max_buf_size(head_bytes);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(head_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

impl<H: Handle> Server<H> {
    async fn attend_tcp(&self, stream: TcpStream, peer: SocketAddr, closed: watch::Receiver<bool>) {
        // Answers are written whole: waiting to fill a packet would only add up to 40 ms.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY not set");
        }
        let peer = peer.ip().to_canonical();
        let Some((stream, activity)) = self.attend(stream, Some(peer), closed).await else {
            return;
        };
        if activity.left_unread() {
            // Nothing is lost if the client does not end: the answer was sent.
            let _ = timeout(LINGER_TIME, read_to_end(&stream)).await;
        }
    }

    /// Serves one connection to its end, and gives the socket back.
    async fn attend<I>(
        &self,
        stream: I,
        peer: Option<IpAddr>,
        mut closed: watch::Receiver<bool>,
    ) -> Option<(I, Arc<Activity>)>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = Arc::new(Activity::new(Instant::now()));
        let (give_back, mut given_back) = oneshot::channel();
        let stream = Lent::new(stream, activity.clone(), give_back);
        let connection = Connection { peer, activity: activity.clone() };
        let service = service_fn(|request| {
            let (handler, connection) = (self.handler.clone(), connection.clone());
            let busy = Busy::begin(&activity);
            async move {
                let response = handler.handle(request, &connection).await;
                Ok::<_, Infallible>(response.map(|body| busy.until_end_of(body)))
            }
        });
        {
            let mut conn = pin!(self.protocols.serve_connection(TokioIo::new(stream), service));
            let mut farewell = pin!(sleep_until(activity.check_at(&self.bounds)));
            let mut is_ending = false;
            loop {
                tokio::select! {
                    result = conn.as_mut() => {
                        if let Err(error) = result {
                            tracing::debug!(%error, "connection ended");
                        }
                        break;
                    }
                    Ok(_) = closed.wait_for(|closed| *closed), if !is_ending => {
                        is_ending = true;
                        conn.as_mut().graceful_shutdown();
                    }
                    () = farewell.as_mut() => match activity.due(&self.bounds, Instant::now()) {
                        Due::Later(at) => farewell.as_mut().reset(at),
                        Due::Now if is_ending => break,
                        Due::Now => {
                            is_ending = true;
                            conn.as_mut().graceful_shutdown();
                            farewell.as_mut().reset(Instant::now() + FAREWELL_TIME);
                        }
                    },
                }
            }
        }
        let stream = given_back.try_recv().ok()?;
        Some((stream, activity))
    }
}

/// Reads and forgets what the client still sends, until it is done.
async fn read_to_end(stream: &TcpStream) {
    let mut scratch = [0; 4096];
    while stream.readable().await.is_ok() {
        match stream.try_read(&mut scratch) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
