//! A running server: binds the ports of a configuration, serves them, and ends them in order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prometheus_client::registry::Registry;
use slidegate::Limiter;
use slidegate::core::time::Millis;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::config::{Config, ShutdownConfig};
use crate::context::Context;
use crate::doors::DoorHandler;
use crate::gateway::{Gateway, RouteError};
use crate::metrics::Metrics;
use crate::serving::{self, Bounds};
use crate::store::{self, AnyStore, LimiterError};
use crate::{admin, api};

/// How long the end may take that it needs from a shared store: giving leases back, and taking leave. Two
/// round trips, unless the store is away.
const STORE_FAREWELL: Millis = Millis(1000);

/// How often expired counters are given back. Keys live for windows of seconds to days: more often would
/// find little, less often would hold memory that traffic peaks left behind.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// How long a start waits for a shared store. A connection takes milliseconds, over TLS and an ocean a few
/// hundred; whoever waits longer waits for a store that is away.
const STORE_PATIENCE: Millis = Millis(1000);

/// Request line and headers on the API and admin ports, which no browser visits with a jar of cookies.
const DOOR_HEAD_BYTES: usize = 16 * 1024;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// A port can't be had.
    #[error("{what}: can't listen on {address}: {error}")]
    Listen { what: &'static str, address: SocketAddr, error: io::Error },
    /// No threads to run on.
    #[error("can't start threads: {0}")]
    Runtime(io::Error),
    /// A route that can't be read.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// A store that can't work, or policies whose names meet.
    #[error(transparent)]
    Limiter(#[from] LimiterError),
}

/// A server whose ports are bound and which is ready to serve.
pub(crate) struct App {
    limiter: Limiter<AnyStore>,
    gateway: Option<(TcpListener, Arc<Gateway>)>,
    api: Option<(TcpListener, Arc<DoorHandler>)>,
    admin: Option<(TcpListener, Arc<DoorHandler>)>,
    addresses: Vec<(&'static str, SocketAddr)>,
    shutdown: ShutdownConfig,
    leaving: Arc<AtomicBool>,
}

impl App {
    /// Builds the limiter and binds every port: either all of it works, or nothing is served.
    pub(crate) async fn bind(config: Config) -> Result<Self, StartError> {
        let limiter = store::limiter(config.policies, &config.store)?;
        let mut registry = Registry::with_prefix("slidegate");
        let context = Context {
            limiter: limiter.clone(),
            client_ip: Arc::new(config.client_ip),
            answers: config.answers,
            metrics: Arc::new(Metrics::new(&mut registry)),
            leaving: Arc::default(),
        };
        let (shutdown, leaving) = (config.shutdown, context.leaving.clone());
        let addresses = Vec::new();
        let mut app = Self { limiter, gateway: None, api: None, admin: None, addresses, shutdown, leaving };
        if let Some(config) = &config.gateway {
            let gateway = Arc::new(Gateway::new(config, context.clone())?);
            app.gateway = Some((app.listen("gateway", config.listen).await?, gateway));
        }
        if let Some(door) = &config.api {
            app.api = Some((
                app.listen("api", door.listen).await?,
                DoorHandler::of(api::router(context.clone(), door)),
            ));
        }
        if let Some(door) = &config.admin {
            app.admin = Some((
                app.listen("admin", door.listen).await?,
                DoorHandler::of(admin::router(context, registry, door)),
            ));
        }
        app.await_store().await;
        Ok(app)
    }

    /// Gives a store that is there the time to be connected to, so that a start or a restart turns nobody away.
    /// What connects meanwhile waits in the kernel: the ports are open.
    async fn await_store(&self) {
        if !self.limiter.store().connected(STORE_PATIENCE).await {
            tracing::warn!("the store can't be reached yet: policies say what is answered");
        }
    }

    async fn listen(&mut self, what: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
        let failed = |error| StartError::Listen { what, address, error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        self.addresses.push((what, listener.local_addr().map_err(failed)?));
        Ok(listener)
    }

    /// What is served where.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        self.addresses.iter().copied()
    }

    /// Serves every port until `shutdown`, and for the configured delay after it, in which `/readyz` says that it is not
    /// ready. Then lets running requests finish, and takes leave of a shared store.
    pub(crate) async fn run(self, shutdown: impl Future<Output = ()>) {
        let (stop, stopped) = watch::channel(false);
        let told = || {
            let mut stopped = stopped.clone();
            async move {
                // An error means that the sender is gone: stop as well.
                let _ = stopped.wait_for(|stop| *stop).await;
            }
        };
        let grace = Duration::from(self.shutdown.grace);
        let mut doors = JoinSet::new();
        if let Some((listener, gateway)) = self.gateway {
            let bounds = gateway.bounds();
            doors.spawn(serving::serve(listener, gateway, bounds, told(), grace));
        }
        for (listener, router) in [self.api, self.admin].into_iter().flatten() {
            doors.spawn(serving::serve(listener, router, Bounds::new(DOOR_HEAD_BYTES), told(), grace));
        }
        let sweeper = tokio::spawn(sweep(self.limiter.clone()));
        shutdown.await;
        self.leaving.store(true, Ordering::Relaxed);
        sleep(self.shutdown.delay.into()).await;
        let _ = stop.send(true);
        while doors.join_next().await.is_some() {}
        sweeper.abort();
        // No request is left that could spend anything.
        if !self.limiter.store().close(STORE_FAREWELL).await {
            tracing::warn!("the store did not take back what was leased: it ends with its window");
        }
    }
}

/// Gives the memory of expired counters back, off the request path.
async fn sweep(limiter: Limiter<AnyStore>) {
    let mut ticks = interval(SWEEP_INTERVAL);
    loop {
        ticks.tick().await;
        let limiter = limiter.clone();
        let dropped = tokio::task::spawn_blocking(move || limiter.store().sweep()).await;
        if let Ok(dropped @ 1..) = dropped {
            tracing::debug!(dropped, "expired counters given back");
        }
    }
}
