//! A customer: an id, a plan, and the hashes of its API keys.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use smol_str::SmolStr;
use spile_core::PlanName;

use crate::hex::Hex;

const SCHEME: &str = "sha256:";

/// A customer.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    pub(crate) id: SmolStr,
    pub(crate) plan: PlanName,
    pub(crate) api_keys: Vec<ApiKeyHash>,
}

/// The SHA-256 of an API key. Keys are random, so that nothing slower is needed, and only the hash is ever held.
///
/// Finding a tenant compares hashes: how long that takes says something about the hash, and from a hash there is
/// no way back to the key.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub(crate) struct ApiKeyHash([u8; 32]);

impl ApiKeyHash {
    pub(crate) fn of(api_key: &[u8]) -> Self {
        Self(Sha256::digest(api_key).into())
    }

    /// A hash that was worked out elsewhere.
    pub(crate) const fn from_bytes(hash: [u8; 32]) -> Self {
        Self(hash)
    }
}

impl FromStr for ApiKeyHash {
    type Err = BadApiKeyHash;

    fn from_str(text: &str) -> Result<Self, BadApiKeyHash> {
        let digits = text.strip_prefix(SCHEME).filter(|digits| digits.len() == 64).ok_or(BadApiKeyHash)?;
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| BadApiKeyHash)?;
            // `from_str_radix` takes a sign, which is no digit of a hash.
            *byte =
                u8::from_str_radix(pair, 16).ok().filter(|_| !pair.starts_with('+')).ok_or(BadApiKeyHash)?;
        }
        Ok(Self(hash))
    }
}

impl fmt::Display for ApiKeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", Hex(&self.0))
    }
}

impl fmt::Debug for ApiKeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKeyHash(***)")
    }
}

/// A text that is no hash of an API key. Does not show the text: it might be the key itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("this is no hash of an API key: write `sha256:` and 64 hexadecimal digits")]
pub(crate) struct BadApiKeyHash;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_reads_back_as_it_was_written() {
        let hash = ApiKeyHash::of(b"test");
        assert_eq!(
            hash.to_string(),
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
        );
        assert_eq!(hash.to_string().parse(), Ok(hash));
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        for text in ["", "test", "sha256:", "sha256:9f86", &format!("sha256:{}", "+f".repeat(32))] {
            assert_eq!(text.parse::<ApiKeyHash>(), Err(BadApiKeyHash), "{text}");
        }
    }
}
