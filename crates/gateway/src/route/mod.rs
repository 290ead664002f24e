//! Routes: which requests go where, and how.

mod finder;
mod header_changes;
mod rewrite;
mod settings;
mod state;
mod table;
mod target;
mod timeouts;

pub use finder::RouteFinder;
pub use header_changes::{HeaderChangeError, HeaderChanges};
pub use rewrite::RewriteError;
pub use settings::Route;
pub use timeouts::Timeouts;

pub(crate) use rewrite::upstream_path;
pub(crate) use state::RouteState;
pub(crate) use table::RouteTable;
pub(crate) use target::RequestTarget;
