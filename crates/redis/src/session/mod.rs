//! What is said to Redis beside decisions: never over the connections that decide, and never in their way.

mod error;
mod finder;
mod session;
mod subscription;

pub use error::SessionError;
pub(crate) use finder::Finder;
pub use session::Session;
pub(crate) use session::SideSetup;
pub use subscription::Subscription;
pub(crate) use subscription::next_message;
