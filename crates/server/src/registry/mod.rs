//! Entries that were changed at run time, which override those of the file.
//!
//! With an embedded store they are kept in a file of this instance. With Redis they are kept there, for all instances.

mod entries;
mod error;
mod file;
mod quarantine;
mod shared;

use std::path::Path;
use std::sync::Arc;

use spile_redis::{RedisStore, Subscription};

pub(crate) use self::entries::{Entries, EntryId, Kind};
pub(crate) use self::error::RegistryError;
pub(crate) use self::file::{RegistryFile, RegistryFileError};
pub(crate) use self::quarantine::{MOST_NAMED, OTHER, Overlay, Quarantine, split};
use self::shared::SharedRegistry;
use crate::config::Spec;

/// Where entries are stored, and the entries that this instance knows.
pub(crate) enum Registry {
    Own { file: Arc<RegistryFile>, entries: Arc<Entries>, broken: Quarantine },
    Shared(Box<SharedRegistry>),
}

/// The result of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Written {
    Yes,
    /// Another instance has changed the registry since it was last read. Nothing was written.
    Stale,
}

impl Registry {
    /// Opens this instance's own registry. Without a file, entries live as long as the process.
    pub(crate) fn own(file: Option<&Path>) -> Result<Self, RegistryFileError> {
        let file = RegistryFile::open(file)?;
        let (entries, broken) = file.read()?;
        Ok(Self::Own { file: Arc::new(file), entries: Arc::new(entries), broken })
    }

    /// The registry that all instances on this store share. It has not been read yet.
    pub(crate) fn shared(store: &RedisStore) -> Self {
        Self::Shared(Box::new(SharedRegistry::new(store)))
    }

    /// Every known entry, valid or not.
    pub(crate) fn entries(&self) -> &Arc<Entries> {
        match self {
            Self::Own { entries, .. } => entries,
            Self::Shared(shared) => shared.entries(),
        }
    }

    /// Documents that cannot be read as an entry.
    pub(crate) const fn broken(&self) -> &Quarantine {
        match self {
            Self::Own { broken, .. } => broken,
            Self::Shared(shared) => shared.broken(),
        }
    }

    /// Whether it exists, valid or not.
    pub(crate) fn holds(&self, which: &EntryId) -> bool {
        self.broken().why(which).is_some() || self.entries().get(which.kind, &which.name).is_some()
    }

    /// Whether it holds nothing, as far as this instance knows.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries().is_empty() && self.broken().is_empty()
    }

    /// How often a shared registry has been changed.
    pub(crate) const fn version(&self) -> Option<u64> {
        match self {
            Self::Own { .. } => None,
            Self::Shared(shared) => Some(shared.version()),
        }
    }

    /// Receives the changes of other instances. `None` if the registry is this instance's own.
    pub(crate) fn subscribe(&self) -> Option<Subscription> {
        match self {
            Self::Own { .. } => None,
            Self::Shared(shared) => Some(shared.subscribe()),
        }
    }

    /// Reads the changes of other instances. Returns whether there were any.
    pub(crate) async fn catch_up(&mut self) -> Result<bool, RegistryError> {
        match self {
            Self::Own { .. } => Ok(false),
            Self::Shared(shared) => shared.catch_up().await,
        }
    }

    /// Stores an entry, or removes it if `spec` is `None`, unless another instance has changed anything since the last read. `next` are
    /// the entries after that.
    pub(crate) async fn write(
        &mut self,
        which: &EntryId,
        spec: Option<&Spec>,
        next: Arc<Entries>,
    ) -> Result<Written, RegistryError> {
        let document = spec.map(|spec| spec.to_json().to_string());
        match self {
            Self::Own { file, entries, broken } => {
                write_own(Arc::clone(file), which.to_string(), document, Arc::clone(entries)).await?;
                *entries = next;
                broken.remove(&which.to_string());
                Ok(Written::Yes)
            }
            Self::Shared(shared) => shared.write(which, document.as_deref(), next).await,
        }
    }
}

/// Waits for the disk on a separate thread.
async fn write_own(
    file: Arc<RegistryFile>,
    key: String,
    document: Option<String>,
    known: Arc<Entries>,
) -> Result<(), RegistryFileError> {
    let written = tokio::task::spawn_blocking(move || file.write(&key, document.as_deref(), &known));
    match written.await {
        Ok(written) => written,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}
