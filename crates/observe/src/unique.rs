//! Names that no other process has given to anything.

use std::hash::{BuildHasher, RandomState};

/// 24 hexadecimal digits that are not met twice: 96 bits under a key that the system's randomness made.
pub(crate) fn unique_id() -> String {
    let random = RandomState::new();
    format!("{:016x}{:08x}", random.hash_one(0_u8), random.hash_one(1_u8) as u32)
}
