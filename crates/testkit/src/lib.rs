#![doc = include_str!("../README.md")]
#![allow(clippy::missing_panics_doc, reason = "a test kit panics where a promise is broken")]

pub mod contract;
pub mod fuzz;
pub mod ledger;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod proxy;
pub mod redis;
pub mod store;
pub mod table;
pub mod wait;
