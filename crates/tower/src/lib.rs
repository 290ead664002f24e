//! Spile as tower middleware.

#![deny(missing_docs)]

pub mod client;
pub mod key;
pub mod response;
