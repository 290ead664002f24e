//! The name of a rule, with its hash.

use std::hash::{BuildHasher, Hasher};

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

/// The name of a rule, for observers. Making one hashes the text, so make it once if you ask often.
#[derive(Clone, Copy, Debug)]
pub struct RuleName<'a> {
    text: &'a str,
    tag: u64,
}

impl<'a> RuleName<'a> {
    /// The name.
    #[inline]
    pub fn new(text: &'a str) -> Self {
        // The seed differs in each process: a caller that can choose rule names must not find two with one hash.
        let mut hasher = SeedableRandomState::with_seed(0, SharedSeed::global_random()).build_hasher();
        hasher.write(text.as_bytes());
        Self { text, tag: hasher.finish() }
    }

    /// The text.
    pub const fn as_str(&self) -> &'a str {
        self.text
    }

    /// A hash of the text, the same everywhere in this process.
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
