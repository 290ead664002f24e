//! Sends items from a bounded queue in batches: the part that webhooks and traces share.

use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Delivers batches, and counts the outcome of their items.
pub(super) trait Delivery {
    type Item;

    /// Delivers a batch, and counts its items as delivered or as lost.
    fn deliver(&self, batch: &[Self::Item]) -> impl Future<Output = ()> + Send;

    /// Counts and logs items that were not delivered before the sender was stopped.
    fn abandon(&self, items: usize);
}

/// Takes items from a queue and delivers them in batches. Items that are left when this is dropped are abandoned.
pub(super) struct BatchSender<D: Delivery> {
    delivery: D,
    queue: mpsc::Receiver<D::Item>,
    /// The most items of one batch.
    max_items: usize,
    /// How long an item waits for others to share its batch.
    max_wait: Duration,
    /// Items of the batch that is being filled or delivered.
    in_flight: usize,
}

impl<D: Delivery> BatchSender<D> {
    pub(super) const fn new(
        delivery: D,
        queue: mpsc::Receiver<D::Item>,
        max_items: usize,
        max_wait: Duration,
    ) -> Self {
        Self { delivery, queue, max_items, max_wait, in_flight: 0 }
    }

    /// Delivers until the queue is closed and empty. The queue is closed when its last sender is dropped, or when
    /// `stop` resolves.
    pub(super) async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        while let Some(first) = self.next(stop.as_mut()).await {
            let (mut batch, max_wait) = (vec![first], self.max_wait);
            self.in_flight = 1;
            let fill = async {
                while batch.len() < self.max_items {
                    let Some(item) = self.next(stop.as_mut()).await else { return };
                    batch.push(item);
                    self.in_flight = batch.len();
                }
            };
            // A batch that is not full in time is sent as it is.
            let _full_in_time = timeout(max_wait, fill).await;
            self.delivery.deliver(&batch).await;
            self.in_flight = 0;
        }
    }

    async fn next(&mut self, stop: Pin<&mut impl Future<Output = ()>>) -> Option<D::Item> {
        if !self.queue.is_closed() {
            tokio::select! {
                item = self.queue.recv() => return item,
                () = stop => self.queue.close(),
            }
        }
        self.queue.recv().await
    }
}

impl<D: Delivery> Drop for BatchSender<D> {
    fn drop(&mut self) {
        let left = self.in_flight + self.queue.len();
        if left > 0 {
            self.delivery.abandon(left);
        }
    }
}

/// An export that runs in the background. Dropping this does not stop it.
#[derive(Debug)]
pub struct ExportTask {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl ExportTask {
    /// Spawns the export, which ends when the given receiver becomes true.
    pub(super) fn spawn<F>(export: impl FnOnce(watch::Receiver<bool>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(export(stopped)) }
    }

    /// Accepts no new items. Waiting items are still delivered within `patience`; the rest are counted as lost.
    pub async fn finish(mut self, patience: Duration) {
        self.stop.send_replace(true);
        if timeout(patience, &mut self.task).await.is_err() {
            self.task.abort();
            // When the task has ended, its lost items are counted.
            let _ended = self.task.await;
        }
    }
}

/// Resolves when the export is asked to stop. Never resolves if its [`ExportTask`] was dropped.
pub(super) async fn stopped(mut stop: watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}
