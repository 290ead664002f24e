//! Runs the webhooks of the configuration, and follows its changes.

use std::sync::Arc;
use std::time::Duration;

use spile_observe::Watch;
use spile_observe::webhook::{ExportTask, Webhook};
use tokio::sync::watch;

use crate::config::Config;

/// How long the events of a removed webhook, or of a server that stops, may still be sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// The running webhooks.
#[derive(Default)]
pub(crate) struct WebhookTasks(Vec<(Webhook, ExportTask)>);

impl WebhookTasks {
    /// Runs the webhooks of the current configuration until the watch is closed, then sends what is queued.
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

    /// Starts new webhooks and ends removed ones. Unchanged ones keep their queues.
    fn keep<'a>(&mut self, wanted: impl Iterator<Item = &'a Webhook>, watch: &Watch) {
        let mut running = std::mem::take(&mut self.0);
        for webhook in wanted {
            let known = running.iter().position(|(known, _)| known == webhook);
            self.0.push(match known {
                Some(at) => running.swap_remove(at),
                None => (webhook.clone(), webhook.clone().start(watch)),
            });
        }
        for (_, task) in running {
            tokio::spawn(task.finish(PATIENCE));
        }
    }

    async fn finish(self) {
        let finishing: Vec<_> =
            self.0.into_iter().map(|(_, task)| tokio::spawn(task.finish(PATIENCE))).collect();
        for finished in finishing {
            // A task that panicked has nothing left to send.
            let _finished = finished.await;
        }
    }
}
