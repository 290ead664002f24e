//! Reloads the configuration on request or when the file changes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::admin::audit::{Audit, Initiator};
use crate::config::Stamp;
use crate::control::Control;

/// How often the file is checked. Polling also sees changes without a notification: files on a
/// network, and the symlinks that Kubernetes swaps.
const LOOK: Duration = Duration::from_millis(500);

/// Returns the stream of SIGHUP signals. The handler is installed before this returns, so that no signal ends the process.
pub(crate) fn hangup() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// Reloads for as long as it is polled.
pub(crate) async fn follow(control: Arc<Control>, mut hangup: Signal) {
    let config = control.config();
    let path = config.path();
    let mut seen = config.stamp();
    let mut now = seen;
    let mut tick = tokio::time::interval(LOOK);
    loop {
        let told = tokio::select! {
            _ = hangup.recv() => Some(Initiator::Hangup),
            _ = tick.tick() => None,
        };
        let before = std::mem::replace(&mut now, path.and_then(Stamp::of));
        // A file that is missing, or that differs between two checks, is still being written: half of it might be a valid configuration,
        // too.
        let changed = now.is_some() && now == before && now != seen;
        if let Some(by) = told.or(changed.then_some(Initiator::File)) {
            seen = now.or(seen);
            let audit = Audit::reload(by);
            // The callee logs and counts the reason for a refusal.
            let refused = control.reload().await.is_err();
            audit.ended(if refused { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK });
        }
    }
}
