//! Time limits on a connection or a request: on silence, and on the whole of it.

mod deadline;
mod idle;

pub use self::deadline::Deadline;
pub use self::idle::IdleTimer;
