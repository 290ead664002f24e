//! The `resp` listener: `CL.THROTTLE` for every Redis client there is.
//!
//! Bytes become commands in [`framer`], commands are answered in [`session`], and a throttle is a question with its
//! own limit like any that comes over HTTP. Nothing here knows how a bucket is counted.

mod catalogue;
mod connection;
mod framer;
mod inline;
mod listener;
mod reply;
mod session;
mod throttle;

pub(crate) use self::listener::Resp;
