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
    text: &'static str,
    name: String,
}

impl Script {
    /// The script of this text. All its keys must come in `KEYS`, and it should check before it writes: what it has
    /// written when it fails stays written.
    pub fn new(text: &'static str) -> Self {
        Self { text, name: sha1_smol::Sha1::from(text).digest().to_string() }
    }

    /// The text, as Redis is given it.
    pub(crate) const fn text(&self) -> &'static str {
        self.text
    }

    /// The name that `EVALSHA` calls it by.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Script({})", self.name)
    }
}
