//! A webhook at work.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A webhook that tells of events as they happen. It ends with its watch, or when it is told to; dropping this changes
/// nothing.
#[derive(Debug)]
pub struct Telling {
    pub(super) stop: watch::Sender<bool>,
    pub(super) task: JoinHandle<()>,
}

impl Telling {
    /// Hears of nothing new. Events that wait still go out, for as long as `patience` lasts.
    pub async fn finish(mut self, patience: Duration) {
        self.stop.send_replace(true);
        if tokio::time::timeout(patience, &mut self.task).await.is_err() {
            self.task.abort();
            // Once it has ended, what is dropped has been counted.
            let _ended = self.task.await;
        }
    }
}
