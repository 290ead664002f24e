//! How operators observe the server: the log, metrics, minutes, webhooks, traces, and the source of the dashboard.

pub(crate) mod build_info;
pub(crate) mod dashboard_source;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod minutes;
pub(crate) mod traced;
pub(crate) mod webhooks;
