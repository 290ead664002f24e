//! Why a change was not made.

use crate::config::ConfigError;
use crate::registry::RegistryError;

/// Why a change was not made. Nothing has changed, unless the error reports that the outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    #[error("nothing has this name")]
    Missing,
    #[error("this is in quarantine, correct or delete it: {0}")]
    Quarantined(String),
    #[error("this is defined in the file: change it there")]
    InFile,
    #[error("this was changed since: read it again")]
    Changed,
    #[error("the tenant has {0} API keys, the most there can be: put it with fewer")]
    TooManyKeys(usize),
    #[error("the registry holds {most} entries, the most it can: remove some", most = super::MOST_ENTRIES)]
    Full,
    #[error(
        "admin.registry_file keeps the registry of an embedded store, and with a store in Redis the registry lives in \
         Redis: remove admin.registry_file, or set store.url to `memory:`"
    )]
    TwoRegistries,
    #[error(transparent)]
    Wrong(#[from] ConfigError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
}
