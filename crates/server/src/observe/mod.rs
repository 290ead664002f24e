//! What the server tells of itself: metrics, the day's minutes, webhooks, traces, and what the dashboard shows.

pub(crate) mod hooks;
pub(crate) mod house;
pub(crate) mod metrics;
pub(crate) mod minutes;
pub(crate) mod traced;
