//! The `admin` listener: health, metrics, the admin API and its audit log.

mod audit;
mod bad_input;
mod changes;
mod explain;
mod health;
mod usage;
