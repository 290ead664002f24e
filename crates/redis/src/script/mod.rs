//! Lua scripts and their names, which are the SHA-1 of their texts.

pub(crate) mod call;
pub(crate) mod error_reply;
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
    /// The script of this text. All its keys must come in `KEYS`, and it should check before it writes: what it has
    /// written when it fails stays written.
    pub fn new(source: &'static str) -> Self {
        Self { source, sha: sha1_smol::Sha1::from(source).digest().to_string() }
    }

    /// The text, as Redis is given it.
    pub(crate) const fn source(&self) -> &'static str {
        self.source
    }

    /// The name that `EVALSHA` calls it by.
    pub(crate) fn sha(&self) -> &str {
        &self.sha
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Script({})", self.sha)
    }
}
