//! What instances decide without asking the store they share: denials that still hold, and tokens that are
//! paid for.

mod deny_cache;
mod lease;
mod network;
