//! Keys: where a rule looks for the key of a request, and the key that it finds.

mod identity;
mod list;
mod resolved;

pub use identity::identity;
pub(crate) use list::{InvalidIdentity, header_key};
pub use list::{KeyList, KeyListError};
pub use resolved::ResolvedKey;
