//! A part of a path that stands for a name.

use std::fmt::Write as _;

/// A part of a path, with whatever has a meaning of its own in a URL spelt out.
pub(crate) fn segment(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut path, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to memory does not fail.
            let _written = write!(path, "%{byte:02X}");
        }
        path
    })
}
