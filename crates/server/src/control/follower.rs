//! Follows the changes of other instances: by their messages, and by polling, because messages may be lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Control;

/// The polling interval. A lost message delays a change by at most this.
const LOOK: Duration = Duration::from_millis(500);

/// Follows for as long as it is polled. Returns at once if the registry is this instance's own.
pub(crate) async fn follow(control: Arc<Control>) {
    let Some(subscription) = control.subscribe().await else { return };
    let mut deaf = false;
    loop {
        // The registry is read after a message and after the interval alike.
        let _heard = timeout(LOOK, subscription.notified()).await;
        control.catch_up().await;
        let why = subscription.trouble().filter(|_| control.standing().trouble().is_none());
        if let (Some(why), false) = (&why, deaf) {
            tracing::warn!(
                target: "spile::registry",
                "changes of other instances are only found by looking, every {LOOK:?}: {why}"
            );
        }
        deaf = why.is_some();
    }
}
