//! Who pays. Never a metric label, never logged raw.

use std::fmt;

/// The identity that a bucket belongs to: `user:123`, a tenant, an address.
///
/// Any text of 1 to [`Key::MAX_BYTES`] bytes. Its `Debug` form hides it, for keys are often somebody's address
/// or API key.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Key<'a>(&'a str);

impl<'a> Key<'a> {
    /// The longest key, in bytes.
    pub const MAX_BYTES: usize = 1_024;

    /// The key, unless it is empty or too long.
    pub fn new(text: &'a str) -> Result<Self, KeyError> {
        match text.len() {
            0 => Err(KeyError::Empty),
            1..=Self::MAX_BYTES => Ok(Self(text)),
            bytes => Err(KeyError::TooLong { bytes }),
        }
    }

    /// The text, for a store to encode. Not for logs.
    pub const fn as_str(&self) -> &'a str {
        self.0
    }
}

impl<'a> TryFrom<&'a str> for Key<'a> {
    type Error = KeyError;

    fn try_from(text: &'a str) -> Result<Self, KeyError> {
        Self::new(text)
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// Why a text is no key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// An empty key would make one bucket of everybody who has none.
    #[error("the key is empty; it takes 1 to {max} bytes", max = Key::MAX_BYTES)]
    Empty,
    /// The key is longer than anybody's name.
    #[error("the key has {bytes} bytes; it takes 1 to {max}", max = Key::MAX_BYTES)]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
}
