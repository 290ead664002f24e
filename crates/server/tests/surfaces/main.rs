//! The surfaces that operators look at, as they look at them: a real Prometheus and a real browser against a
//! running Spile under load.

mod dashboard;
mod metrics;
mod prometheus;
mod support;
