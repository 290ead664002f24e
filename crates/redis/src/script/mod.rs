//! Lua scripts, their SHA-1, and the calls of the two that decide. `LAYOUT.md` describes their keys, arguments and replies.

pub(crate) mod call;
mod call_keys;
pub(crate) mod error_reply;
pub(crate) mod key;
mod msgpack;
pub(crate) mod request;
#[cfg(test)]
mod tests;
pub(crate) mod wire_call;

use std::fmt;
use std::sync::LazyLock;

/// Joins fragments of Lua into one script.
macro_rules! assemble {
    ($($fragment:literal)*) => { concat!($(include_str!(concat!("lua/", $fragment, ".lua"))),*) };
}

/// Decides questions about rates: spend, peek, partial spend, late charge and refund.
pub(crate) static RATES: LazyLock<Script> =
    LazyLock::new(|| Script::new(assemble!("head" "read" "rates" "rate" "decide" "answer" "end" "write")));

/// Decides every question, as [`RATES`] does where both can.
pub(crate) static EVERYTHING: LazyLock<Script> = LazyLock::new(|| {
    Script::new(assemble!(
        "head" "read" "everything" "rate" "quota" "places" "decide" "permit" "marker" "answer" "hold" "settled" "end"
        "write"
    ))
});

/// The script by which any Redis client shares buckets with this store, bit for bit: a chain of rates of one key, with plain
/// arguments. It is a public protocol, which `LAYOUT.md` beside its source describes.
///
/// This crate does not call it. Give it to the other client:
///
/// ```
/// std::fs::write(std::env::temp_dir().join("spile.lua"), spile_redis::PORTABLE_SCRIPT)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub const PORTABLE_SCRIPT: &str = include_str!("lua/portable.lua");

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
