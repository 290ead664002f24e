//! What is behind every door: stores that work, fail or refuse, and identities.

mod broken_store;
mod hot_keys;
mod identities;
mod persistence;
mod refusing_store;
