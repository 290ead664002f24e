//! Where a configuration comes from, so that it can be read again.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Flags;

/// The file, the environment above it and the flags above both.
#[derive(Clone, Default)]
pub(crate) struct Origin {
    /// `None` if there is no file.
    pub(super) path: Option<PathBuf>,
    pub(super) text: String,
    /// The stamp of the file just before it was read: a later file with another stamp has changed since.
    pub(super) stamp: Option<Stamp>,
    pub(super) variables: Vec<(String, String)>,
    pub(super) flags: Flags,
}

impl Origin {
    /// The name in errors.
    pub(super) fn name(&self) -> PathBuf {
        self.path.clone().unwrap_or_else(|| PathBuf::from("the environment"))
    }

    /// The folder that relative paths start from.
    pub(super) fn folder(&self) -> &Path {
        self.path.as_deref().and_then(Path::parent).unwrap_or(Path::new(""))
    }
}

/// Leaves out the file and the environment, which may hold secrets.
impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, stamp, flags, .. } = self;
        f.debug_struct("Origin")
            .field("path", path)
            .field("stamp", stamp)
            .field("flags", flags)
            .finish_non_exhaustive()
    }
}

/// Distinguishes states of a file without reading it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stamp {
    inode: u64,
    bytes: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self { inode: metadata.ino(), bytes: metadata.len(), modified: metadata.modified().ok() })
    }
}
