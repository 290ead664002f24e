//! What is read from files and read again when they change, while everybody goes on using what was read before.
//!
//! Files are looked at rather than watched: that sees a replaced file, a swapped symlink and a network folder alike.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// Something that lives in files.
pub(crate) struct Watched<T> {
    value: ArcSwap<T>,
    paths: Vec<PathBuf>,
    load: Load<T>,
    stamp: Mutex<Stamp>,
    /// What was last found to be of no use: that is said once.
    refused: Mutex<Option<Stamp>>,
}

type Load<T> = Box<dyn Fn(&[PathBuf]) -> Result<T, LoadError> + Send + Sync>;

/// When files were written, and how long they are. Nothing for one that is not there.
type Stamp = Vec<Option<(SystemTime, u64)>>;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct LoadError {
    path: String,
    why: String,
}

impl LoadError {
    pub(crate) fn new(path: &Path, why: impl Display) -> Self {
        Self { path: path.display().to_string(), why: format!("{why}") }
    }
}

impl<T> Watched<T> {
    pub(crate) fn load(
        paths: Vec<PathBuf>,
        load: impl Fn(&[PathBuf]) -> Result<T, LoadError> + Send + Sync + 'static,
    ) -> Result<Self, LoadError> {
        let stamp = stamp(&paths);
        let value = ArcSwap::from_pointee(load(&paths)?);
        Ok(Self { value, paths, load: Box::new(load), stamp: Mutex::new(stamp), refused: Mutex::default() })
    }

    pub(crate) fn now(&self) -> Arc<T> {
        self.value.load_full()
    }

    /// Reads the files again where they have changed. Files that cannot be used leave everything as it is, and are
    /// tried again: a certificate and its key are rarely replaced in the same instant.
    pub(crate) fn refresh(&self) {
        let found = stamp(&self.paths);
        if *self.stamp.lock() == found {
            return;
        }
        match (self.load)(&self.paths) {
            Ok(value) => {
                self.value.store(Arc::new(value));
                *self.stamp.lock() = found;
                tracing::info!(target: "spile::files", paths = ?self.paths, "read again");
            }
            Err(why) => {
                let known = self.refused.lock().replace(found.clone());
                if known != Some(found) {
                    tracing::warn!(target: "spile::files", "what was read before stays in use: {why}");
                }
            }
        }
    }
}

fn stamp(paths: &[PathBuf]) -> Stamp {
    let one = |path: &PathBuf| {
        let about = std::fs::metadata(path).ok()?;
        Some((about.modified().ok()?, about.len()))
    };
    paths.iter().map(one).collect()
}
