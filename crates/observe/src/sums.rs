//! Minutes summed over all instances, wherever they can meet.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::minutes::MinuteRow;
use crate::watch::Watch;

/// An answer that comes later, or why it does not.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, SumsError>> + Send + 'a>>;

/// Why a place where instances meet could not be used. Nothing was added.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SumsError(pub String);

impl std::fmt::Display for SumsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "minutes cannot be summed: {}", self.0)
    }
}

impl std::error::Error for SumsError {}

/// Where the minutes of all instances are added up. Must forget minutes that are older than a day.
pub trait MinuteSums: Send + Sync + 'static {
    /// Adds to the sums. An error means that nothing was added: the rows will be brought again.
    fn add(&self, rows: Vec<MinuteRow>) -> Answer<'_, ()>;

    /// The sums of the minutes that began in `from..to` seconds since the epoch.
    fn rows(&self, from: u64, to: u64) -> Answer<'_, Vec<MinuteRow>>;
}

/// Brings what a watch has counted to where instances meet, every so often, until the watch is closed. What cannot be
/// brought is kept and brought later, up to a day of it.
pub async fn share(watch: Watch, sums: Arc<dyn MinuteSums>, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut closed = watch.closed();
    loop {
        let last = tokio::select! {
            _ = ticks.tick() => false,
            _ = closed.wait_for(|closed| *closed) => true,
        };
        let rows = watch.take_unshared();
        if !rows.is_empty() && sums.add(rows.clone()).await.is_err() {
            watch.put_back_unshared(rows);
        }
        if last {
            return;
        }
    }
}
