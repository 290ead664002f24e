//! What is read from files and read again when they change, while everybody goes on using what was read before.
//!
//! Files are looked at rather than watched: that sees a replaced file, a swapped symlink and a network folder alike. They
//! are small, and read at every look: a copied or restored file can have the length and the times of the one before.

use std::fmt::Display;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// Something that lives in files.
pub struct Watched<T> {
    value: ArcSwap<T>,
    paths: Vec<PathBuf>,
    load: Load<T>,
    hashes: RandomState,
    stamp: Mutex<Stamp>,
    /// What was last found to be of no use: that is said once.
    refused: Mutex<Option<Stamp>>,
}

type Load<T> = Box<dyn Fn(&[PathBuf]) -> Result<T, LoadError> + Send + Sync>;

/// Hashes of what files hold. `None` for one that is missing, or that can be read only once.
type Stamp = Vec<Option<u64>>;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct LoadError {
    path: String,
    why: String,
}

impl LoadError {
    /// What is wrong with the file.
    pub fn new(path: &Path, why: impl Display) -> Self {
        Self { path: path.display().to_string(), why: format!("{why}") }
    }
}

impl<T> Watched<T> {
    /// What `load` makes of these files.
    pub fn load(
        paths: Vec<PathBuf>,
        load: impl Fn(&[PathBuf]) -> Result<T, LoadError> + Send + Sync + 'static,
    ) -> Result<Self, LoadError> {
        let hashes = RandomState::new();
        let stamp = Mutex::new(stamp(&paths, &hashes));
        let value = ArcSwap::from_pointee(load(&paths)?);
        Ok(Self { value, paths, load: Box::new(load), hashes, stamp, refused: Mutex::default() })
    }

    /// What was last read.
    pub fn now(&self) -> Arc<T> {
        self.value.load_full()
    }

    /// Reads the files again where they have changed. Files that cannot be used leave everything as it is, and are
    /// tried again: a certificate and its key are rarely replaced in the same instant.
    pub fn refresh(&self) {
        let found = stamp(&self.paths, &self.hashes);
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

fn stamp(paths: &[PathBuf], hashes: &RandomState) -> Stamp {
    let one = |path: &PathBuf| {
        let content = fs::metadata(path).ok()?.is_file().then(|| fs::read(path))?.ok()?;
        Some(hashes.hash_one(content))
    };
    paths.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(path: PathBuf) -> Watched<String> {
        let read = |paths: &[PathBuf]| {
            let text = fs::read_to_string(&paths[0]).map_err(|why| LoadError::new(&paths[0], why))?;
            if text.is_empty() { Err(LoadError::new(&paths[0], "empty")) } else { Ok(text) }
        };
        Watched::load(vec![path], read).unwrap()
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
