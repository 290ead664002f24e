//! The `resp` listener: `CL.THROTTLE` and the decision API for every Redis client there is.
//!
//! Bytes become commands in [`framer`], commands are answered in [`session`], and a throttle is a question with its
//! own limit like any that comes over HTTP. Nothing here knows how a bucket is counted.

mod catalogue;
mod check;
mod connection;
mod framer;
mod inline;
mod listener;
mod reply;
mod session;
mod throttle;
mod transaction;

pub(crate) use self::listener::Resp;
