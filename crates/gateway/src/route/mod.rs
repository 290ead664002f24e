//! Routes: which requests go where, and how.

mod served;
mod settings;
mod table;
mod timeouts;

pub use settings::Route;
pub use timeouts::Timeouts;

pub(crate) use served::Served;
pub(crate) use table::Table;
