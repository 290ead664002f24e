//! What protects upstreams from more than they can do: limits that follow how they fare, and a cap on how many
//! requests each has under way.

mod aimd;
mod fair_queue;
mod place_holder;

pub use aimd::Adaptive;
pub use fair_queue::Concurrency;

pub(crate) use aimd::Aimd;
pub(crate) use fair_queue::{FairQueue, Permit, enter_any};
pub(crate) use place_holder::PlaceHolder;
