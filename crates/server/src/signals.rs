//! Told to stop: once in order, twice at once.

use tokio::signal::unix::{SignalKind, signal};

/// Ready at the first SIGTERM or SIGINT. The second one ends the process at once, so that nobody has to
/// wait for a request that hangs.
///
/// A process that can't listen for signals is ended by them, as any is by default.
pub(crate) async fn shutdown() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
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
