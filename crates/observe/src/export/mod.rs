//! Exports from the process: events to webhooks and spans to a collector. Both wait in bounded queues, go out in
//! batches, and cost the decision path nothing while the receiver is slow or down.

mod batch;
mod endpoint;
mod error;
mod public_address;
#[cfg(feature = "otlp")]
pub mod trace;
pub mod webhook;

pub use self::batch::ExportTask;
pub(crate) use self::endpoint::HttpEndpoint;
pub use self::error::DeliveryError;
