//! What an upstream is asked, but for the body.

use http::uri::PathAndQuery;
use http::{HeaderMap, Method};

/// The header of a request.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'r> {
    pub(crate) method: &'r Method,
    pub(crate) path: &'r PathAndQuery,
    pub(crate) host: &'r str,
    /// All other fields. Those that say how the body is framed are written by what the body is.
    pub(crate) headers: &'r HeaderMap,
    /// Bytes of the answer that are read at a time, before its reader says otherwise.
    pub(crate) read_at_most: usize,
    /// Writes lines of its own behind those.
    pub(crate) push_more: &'r (dyn Fn(&mut Vec<u8>) + Sync),
    /// Whether the answer is waited for even if the client does not send all of its body.
    pub(crate) await_answer: bool,
}
