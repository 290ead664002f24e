//! Observes decisions: metrics, heavy hitters, recent events, rates, analytics, webhooks, traces and a dashboard.
//!
//! [`Watch`] is an [`Observer`](spile_limiter::Observer). The limiter [counts](spile_limiter::DecisionCounts) for it in a
//! table of the calling thread. Work that costs more is done for a bounded number of sampled decisions per second, or on a
//! separate thread. Metrics go through the [`metrics`](::metrics) facade, so that any recorder receives them.
//!
//! Everything is bounded: label values, keys in the sketch, events, minutes. Keys are shown as hashes unless the
//! operator allows them in plain text, and are never a label. This crate must not know how a bucket is counted or where
//! a request came from.
//!
//! ```
//! use spile_core::{Limit, Plan};
//! use spile_limiter::RateLimiter;
//! use spile_memory::MemoryStore;
//! use spile_observe::Watch;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let watch = Watch::builder().build();
//! let limiter = RateLimiter::builder()
//!     .store(MemoryStore::new())
//!     .plans([Plan::new("free", Limit::per_second(1).burst(1))?])
//!     .observer(watch.clone())
//!     .build();
//! for _ in 0..3 {
//!     let _decision = limiter.allow("user:123", ["free"], 1).await?;
//! }
//! assert_eq!(watch.snapshot().totals.denied, 2);
//! # Ok(())
//! # }
//! ```

mod analytics;
#[cfg(feature = "dashboard")]
pub mod dashboard;
mod events;
#[cfg(feature = "webhooks")]
mod export;
mod metrics;
mod sampling;
#[cfg(feature = "top")]
pub mod top;
mod watch;

pub use analytics::{
    Analytics, AnalyticsQuery, Day, DayRow, GroupBy, History, HistoryQuery, HistoryRow, MinuteBatch,
    MinuteRow, MinuteStore, MinuteStoreError, MinuteStoreFuture, PackedMinutes, Scope, csv, share_minutes,
};
pub use events::{Event, EventKind};
#[cfg(feature = "otlp")]
pub use export::trace;
#[cfg(feature = "webhooks")]
pub use export::webhook;
pub use metrics::{
    HISTOGRAMS, HealthProbe, LatencyPercentiles, LimitPermits, OutcomeCounts, PermitFigures, PermitProbe,
    SecondRow, StoreHealth, StoreRow, StoreState, StorelessCounts, TimedStore,
};
pub use sampling::{BucketLevel, KeyDenial, TopKey};
pub use watch::{LocalCounts, Snapshot, StoreOutage, TopLimit, Watch, WatchBuilder};
