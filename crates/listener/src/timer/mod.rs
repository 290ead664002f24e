//! Time limits on a connection or a request: on silence, and on the whole of it.

mod deadline;
mod head;
mod idle;
mod lasting;

pub use self::deadline::Deadline;
pub(crate) use self::head::HeadTimer;
pub use self::idle::IdleTimer;
