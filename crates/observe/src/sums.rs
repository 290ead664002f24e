//! Minutes summed over all instances, wherever they can meet.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::minutes::MinuteRow;
use crate::packed::PackedMinutes;
use crate::watch::Watch;

/// An answer that comes later, or why it does not.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, SumsError>> + Send + 'a>>;

/// The most rows that are brought at once, so that nobody is held up for long.
const MOST_ROWS: usize = 500;

/// Why a place where instances meet could not be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SumsError(pub String);

impl std::fmt::Display for SumsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "minutes cannot be summed: {}", self.0)
    }
}

impl std::error::Error for SumsError {}

/// Rows that are brought together. A batch that is brought again is the same batch, with the same number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Batch {
    /// Counts the batches of one instance, from one.
    pub number: u64,
    /// What is to be added.
    pub rows: Vec<MinuteRow>,
}

/// Where the minutes of all instances are added up. Must forget minutes that are older than a day.
pub trait MinuteSums: Send + Sync + 'static {
    /// Adds a batch to the sums. After an error the same batch will be brought again, until it is taken: one that was
    /// added, though the answer was lost, must not count twice.
    fn add<'a>(&'a self, batch: &'a Batch) -> Answer<'a, ()>;

    /// The sums of the minutes that began in `from..to` seconds since the epoch.
    fn rows(&self, from: u64, to: u64) -> Answer<'_, Vec<MinuteRow>>;

    /// Makes `day` the minutes that began in `from..to`. It may hold most of them already, as this has left them: a place
    /// that knows which have changed since then reads those alone. An error leaves it somewhere in between.
    fn bring_up_to_date<'a>(&'a self, day: &'a mut PackedMinutes, from: u64, to: u64) -> Answer<'a, ()> {
        Box::pin(async move {
            day.keep(0, 0);
            let rows = self.rows(from, to).await?;
            for minute in rows.chunk_by(|one, next| one.minute == next.minute) {
                let tallies = minute.iter().map(|row| (row.by, row.name.as_str(), row.tally));
                day.put(minute[0].minute, 0, tallies);
            }
            Ok(())
        })
    }
}

/// Brings what a watch has counted to where instances meet, every so often, until the watch is closed. What cannot be
/// brought is kept and brought later, up to a day of it.
pub async fn share(watch: Watch, sums: Arc<dyn MinuteSums>, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut closed = watch.closed();
    let mut bringing = Bringing { watch, sums, batch: Batch { number: 0, rows: Vec::new() } };
    loop {
        let last = tokio::select! {
            _ = ticks.tick() => false,
            _ = closed.wait_for(|closed| *closed) => true,
        };
        while bringing.bring().await == Brought::Some {}
        if last {
            return;
        }
    }
}

/// The batch that is under way. Nothing else is taken until it has arrived.
struct Bringing {
    watch: Watch,
    sums: Arc<dyn MinuteSums>,
    batch: Batch,
}

#[derive(PartialEq)]
enum Brought {
    Some,
    /// There is nothing to bring, or nobody takes it.
    Nothing,
}

impl Bringing {
    async fn bring(&mut self) -> Brought {
        if self.batch.rows.is_empty() {
            let rows = self.watch.take_unshared(MOST_ROWS);
            if rows.is_empty() {
                return Brought::Nothing;
            }
            self.batch = Batch { number: self.batch.number + 1, rows };
        }
        if self.sums.add(&self.batch).await.is_err() {
            return Brought::Nothing;
        }
        self.batch.rows.clear();
        Brought::Some
    }
}
