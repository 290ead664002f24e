//! The identity that pays for a request. Never a metric label, never logged raw.

use std::fmt;

/// The identity that a bucket belongs to: `user:123`, a tenant, an address.
///
/// Opaque UTF-8 of 1 to [`Key::MAX_BYTES`] bytes without control characters (Unicode category Cc). All other texts are accepted and
/// none is changed: two keys are equal only if their bytes are. The `Debug` form hides the text, because it is often a person's
/// address or an API key.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Key<'a>(&'a str);

impl<'a> Key<'a> {
    /// The longest key, in bytes.
    pub const MAX_BYTES: usize = 1_024;

    /// The key, unless the text is empty, too long or contains a control character. The library and every listener apply this rule.
    #[inline]
    pub fn new(text: &'a str) -> Result<Self, KeyError> {
        match text.len() {
            0 => Err(KeyError::Empty),
            1..=Self::MAX_BYTES => refuse_control(text).map(|()| Self(text)),
            bytes => Err(KeyError::TooLong { bytes }),
        }
    }

    /// Returns the error for the first control character, if there is one. Does not check the length. For texts that are hashed before they become keys.
    pub fn control_in(text: &str) -> Option<KeyError> {
        refuse_control(text).err()
    }

    /// The text, for a store to encode. Not for logs.
    pub const fn as_str(&self) -> &'a str {
        self.0
    }
}

impl<'a> TryFrom<&'a str> for Key<'a> {
    type Error = KeyError;

    fn try_from(text: &'a str) -> Result<Self, KeyError> {
        Self::new(text)
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// Keys are checked on every decision, so one fast pass clears most of them: only keys with a suspicious byte are decoded. `C2` is the first
/// byte of U+0080 to U+009F, and of some other characters.
#[inline]
fn refuse_control(text: &str) -> Result<(), KeyError> {
    let bytes = text.as_bytes();
    let found = match bytes.last_chunk() {
        // The last eight bytes are one word, which may overlap the others. Those end before the last byte, so that a key of eight is checked once.
        Some(last) => {
            let (words, _) = bytes[..bytes.len() - 1].as_chunks();
            words.iter().fold(doubtful(*last), |found, word| found | doubtful(*word))
        }
        None => bytes.iter().fold(0, |found, &byte| found | doubtful([byte; 8])),
    };
    if found == 0 { Ok(()) } else { find_control(text) }
}

/// Zero if none of these bytes is below the space, 7F or C2. Checks all eight at once.
#[inline]
fn doubtful(bytes: [u8; 8]) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let word = u64::from_ne_bytes(bytes);
    let (deleted, c2) = (word ^ (EACH * 0x7F), word ^ (EACH * 0xC2));
    // A byte smaller than its subtrahend borrows, which sets its highest bit. `!word` excludes bytes that had it set before.
    let below = |word: u64, than: u64| word.wrapping_sub(EACH * than) & !word;
    (below(word, 0x20) | below(deleted, 1) | below(c2, 1)) & (EACH * 0x80)
}

#[cold]
fn find_control(text: &str) -> Result<(), KeyError> {
    first_control(text).map_or(Ok(()), |(at, code)| Err(KeyError::Control { at, code }))
}

/// The position and the code point of the first control character.
pub(super) fn first_control(text: &str) -> Option<(usize, u32)> {
    text.chars()
        .enumerate()
        .find(|(_, character)| character.is_control())
        .map(|(at, found)| (at, found.into()))
}

/// Why a text is not a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// An empty key would put all callers without a key into one bucket.
    #[error("the key is empty; it takes 1 to {max} bytes", max = Key::MAX_BYTES)]
    Empty,
    /// The key is longer than [`Key::MAX_BYTES`].
    #[error("the key has {bytes} bytes; it takes 1 to {max}", max = Key::MAX_BYTES)]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The key contains a character that a log or a terminal could not show.
    #[error(
        "character {at} of the key is U+{code:04X}; it takes 1 to {max} bytes without control characters",
        max = Key::MAX_BYTES
    )]
    Control {
        /// The position of the character in the text, counted from zero.
        at: usize,
        /// Its code point.
        code: u32,
    },
}
