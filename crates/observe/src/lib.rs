//! Everything that watches decisions: metrics, heavy hitters, recent events, rates and analytics.
//!
//! [`Watch`] is an [`Observer`](spile_limiter::Observer) that lets the limiter [count](spile_limiter::Counts) for it, in a
//! table of the calling thread. Whatever costs more is done for a bounded number of decisions per second, and the rest
//! on a thread of its own. Metrics go through the [`metrics`] facade, so any recorder sees them.
//!
//! Everything is bounded: label values, keys in the sketch, events, minutes. Keys are shown as hashes unless the
//! operator allows names, and are never a label. This crate must not know how a bucket is counted or where a
//! request came from.
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
mod book;
mod budget;
mod builder;
mod close_look;
#[cfg(feature = "dashboard")]
pub mod dashboard;
mod event;
mod failures;
mod fingerprint;
mod health;
mod latencies;
mod levels;
mod minutes;
mod names;
mod packed;
mod pulse;
mod rates;
mod registrar;
mod shared_day;
mod sketch;
mod snapshot;
mod sums;
mod table;
mod tally;
mod ticker;
mod timed;
#[cfg(feature = "top")]
pub mod top;
#[cfg(feature = "otlp")]
pub mod trace;
mod unique;
mod verdict;
mod watch;
#[cfg(feature = "webhooks")]
pub mod webhook;

pub use analytics::{Analytics, Asked, Day, DayRow, Scope, csv};
pub use builder::WatchBuilder;
pub use close_look::TopKey;
pub use event::{Event, What};
pub use health::{AskHealth, StoreHealth};
pub use latencies::Percentiles;
pub use levels::Level;
pub use minutes::{By, MinuteRow};
pub use names::{DURATION_BUCKETS, HISTOGRAMS, LEVEL_BUCKETS};
pub use packed::PackedMinutes;
pub use rates::Second;
pub use snapshot::{Snapshot, TopLimit};
pub use sums::{Answer, Batch, MinuteSums, SumsError, share};
pub use tally::Tally;
pub use timed::TimedStore;
pub use watch::Watch;
