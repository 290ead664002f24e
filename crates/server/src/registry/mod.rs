//! What was changed while the server ran: entries that stand above those of the file.
//!
//! With an embedded store they are kept in a file of this instance. With Redis they are kept there, for all instances.

mod entries;
mod error;
mod file;
mod shared;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use spile_redis::{RedisStore, Subscription};

pub(crate) use self::entries::{Entries, Kind, Which};
pub(crate) use self::error::RegistryError;
use self::file::RegistryFile;
pub(crate) use self::file::RegistryFileError;
use self::shared::SharedRegistry;

/// Where entries are kept, and those that are, as far as this instance knows.
pub(crate) enum Registry {
    Own { file: Arc<RegistryFile>, entries: Arc<Entries> },
    Shared(Box<SharedRegistry>),
}

/// What became of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Written {
    Yes,
    /// Somebody else has changed the registry since it was last read. Nothing was written.
    Stale,
}

impl Registry {
    /// This instance's own. Without a file, entries live as long as the process.
    pub(crate) fn own(file: Option<&Path>) -> Result<Self, RegistryFileError> {
        let file = RegistryFile::open(file)?;
        let entries = Arc::new(file.read()?);
        Ok(Self::Own { file: Arc::new(file), entries })
    }

    /// The one that all instances on this store have in common. Nothing of it is read yet.
    pub(crate) fn shared(store: &RedisStore) -> Self {
        Self::Shared(Box::new(SharedRegistry::new(store)))
    }

    /// Every entry that is known, whether or not it works.
    pub(crate) fn entries(&self) -> &Arc<Entries> {
        match self {
            Self::Own { entries, .. } => entries,
            Self::Shared(shared) => shared.entries(),
        }
    }

    /// What is there and is no entry at all.
    pub(crate) fn fault(&self) -> Option<String> {
        match self {
            Self::Own { .. } => None,
            Self::Shared(shared) => shared.fault(),
        }
    }

    /// The same, but for this one.
    pub(crate) fn fault_beside(&self, which: &Which) -> Option<String> {
        match self {
            Self::Own { .. } => None,
            Self::Shared(shared) => shared.fault_beside(which),
        }
    }

    /// Whether it is there, whatever it is.
    pub(crate) fn holds(&self, which: &Which) -> bool {
        let broken = matches!(self, Self::Shared(shared) if shared.is_broken(which));
        broken || self.entries().get(which.kind, &which.name).is_some()
    }

    /// How often it has been changed, where instances share it.
    pub(crate) const fn version(&self) -> Option<u64> {
        match self {
            Self::Own { .. } => None,
            Self::Shared(shared) => Some(shared.version()),
        }
    }

    /// Hears of others' changes, where there are others.
    pub(crate) fn subscribe(&self) -> Option<Subscription> {
        match self {
            Self::Own { .. } => None,
            Self::Shared(shared) => Some(shared.subscribe()),
        }
    }

    /// Reads what others have changed. Says whether they have.
    pub(crate) async fn catch_up(&mut self) -> Result<bool, RegistryError> {
        match self {
            Self::Own { .. } => Ok(false),
            Self::Shared(shared) => shared.catch_up().await,
        }
    }

    /// Keeps the document, or forgets it where there is none any more, if nobody else has changed anything since the
    /// last look. `next` are the entries after that.
    pub(crate) async fn write(
        &mut self,
        which: &Which,
        document: Option<&Value>,
        next: Arc<Entries>,
    ) -> Result<Written, RegistryError> {
        match self {
            Self::Own { file, entries } => {
                write_own(Arc::clone(file), which.to_string(), document.map(ToString::to_string)).await?;
                *entries = next;
                Ok(Written::Yes)
            }
            Self::Shared(shared) => shared.write(which, document, next).await,
        }
    }
}

/// The disk is waited for where nobody else waits.
async fn write_own(
    file: Arc<RegistryFile>,
    key: String,
    document: Option<String>,
) -> Result<(), RegistryFileError> {
    let written = tokio::task::spawn_blocking(move || file.write(&key, document.as_deref()));
    match written.await {
        Ok(written) => written,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}
