//! A snapshot in a file. The new file replaces the old one atomically, so the file is always complete.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use spile_core::Clock;

use crate::snapshot::{RestoreError, Saved};
use crate::store::{MemoryStore, MemoryStoreBuilder};

/// Readable by the owner only: a reader of the file can test whether a guessed key is in it.
const MODE: u32 = 0o600;

/// A file that holds the buckets of one store, for one process at a time.
///
/// ```
/// use spile_memory::{MemoryStore, SnapshotFile};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("buckets");
/// let mut file = SnapshotFile::open(&path)?;
/// let store = file.restore(MemoryStore::builder())?;
/// // Spend from it, and now and then:
/// file.save(&store)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SnapshotFile {
    path: PathBuf,
    /// The last save. `None` if this process has not saved yet.
    saved: Option<Saved>,
    /// The lock is a separate file, because each save replaces the snapshot file.
    _lock: File,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// Another process uses the file.
    #[error("the buckets in {0} are in use by another process")]
    InUse(PathBuf),
    /// It cannot be opened, or its folder cannot be written to.
    #[error("the buckets cannot be kept in {0}: {1}")]
    Unusable(PathBuf, io::Error),
    /// Its content cannot be restored.
    #[error("the buckets in {0} cannot be restored: {1}")]
    Unrestorable(PathBuf, RestoreError),
}

impl SnapshotFile {
    /// Locks the file for this process. The file need not exist yet.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, FileError> {
        let path = path.into();
        let unusable = |why| FileError::Unusable(path.clone(), why);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(MODE);
        let lock = options.open(beside(&path, ".lock")).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, saved: None, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(FileError::InUse(path)),
            Err(TryLockError::Error(why)) => Err(unusable(why)),
        }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A store with the buckets of the file, or an empty store if the file does not exist.
    pub fn restore<C: Clock>(&self, builder: MemoryStoreBuilder<C>) -> Result<MemoryStore<C>, FileError> {
        match self.path.try_exists() {
            Ok(false) => Ok(builder.build()),
            _ => Self::read(&self.path, builder),
        }
    }

    /// A store with the saved buckets, for inspection. Does not lock the file, so another process may use it.
    pub fn read<C: Clock>(
        path: impl AsRef<Path>,
        builder: MemoryStoreBuilder<C>,
    ) -> Result<MemoryStore<C>, FileError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|why| FileError::Unusable(path.to_owned(), why))?;
        builder.restore(file).map_err(|why| FileError::Unrestorable(path.to_owned(), why))
    }

    /// Renames a file that cannot be restored, replacing an earlier one, and returns its new path.
    pub fn set_aside(&self) -> Result<PathBuf, FileError> {
        let aside = beside(&self.path, ".unreadable");
        let private = Permissions::from_mode(MODE);
        std::fs::rename(&self.path, &aside)
            .and_then(|()| std::fs::set_permissions(&aside, private))
            .map_err(|why| FileError::Unusable(self.path.clone(), why))?;
        Ok(aside)
    }

    /// Saves the store. On success the snapshot is on the disk; on failure the disk still has the one before. Does not
    /// replace the file if nothing has changed.
    pub fn save<C: Clock>(&mut self, store: &MemoryStore<C>) -> Result<Saved, FileError> {
        let saved = self.replace(store).map_err(|why| FileError::Unusable(self.path.clone(), why))?;
        self.saved = Some(saved);
        Ok(saved)
    }

    fn replace<C: Clock>(&self, store: &MemoryStore<C>) -> io::Result<Saved> {
        let new = beside(&self.path, ".new");
        match std::fs::remove_file(&new) {
            Err(why) if why.kind() != ErrorKind::NotFound => return Err(why),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&new)?;
        let saved = store.save(&file)?;
        if self.saved == Some(saved) && self.path.exists() {
            std::fs::remove_file(&new)?;
            return Ok(saved);
        }
        file.sync_all()?;
        std::fs::rename(&new, &self.path)?;
        // The rename is durable once the folder is synced.
        File::open(folder(&self.path))?.sync_all()?;
        Ok(saved)
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
