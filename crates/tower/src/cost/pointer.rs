//! Pointers into JSON (RFC 6901).

use std::fmt;
use std::str::FromStr;

/// A pointer to a value within a JSON document, as in `/usage/total_tokens`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JsonPointer {
    text: Box<str>,
    tokens: Box<[PointerToken]>,
}

/// One step of a pointer: a member of an object, or an element of an array.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PointerToken {
    pub(super) name: Box<str>,
    /// `None` if it cannot be an index.
    pub(super) index: Option<u64>,
}

/// Why a text is not a pointer that can be followed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonPointerError {
    /// It does not start with a slash.
    #[error("the JSON pointer `{0}` does not start with `/`")]
    NoSlash(String),
    /// A tilde is not followed by 0 or 1.
    #[error("in the JSON pointer `{0}` a `~` is not followed by 0 or 1: write `~0` for `~` and `~1` for `/`")]
    Escape(String),
    /// It is too long.
    #[error(
        "a JSON pointer of {bytes} bytes and {steps} steps is too long: at most {most_bytes} bytes and {most_steps} steps",
        most_bytes = JsonPointer::MAX_BYTES, most_steps = JsonPointer::MAX_STEPS
    )]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The names in it.
        steps: usize,
    },
}

impl JsonPointer {
    /// The longest pointer, in bytes.
    pub const MAX_BYTES: usize = 256;
    /// The most names in a pointer.
    pub const MAX_STEPS: usize = 16;

    /// The pointer as it is written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) const fn tokens(&self) -> &[PointerToken] {
        &self.tokens
    }
}

impl PointerToken {
    fn new(written: &str) -> Option<Self> {
        let mut tildes = written.split('~').skip(1);
        if !tildes.all(|after| after.starts_with(['0', '1'])) {
            return None;
        }
        let name = written.replace("~1", "/").replace("~0", "~");
        let is_index =
            name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
        let index = is_index.then(|| name.parse().ok()).flatten();
        Some(Self { name: name.into(), index })
    }
}

impl FromStr for JsonPointer {
    type Err = JsonPointerError;

    fn from_str(text: &str) -> Result<Self, JsonPointerError> {
        let names = text.strip_prefix('/').ok_or_else(|| JsonPointerError::NoSlash(text.to_owned()))?;
        let steps = names.split('/').count();
        if text.len() > Self::MAX_BYTES || steps > Self::MAX_STEPS {
            return Err(JsonPointerError::TooLong { bytes: text.len(), steps });
        }
        let tokens: Option<_> = names.split('/').map(PointerToken::new).collect();
        let tokens = tokens.ok_or_else(|| JsonPointerError::Escape(text.to_owned()))?;
        Ok(Self { text: text.into(), tokens })
    }
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_reads_as_the_standard_says() {
        let pointer: JsonPointer = "/a~1b/m~0n/0/01/".parse().unwrap();
        let names: Vec<_> = pointer.tokens().iter().map(|token| (&*token.name, token.index)).collect();
        assert_eq!(names, [("a/b", None), ("m~n", None), ("0", Some(0)), ("01", None), ("", None)]);
        assert_eq!(pointer.to_string(), "/a~1b/m~0n/0/01/");
        assert_eq!("/~01".parse::<JsonPointer>().unwrap().tokens()[0].name, "~1".into());
    }

    #[test]
    fn what_is_not_a_pointer_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "does not start with `/`"),
            ("usage", "does not start with `/`"),
            ("/a~2", "is not followed by 0 or 1"),
            ("/a~", "is not followed by 0 or 1"),
            (&"/a".repeat(17), "34 bytes and 17 steps"),
            (&format!("/{}", "a".repeat(256)), "257 bytes and 1 steps"),
        ] {
            let refused = text.parse::<JsonPointer>().unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
