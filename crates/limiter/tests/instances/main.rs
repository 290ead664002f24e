//! What instances decide without asking the store they share: denials that still hold, and tokens that are
//! paid for.

#![allow(clippy::disallowed_methods, reason = "tests run on tokio itself")]

mod deny_cache;
mod lease;
mod network;
mod table;
