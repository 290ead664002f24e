//! The `resp` listener: `CL.THROTTLE` and the decision API for every Redis client there is.
//!
//! `spile_resp` cuts bytes into commands, [`session`] answers them, and [`reply`] is written back. A throttle is a check
//! that brings its own limit. This module must not know how a bucket is counted.

mod catalogue;
mod check;
mod connection;
mod listener;
mod reply;
mod session;
mod throttle;
mod transaction;

pub(crate) use self::listener::Resp;
