//! The `resp` listener: `CL.THROTTLE` and the decision API for Redis clients.
//!
//! `spile_resp` cuts bytes into commands, [`session`] answers them, and [`reply`] is written back. A throttle is a check
//! that brings its own limit. This module must not know how a bucket is counted.

mod check;
mod command_table;
mod connection;
mod listener;
mod permit;
mod reply;
mod session;
mod throttle;
mod transaction;

pub(crate) use self::listener::Resp;
