//! Told to stop: once in order, twice at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens from now on, and is ready at the first SIGTERM or SIGINT. The second one ends the process at once,
/// so that nobody has to wait for a request that hangs. Call it before the first port is bound: until then a
/// signal just ends the process, and from then on it must not.
///
/// A process that can't listen for signals is ended by them, as any is by default.
pub(crate) fn shutdown() -> impl Future<Output = ()> {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async move {
        match signals {
            (Ok(terminate), Ok(interrupt)) => told(terminate, interrupt).await,
            _ => std::future::pending().await,
        }
    }
}

async fn told(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("interrupted: stopping"),
    }
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::warn!("told to stop twice: ending at once");
        std::process::exit(1);
    });
}
