//! Commands that a server refuses.

use std::collections::BTreeSet;

/// The commands that a server refuses. By default none.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is independent of the others")]
pub struct Refusals {
    /// Memory has reached its limit: commands that may need more are refused, in a script only before its first write.
    pub out_of_memory: bool,
    /// The commands that the user may not run, in lower case.
    pub acl_denied: BTreeSet<&'static str>,
    /// The server is a replica: it refuses writes, and `ROLE` reports it.
    pub read_only: bool,
    /// The last snapshot failed (`MISCONF`): writes and `PING` are refused.
    pub cannot_save: bool,
    /// Too few replicas are connected (`NOREPLICAS`): writes are refused.
    pub lacks_replicas: bool,
}
