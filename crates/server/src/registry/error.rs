//! Why the registry cannot be read or written.

use spile_redis::SessionError;

use super::RegistryFileError;

/// Why the registry cannot be read or written. What runs stays as it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistryError {
    /// Nothing was changed.
    #[error("the registry is out of reach: {0}")]
    OutOfReach(SessionError),
    /// The change may or may not have been made.
    #[error("the change may or may not have been made, read it again: {0}")]
    Unsure(SessionError),
    /// Something in Redis is not as it should be, or Redis does not let us.
    #[error("the registry in Redis cannot be used: {0}")]
    Unreadable(String),
    /// Others change it all the time.
    #[error("others keep changing the registry: try again")]
    Busy,
    #[error(transparent)]
    File(#[from] RegistryFileError),
}
