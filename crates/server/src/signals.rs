//! When to stop: the signals that a terminal, systemd and Kubernetes send.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Resolves on the first SIGINT or SIGTERM. The handlers are in place once this returns, not only once it is
/// polled, so that no signal slips through while the server starts.
pub(crate) fn termination() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
