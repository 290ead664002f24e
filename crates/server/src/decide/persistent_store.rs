//! The embedded store with a file: restored at the start, saved at intervals and at the end.

use std::sync::Arc;

use anyhow::Context;
use spile_core::Clock;
use spile_memory::{AutoSave, FileError, MemoryStore, MemoryStoreBuilder, RestoreError, Saved, SnapshotFile};

use crate::config::{Embedded, StoreConfig, StoreUrl};
use crate::observe::metrics::{SaveMetrics, Telemetry};

/// A restored store, and the keeper that saves it until it is dropped.
pub(crate) struct PersistentStore {
    pub(crate) store: Embedded,
    pub(crate) keeper: AutoSave,
}

impl PersistentStore {
    /// Restores the store and starts to save it. `None` if the configuration names no file.
    pub(crate) fn open(
        config: &StoreConfig,
        clock: &Arc<dyn Clock>,
        telemetry: &Telemetry,
    ) -> anyhow::Result<Option<Self>> {
        let Some(path) = &config.path else { return Ok(None) };
        if config.url != StoreUrl::Memory {
            tracing::warn!("store.path is not used: buckets live in {}", config.url);
            return Ok(None);
        }
        let mut file = SnapshotFile::open(path)?;
        let store = Arc::new(restore(&file, || config.embedded(Arc::clone(clock)))?);
        let buckets = store.usage().keys;
        // A file that cannot be written fails the start, not the first save after it.
        let saved = file.save(&store)?;
        tracing::info!(target: "spile::store", buckets, path = %path.display(), "buckets restored");
        let mut log = SaveLog { metrics: SaveMetrics::new(telemetry, clock), failing: false };
        log.told(Ok(saved));
        let keeper =
            AutoSave::start(Arc::clone(&store), file, config.save_every, move |saved| log.told(saved));
        Ok(Some(Self { store, keeper: keeper.context("no thread to save the buckets on")? }))
    }
}

/// The store that was saved, or an empty one if the file is damaged: limits that start afresh are better than none.
fn restore(
    file: &SnapshotFile,
    builder: impl Fn() -> MemoryStoreBuilder<Arc<dyn Clock>>,
) -> Result<MemoryStore<Arc<dyn Clock>>, FileError> {
    match file.restore(builder()) {
        // A file that is not a snapshot was named by mistake and must not be moved.
        Err(FileError::Unrestorable(path, why))
            if !matches!(why, RestoreError::Foreign | RestoreError::Unreadable(_)) =>
        {
            let aside = file.set_aside()?;
            tracing::error!(
                target: "spile::store",
                "the buckets in {} cannot be restored: {why}. EVERY BUCKET STARTS FULL. The file is kept as {}",
                path.display(),
                aside.display()
            );
            Ok(builder().build())
        }
        restored => restored,
    }
}

/// Counts every save, and logs when saves start to fail and when they work again.
struct SaveLog {
    metrics: SaveMetrics,
    failing: bool,
}

impl SaveLog {
    fn told(&mut self, saved: Result<Saved, FileError>) {
        let was_failing = std::mem::replace(&mut self.failing, saved.is_err());
        match saved {
            Ok(Saved { buckets, .. }) => {
                self.metrics.saved(buckets);
                if was_failing {
                    tracing::info!(target: "spile::store", buckets, "buckets are saved again");
                }
            }
            Err(why) => {
                self.metrics.failed();
                if !was_failing {
                    tracing::error!(target: "spile::store", "buckets are not saved, and a restart will lose them: {why}");
                }
            }
        }
    }
}
