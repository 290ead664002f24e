//! Lua scripts, their SHA-1, and the calls of `spend.lua`.

pub(crate) mod call;
pub(crate) mod error_reply;
mod hashes;
pub(crate) mod key;
mod msgpack;
pub(crate) mod request;

use std::fmt;
use std::sync::LazyLock;

/// The script that decides.
pub(crate) static SPEND: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("spend.lua")));

/// A script that Redis runs as one atomic step.
pub struct Script {
    source: &'static str,
    sha: String,
}

impl Script {
    /// A script with this source. All its keys must come in `KEYS`. It should check before it writes: what it wrote
    /// before an error stays written.
    pub fn new(source: &'static str) -> Self {
        Self { source, sha: sha1_smol::Sha1::from(source).digest().to_string() }
    }

    /// The source, for `EVAL`.
    pub(crate) const fn source(&self) -> &'static str {
        self.source
    }

    /// The SHA-1 in hexadecimal, for `EVALSHA`.
    pub(crate) fn sha(&self) -> &str {
        &self.sha
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Script({})", self.sha)
    }
}
