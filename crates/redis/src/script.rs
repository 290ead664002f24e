//! `spend.lua` and its name, which is the SHA-1 of its text.

use std::sync::LazyLock;

/// The text, as Redis is given it.
pub(crate) const TEXT: &str = include_str!("spend.lua");

/// The name that `EVALSHA` calls it by.
pub(crate) static NAME: LazyLock<String> = LazyLock::new(|| sha1_smol::Sha1::from(TEXT).digest().to_string());
