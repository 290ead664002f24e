//! A value that is loaded from files, and loaded again when they change. Until then the old value stays in use.
//!
//! The files are polled rather than watched, which works for a replaced file, a swapped symlink and a network folder
//! alike. They are small and are read at every poll, because a copied or restored file can have the size and the times
//! of the one before.

use std::fmt::Display;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// A value that is loaded from files.
pub struct WatchedFiles<T> {
    value: ArcSwap<T>,
    paths: Vec<PathBuf>,
    load: Load<T>,
    hashes: RandomState,
    loaded: Mutex<ContentHashes>,
    /// The last content that could not be loaded, so that each is logged only once.
    refused: Mutex<Option<ContentHashes>>,
}

type Load<T> = Box<dyn Fn(&[PathBuf]) -> Result<T, FileLoadError> + Send + Sync>;

/// The hashes of the files' contents. `None` for a file that is missing or not a regular file.
type ContentHashes = Vec<Option<u64>>;

/// Why a file could not be loaded.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct FileLoadError {
    path: String,
    why: String,
}

impl FileLoadError {
    /// An error about the file.
    pub fn new(path: &Path, why: impl Display) -> Self {
        Self { path: path.display().to_string(), why: format!("{why}") }
    }
}

impl<T> WatchedFiles<T> {
    /// Loads a value from these files by `load`.
    pub fn load(
        paths: Vec<PathBuf>,
        load: impl Fn(&[PathBuf]) -> Result<T, FileLoadError> + Send + Sync + 'static,
    ) -> Result<Self, FileLoadError> {
        let hashes = RandomState::new();
        let loaded = Mutex::new(content_hashes(&paths, &hashes));
        let value = ArcSwap::from_pointee(load(&paths)?);
        Ok(Self { value, paths, load: Box::new(load), hashes, loaded, refused: Mutex::default() })
    }

    /// The value that was last loaded.
    pub fn now(&self) -> Arc<T> {
        self.value.load_full()
    }

    /// Loads the files again if they have changed. If that fails the old value stays, and the next call tries again: a
    /// certificate and its key are rarely replaced at the same instant.
    pub fn refresh(&self) {
        let found = content_hashes(&self.paths, &self.hashes);
        if *self.loaded.lock() == found {
            return;
        }
        match (self.load)(&self.paths) {
            Ok(value) => {
                self.value.store(Arc::new(value));
                *self.loaded.lock() = found;
                tracing::info!(target: "spile::files", paths = ?self.paths, "files were read again");
            }
            Err(why) => {
                let known = self.refused.lock().replace(found.clone());
                if known != Some(found) {
                    tracing::warn!(target: "spile::files", "the file is not usable, the old content stays in use: {why}");
                }
            }
        }
    }
}

fn content_hashes(paths: &[PathBuf], hashes: &RandomState) -> ContentHashes {
    let one = |path: &PathBuf| {
        let content = fs::metadata(path).ok()?.is_file().then(|| fs::read(path))?.ok()?;
        Some(hashes.hash_one(content))
    };
    paths.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(path: PathBuf) -> WatchedFiles<String> {
        let read = |paths: &[PathBuf]| {
            let text = fs::read_to_string(&paths[0]).map_err(|why| FileLoadError::new(&paths[0], why))?;
            if text.is_empty() { Err(FileLoadError::new(&paths[0], "empty")) } else { Ok(text) }
        };
        WatchedFiles::load(vec![path], read).unwrap()
    }

    #[test]
    fn what_is_written_anew_is_read_anew_though_its_length_and_time_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "one").unwrap();
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        let watched = text_of(path.clone());
        fs::write(&path, "two").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
        watched.refresh();
        assert_eq!(*watched.now(), "two");
        fs::write(&path, "").unwrap();
        watched.refresh();
        assert_eq!(*watched.now(), "two", "a file of no use leaves everything as it is");
        fs::remove_file(&path).unwrap();
        watched.refresh();
        fs::write(&path, "six").unwrap();
        watched.refresh();
        assert_eq!(*watched.now(), "six");
    }
}
