//! What tests share: real servers that stop when they are dropped, a network that misbehaves on command, and a
//! ledger that knows what may have been admitted. For tests only; nothing that ships depends on it.

pub mod ledger;
pub mod proxy;
pub mod redis;
pub mod wait;
