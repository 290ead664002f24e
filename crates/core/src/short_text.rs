//! Short texts that are copied instead of reference-counted.
//!
//! Names travel with every decision. A shared counter would be one cache line that all threads write to; a packed
//! small string is copied piecewise, which stalls the processor. This one is copied as whole machine words.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// An immutable text: up to 23 bytes in place, longer ones shared.
#[derive(Clone, Eq, PartialEq)]
pub(crate) enum ShortText {
    InPlace(InPlace),
    Shared(Arc<str>),
}

/// The bytes of a text and its length, in three words.
#[derive(Clone, Copy, Eq, PartialEq)]
#[repr(align(8))]
pub(crate) struct InPlace {
    bytes: [u8; 23],
    len: u8,
}

impl ShortText {
    pub(crate) fn new(text: &str) -> Self {
        let mut bytes = [0; 23];
        match bytes.get_mut(..text.len()) {
            Some(place) => {
                place.copy_from_slice(text.as_bytes());
                Self::InPlace(InPlace { bytes, len: text.len() as u8 })
            }
            None => Self::Shared(text.into()),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        match self {
            // The bytes came from a text, so they are UTF-8.
            Self::InPlace(_) => str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Self::Shared(text) => text,
        }
    }

    /// The text as bytes. Cheaper than [`as_str`](Self::as_str), which checks them for UTF-8.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::InPlace(InPlace { bytes, len }) => &bytes[..usize::from(*len)],
            Self::Shared(text) => text.as_bytes(),
        }
    }
}

impl PartialOrd for ShortText {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ShortText {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

/// As a `str`, so that maps can be searched by one.
impl Hash for ShortText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_every_length_come_back_as_they_were() {
        for text in [
            "",
            "free",
            "gold/burst",
            "twenty-two-bytes-long!",
            "twenty-three-bytes-long",
            "twenty-four-bytes-long!!",
        ] {
            assert_eq!(ShortText::new(text).clone().as_str(), text);
        }
        assert_eq!(ShortText::new(&"ä".repeat(64)).as_str(), "ä".repeat(64));
    }
}
