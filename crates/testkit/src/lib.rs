//! What tests share: real servers that stop when they are dropped, a network that misbehaves on command, and a
//! ledger that knows what may have been admitted. For tests only; nothing that ships depends on it.

#![allow(clippy::missing_panics_doc, reason = "a test kit panics where a promise is broken")]

pub mod contract;
pub mod fuzz;
pub mod ledger;
pub mod model;
pub mod proxy;
pub mod redis;
pub mod wait;
