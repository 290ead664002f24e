//! The webhooks that are at work, kept in step with the configuration.

use std::sync::Arc;
use std::time::Duration;

use spile_observe::Watch;
use spile_observe::webhook::{Telling, Webhook};
use tokio::sync::watch;

use crate::config::Config;

/// How long events of a webhook that is gone, or of a server that stops, may still be sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// The webhooks that are at work.
#[derive(Default)]
pub(crate) struct Hooks(Vec<(Webhook, Telling)>);

impl Hooks {
    /// Tells as the configuration says until the watch is closed, then sends what waits.
    pub(crate) async fn follow(mut configs: watch::Receiver<Arc<Config>>, watch: Watch) {
        let (mut hooks, mut closed) = (Self::default(), watch.closed());
        loop {
            let config = Arc::clone(&configs.borrow_and_update());
            hooks.keep(config.observe.webhooks.iter().map(|hook| &hook.webhook), &watch);
            let changed = tokio::select! {
                changed = configs.changed() => changed.is_ok(),
                _ = closed.wait_for(|closed| *closed) => false,
            };
            if !changed {
                return hooks.finish().await;
            }
        }
    }

    /// Starts those that are new and ends those that are gone. The rest go on with what they were about to send.
    fn keep<'a>(&mut self, wanted: impl Iterator<Item = &'a Webhook>, watch: &Watch) {
        let mut standing = std::mem::take(&mut self.0);
        for webhook in wanted {
            let known = standing.iter().position(|(known, _)| known == webhook);
            self.0.push(match known {
                Some(at) => standing.swap_remove(at),
                None => (webhook.clone(), webhook.clone().start(watch)),
            });
        }
        for (_, telling) in standing {
            tokio::spawn(telling.finish(PATIENCE));
        }
    }

    async fn finish(self) {
        let telling: Vec<_> =
            self.0.into_iter().map(|(_, telling)| tokio::spawn(telling.finish(PATIENCE))).collect();
        for finished in telling {
            // One that panicked has nothing left to send.
            let _finished = finished.await;
        }
    }
}
