//! API keys, which are known by their hash only.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// The SHA-256 of an API key, written `sha256:` and 64 hexadecimal digits. Keys are random, so that a plain hash is
/// as good as a slow one, and looking a hash up gives away nothing about the key by its timing.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct ApiKeyHash([u8; 32]);

impl ApiKeyHash {
    /// The hash of this key.
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// The bytes of the hash.
    pub const fn bytes(&self) -> [u8; 32] {
        self.0
    }
}

impl FromStr for ApiKeyHash {
    type Err = ApiKeyHashError;

    fn from_str(text: &str) -> Result<Self, ApiKeyHashError> {
        let digits = text
            .strip_prefix("sha256:")
            .filter(|digits| digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let digits = digits.ok_or(ApiKeyHashError)?;
        let mut hash = [0; 32];
        for (index, byte) in hash.iter_mut().enumerate() {
            let pair = &digits[2 * index..2 * index + 2];
            *byte = u8::from_str_radix(pair, 16).map_err(|_| ApiKeyHashError)?;
        }
        Ok(Self(hash))
    }
}

impl fmt::Debug for ApiKeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKeyHash(…)")
    }
}

/// A text that is no hash of a key. It is not shown: it may be the key itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("an API key is written as `sha256:` and 64 hexadecimal digits")]
pub struct ApiKeyHashError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_reads_as_it_is_written() {
        let written = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        assert_eq!(written.parse(), Ok(ApiKeyHash::of(b"test")));
    }

    #[test]
    fn a_plain_key_is_no_hash() {
        for text in [
            "test",
            "sha256:",
            "sha256:zz",
            &format!("sha256:{}", "g".repeat(64)),
            &format!("sha256:+1{}", "0".repeat(62)),
        ] {
            assert_eq!(text.parse::<ApiKeyHash>(), Err(ApiKeyHashError));
        }
    }
}
