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

use spile_resp::write;

/// Joins fragments of Lua into one script.
macro_rules! assemble {
    ($($fragment:literal)*) => { concat!($(include_str!(concat!("lua/", $fragment, ".lua"))),*) };
}

/// Decides questions about rates: spend, peek, partial spend, late charge and refund.
pub(crate) static RATES: LazyLock<Script> = LazyLock::new(|| {
    Script::new(assemble!("head" "read" "rates" "rate" "decide" "answer" "end" "write" "expire"))
});

/// Decides every question, as [`RATES`] does where both can.
pub(crate) static EVERYTHING: LazyLock<Script> = LazyLock::new(|| {
    Script::new(assemble!(
        "head" "read" "everything" "rate" "quota" "places" "decide" "permit" "marker" "answer" "hold" "settled" "end"
        "write" "expire"
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

/// How a command refers to a script.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ScriptRef {
    /// `EVALSHA`: short, and fails if the node has not cached the script.
    Sha,
    /// `EVAL`: always works, and makes the node cache the script.
    Source,
}

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

    /// The source.
    pub(crate) const fn source(&self) -> &'static str {
        self.source
    }

    /// Appends the command that runs it.
    pub(crate) fn write<'a>(
        &self,
        script_ref: ScriptRef,
        keys: impl ExactSizeIterator<Item = &'a [u8]>,
        arguments: &[&'a [u8]],
        out: &mut Vec<u8>,
    ) {
        let (command, script) = match script_ref {
            ScriptRef::Sha => ("EVALSHA", &*self.sha),
            ScriptRef::Source => ("EVAL", self.source),
        };
        write::array(out, 3 + keys.len() + arguments.len());
        for part in [command, script, &keys.len().to_string()] {
            write::bulk(out, part.as_bytes());
        }
        for part in keys.chain(arguments.iter().copied()) {
            write::bulk(out, part);
        }
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Script({})", self.sha)
    }
}
