//! The name of the rule that asks, with a hash of it beside.

use std::hash::{BuildHasher, Hasher};

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

/// The name of a rule, for observers. Made of a text, which is hashed then; whoever asks often makes it once.
#[derive(Clone, Copy, Debug)]
pub struct RuleName<'a> {
    text: &'a str,
    tag: u64,
}

impl<'a> RuleName<'a> {
    /// The name.
    #[inline]
    pub fn new(text: &'a str) -> Self {
        // Seeded anew in each process: a caller who may name rules must not find two that are counted as one.
        let mut hasher = SeedableRandomState::with_seed(0, SharedSeed::global_random()).build_hasher();
        hasher.write(text.as_bytes());
        Self { text, tag: hasher.finish() }
    }

    /// The text.
    pub const fn as_str(&self) -> &'a str {
        self.text
    }

    /// A hash of the text, the same all over this process.
    #[inline]
    pub(crate) const fn tag(&self) -> u64 {
        self.tag
    }
}

impl<'a> From<&'a str> for RuleName<'a> {
    #[inline]
    fn from(text: &'a str) -> Self {
        Self::new(text)
    }
}
