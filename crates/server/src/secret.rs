//! A secret that only its hash is kept of.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// A token that somebody must know. Holds the hash, and compares in the same time whatever it is given.
#[derive(Clone)]
pub(crate) struct Secret([u8; 32]);

impl Secret {
    /// Shorter ones can be guessed.
    const MIN_BYTES: usize = 16;

    pub(crate) fn new(token: &str) -> Result<Self, WeakSecret> {
        if token.len() < Self::MIN_BYTES { Err(WeakSecret) } else { Ok(Self(Sha256::digest(token).into())) }
    }

    pub(crate) fn is(&self, presented: &[u8]) -> bool {
        let presented: [u8; 32] = Sha256::digest(presented).into();
        self.0.ct_eq(&presented).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// A token that is too short to be one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the token has fewer than {min} bytes", min = Secret::MIN_BYTES)]
pub(crate) struct WeakSecret;
