//! The id of a refund. A refund that is requested twice with one id is given once.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Identifies one refund of a key: any text of 1 to [`RefundId::MAX_BYTES`] bytes.
///
/// A marker remembers the id for an hour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RefundId<'a>(&'a str);

impl<'a> RefundId<'a> {
    /// The longest id, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// The id, unless the text is empty or too long.
    pub const fn new(text: &'a str) -> Result<Self, RefundIdError> {
        match text.len() {
            1..=Self::MAX_BYTES => Ok(Self(text)),
            bytes => Err(RefundIdError(bytes)),
        }
    }

    /// The name of its marker, with bytes escaped that have a meaning in a store. No configured limit has a colon in its name.
    pub(crate) fn marker(self) -> String {
        const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'-');
        format!("refund:{}", utf8_percent_encode(self.0, ESCAPED))
    }
}

/// A text that is too short or too long to be an id.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the id of a refund has {0} bytes; it takes 1 to {max}", max = RefundId::MAX_BYTES)]
pub struct RefundIdError(usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_ids_have_the_same_marker_and_no_limit_is_called_like_one() {
        let name = |id| RefundId::new(id).expect("a sound id").marker();
        assert_eq!(name("order-7.a_b"), "refund:order-7.a_b");
        assert_eq!(name("a b%20{}\n"), "refund:a%20b%2520%7B%7D%0A");
        assert_ne!(name("a b"), name("a%20b"));
        assert!(crate::LimitName::new(&name("order-7")).is_err());
    }

    #[test]
    fn an_id_has_1_to_128_bytes() {
        assert!(RefundId::new("").is_err());
        assert!(RefundId::new(&"x".repeat(128)).is_ok());
        let long = "x".repeat(129);
        let why = RefundId::new(&long).expect_err("it is too long").to_string();
        assert_eq!(why, "the id of a refund has 129 bytes; it takes 1 to 128");
    }
}
