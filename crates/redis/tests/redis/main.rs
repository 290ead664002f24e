//! The store on real servers, by the rooms of the crate. What measures time is apart: `pressure`, `faults`.

mod common;
mod connection;
mod node;
mod script;
mod session;
mod store;
mod topology;
