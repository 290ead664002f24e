//! Secrets: tokens of which only the hash is kept, and texts in which secrets are hidden.

mod mask;
mod shown;

use std::fmt;

use sha2::{Digest, Sha256};
use spile_listener::GuessLimiter;
use subtle::ConstantTimeEq;

pub(crate) use self::mask::Masked;
pub use self::mask::mask;
pub use self::shown::mask_typed;
pub(crate) use self::shown::{is_almost_scheme, is_plain, url_secrets, without};

/// A token that a client must present. Holds its hash, and compares in constant time.
#[derive(Clone)]
pub(crate) struct Secret {
    hash: [u8; 32],
    guessable: bool,
}

impl Secret {
    /// Shorter ones can be guessed.
    pub(crate) const STRONG_BYTES: usize = GuessLimiter::STRONG_BYTES;

    pub(crate) fn new(token: &str) -> Result<Self, NoSecret> {
        if token.is_empty() {
            return Err(NoSecret);
        }
        Ok(Self { hash: Sha256::digest(token).into(), guessable: token.len() < Self::STRONG_BYTES })
    }

    pub(crate) fn is(&self, presented: &[u8]) -> bool {
        let presented: [u8; 32] = Sha256::digest(presented).into();
        self.hash.ct_eq(&presented).into()
    }

    /// True if it is short enough to be found by trying.
    pub(crate) const fn is_guessable(&self) -> bool {
        self.guessable
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.hash.ct_eq(&other.hash).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// The token is empty.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the token is empty")]
pub(crate) struct NoSecret;
