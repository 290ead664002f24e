//! The surfaces that operators look at, as they look at them: a real Prometheus, a real browser and a real
//! terminal against a running Spile under load.

mod analytics;
mod dashboard;
mod metrics;
mod prometheus;
mod replay;
mod support;
mod top;
mod traces;
mod webhooks;
