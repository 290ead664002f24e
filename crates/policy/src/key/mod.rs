//! Who pays: the list of places in which a rule looks for a key, and the key that it finds.

mod list;
mod resolved;

pub use list::{KeyList, KeyListError};
pub(crate) use list::{NoIdentity, header_key};
pub use resolved::ResolvedKey;
