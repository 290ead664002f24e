//! The store on real servers, by the rooms of the crate. What measures time is apart: `pressure`, `faults`.

#![allow(clippy::disallowed_methods, reason = "tests run on tokio itself")]

mod common;
mod connection;
mod node;
mod script;
mod session;
mod store;
mod topology;
