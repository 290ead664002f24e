//! The Redis protocol (RESP) as bytes, without I/O.
//!
//! The Redis store writes commands and reads replies, the `resp` listener reads commands and writes replies, and the
//! test kit does both. All of them use this crate:
//!
//! - [`mod@write`] appends commands and replies to a buffer.
//! - [`parse`] reads one reply into a [`Value`].
//! - [`CommandDecoder`] cuts a stream of bytes into commands.
//!
//! The bytes come from a network, so every length is bounded and no input panics.
//!
//! ```
//! use spile_resp::{Value, parse, write};
//!
//! let mut out = Vec::new();
//! write::command(&mut out, &[b"GET", b"key"]);
//! assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
//!
//! assert_eq!(parse(b":7\r\n+OK\r\n"), Ok(Some((Value::Int(7), 4))));
//! assert_eq!(parse(b"$5\r\nhal"), Ok(None), "the rest has not arrived yet");
//! ```

mod command;
mod inline;
mod reply;
pub mod write;

pub use command::{CommandDecoder, Frame, MAX_ARGUMENTS, MAX_COMMAND_BYTES, ProtocolError};
pub use reply::{InvalidReply, Value, parse};

/// A decimal number as the protocol writes it: digits, after a minus sign if it is negative.
fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.is_empty() {
        return None;
    }
    // Counted downwards, because the smallest number has no positive counterpart.
    let negative = digits.iter().try_fold(0_i64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_sub(digit)
    })?;
    if digits.len() < text.len() { Some(negative) } else { negative.checked_neg() }
}

#[cfg(test)]
mod tests {
    use super::integer;

    #[test]
    fn an_integer_is_digits_and_at_most_one_minus_sign() {
        for number in [0, 7, -7, 1_000, i64::MAX, i64::MIN] {
            assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }
        for text in ["", "-", "+1", "1 ", "--1", "1a", "9223372036854775808", "-9223372036854775809"] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }
}
