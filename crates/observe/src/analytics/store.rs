//! A store in which all instances add up their minutes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::minutes::MinuteRow;
use super::packed::PackedMinutes;
use crate::watch::Watch;

/// The future that the methods of a [`MinuteStore`] return.
pub type MinuteStoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, MinuteStoreError>> + Send + 'a>>;

/// The most rows of one batch, so that adding it blocks the store only briefly.
const MOST_ROWS: usize = 500;

/// Why a minute store could not be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MinuteStoreError(pub String);

impl std::fmt::Display for MinuteStoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "minutes cannot be summed: {}", self.0)
    }
}

impl std::error::Error for MinuteStoreError {}

/// Rows that are added together. When adding fails, the same batch is sent again with the same number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MinuteBatch {
    /// Numbers the batches of one instance, from one.
    pub number: u64,
    /// The counts to add.
    pub rows: Vec<MinuteRow>,
}

/// Adds up the minutes of all instances. It must remove minutes that are older than a day.
pub trait MinuteStore: Send + Sync + 'static {
    /// Adds a batch to the sums. After an error the same batch is sent again until it is accepted. A batch that was
    /// added although its answer was lost must not count twice.
    fn add<'a>(&'a self, batch: &'a MinuteBatch) -> MinuteStoreFuture<'a, ()>;

    /// The sums of the minutes that began in `from..to` seconds since the epoch.
    fn rows(&self, from: u64, to: u64) -> MinuteStoreFuture<'_, Vec<MinuteRow>>;

    /// Updates `day` to the minutes that began in `from..to`. `day` may still hold minutes of the last call; a store
    /// that knows which of them have changed reads only those. After an error `day` may be partly updated.
    fn update<'a>(&'a self, day: &'a mut PackedMinutes, from: u64, to: u64) -> MinuteStoreFuture<'a, ()> {
        Box::pin(async move {
            day.retain(0, 0);
            let rows = self.rows(from, to).await?;
            for minute in rows.chunk_by(|one, next| one.minute == next.minute) {
                let counts_by_name = minute.iter().map(|row| (row.by, row.name.as_str(), row.counts));
                day.put(minute[0].minute, 0, counts_by_name);
            }
            Ok(())
        })
    }
}

/// Adds the counts of a watch to a shared store, at this interval, until the watch is closed. Counts that cannot be
/// added are kept and added later, up to a day of them.
pub async fn share_minutes(watch: Watch, store: Arc<dyn MinuteStore>, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut closed = watch.closed();
    // The batch that is being added. It is replaced only after it was accepted.
    let mut batch = MinuteBatch { number: 0, rows: Vec::new() };
    loop {
        let last = tokio::select! {
            _ = ticks.tick() => false,
            _ = closed.wait_for(|closed| *closed) => true,
        };
        while add_next(&watch, &*store, &mut batch).await {}
        if last {
            return;
        }
    }
}

/// Adds the batch, or the next one if it was accepted before. False if there is nothing to add or the store failed.
async fn add_next(watch: &Watch, store: &dyn MinuteStore, batch: &mut MinuteBatch) -> bool {
    if batch.rows.is_empty() {
        let rows = watch.take_unshared(MOST_ROWS);
        if rows.is_empty() {
            return false;
        }
        *batch = MinuteBatch { number: batch.number + 1, rows };
    }
    let added = store.add(batch).await.is_ok();
    if added {
        batch.rows.clear();
    }
    added
}
