//! The metrics by name, and the counters, histograms and gauges behind them.

mod failures;
mod fingerprint;
mod latencies;
mod names;
mod outcome;
mod permits;
mod rates;
mod registrar;
mod series_table;
mod store_health;
mod store_history;
mod timed_store;

pub(crate) use self::failures::FailureCounters;
pub use self::failures::StorelessCounts;
pub(crate) use self::fingerprint::Fingerprints;
pub use self::latencies::LatencyPercentiles;
pub(crate) use self::latencies::{Latencies, RecentLatencies};
pub use self::names::HISTOGRAMS;
pub(crate) use self::names::*;
pub(crate) use self::outcome::DecisionOutcome;
pub use self::outcome::OutcomeCounts;
pub use self::permits::{LimitPermits, PermitFigures, PermitProbe};
pub(crate) use self::rates::DecisionRates;
pub use self::rates::SecondRow;
pub(crate) use self::registrar::Registrar;
pub(crate) use self::series_table::{OVERFLOW, SeriesInfo, SeriesSubject, SeriesTable};
pub(crate) use self::store_health::AnswerCounts;
pub(crate) use self::store_health::StoreHealthTracker;
pub use self::store_health::{HealthProbe, StoreHealth, StoreState};
pub(crate) use self::store_history::StoreHistory;
pub use self::store_history::StoreRow;
pub use self::timed_store::TimedStore;
