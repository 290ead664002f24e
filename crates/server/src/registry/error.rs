//! Why the registry cannot be read or written.

use spile_redis::SessionError;

use super::RegistryFileError;

/// Why the registry cannot be read or written. The configuration in force stays.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistryError {
    /// Nothing was changed.
    #[error("the registry is out of reach: {0}")]
    OutOfReach(SessionError),
    /// The change may or may not have been made.
    #[error("the change may or may not have been made, read it again: {0}")]
    Unsure(SessionError),
    /// Redis holds unexpected data, or denies access.
    #[error("the registry in Redis cannot be used: {0}")]
    Unreadable(String),
    /// Other instances kept changing it.
    #[error("others keep changing the registry: try again")]
    Busy,
    #[error(transparent)]
    File(#[from] RegistryFileError),
}
