//! The Redis protocol, as much of it as a limiter speaks: commands out, RESP2 replies in.
//!
//! A reply is read from bytes that anybody may have garbled, so every length is bounded and nothing panics.

use std::io::Write as _;

/// The longest bulk string or array that is believed. The slot map of a large cluster is far smaller.
const LONGEST: i64 = 1 << 20;

/// How deep arrays may nest. The slot map nests three deep.
const DEEPEST: u8 = 5;

/// One reply of Redis.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// Nothing is there.
    Nil,
    /// A whole number.
    Int(i64),
    /// A simple or a bulk string.
    Text(Vec<u8>),
    /// A list of replies.
    Array(Vec<Value>),
    /// An error.
    Error(String),
}

impl Value {
    /// The text, where it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    /// The number, where it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(int) => Some(*int),
            _ => None,
        }
    }

    /// The items, where it is a list.
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }
}

/// Bytes that are no RESP2.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("bytes that are no Redis reply")]
pub(crate) struct Malformed;

/// Appends the header of a command of `parts` parts.
pub(crate) fn push_header(out: &mut Vec<u8>, parts: usize) {
    push_line(out, b'*', parts);
}

/// Appends one part of a command.
pub(crate) fn push_part(out: &mut Vec<u8>, part: &[u8]) {
    push_line(out, b'$', part.len());
    out.extend_from_slice(part);
    out.extend_from_slice(b"\r\n");
}

/// Appends a whole command.
pub(crate) fn push_command(out: &mut Vec<u8>, parts: &[&[u8]]) {
    push_header(out, parts.len());
    for part in parts {
        push_part(out, part);
    }
}

fn push_line(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{number}\r\n");
}

/// The first whole reply in `bytes` and how many bytes it takes, or nothing while some are still to come.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Value, usize)>, Malformed> {
    let mut reader = Reader { bytes, at: 0 };
    Ok(reader.value(DEEPEST)?.map(|value| (value, reader.at)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: u8) -> Result<Option<Value>, Malformed> {
        let Some(line) = self.line()? else { return Ok(None) };
        let (&kind, rest) = line.split_first().ok_or(Malformed)?;
        match kind {
            b'+' => Ok(Some(Value::Text(rest.to_vec()))),
            b'-' => Ok(Some(Value::Error(String::from_utf8_lossy(rest).into_owned()))),
            b':' => Ok(Some(Value::Int(number(rest)?))),
            b'$' => self.bulk(number(rest)?),
            b'*' => self.array(number(rest)?, depth),
            _ => Err(Malformed),
        }
    }

    fn bulk(&mut self, length: i64) -> Result<Option<Value>, Malformed> {
        let Some(length) = bounded(length)? else { return Ok(Some(Value::Nil)) };
        let Some(bytes) = self.bytes.get(self.at..self.at + length + 2) else { return Ok(None) };
        let (text, end) = bytes.split_at(length);
        if end != b"\r\n" {
            return Err(Malformed);
        }
        self.at += length + 2;
        Ok(Some(Value::Text(text.to_vec())))
    }

    fn array(&mut self, length: i64, depth: u8) -> Result<Option<Value>, Malformed> {
        let Some(length) = bounded(length)? else { return Ok(Some(Value::Nil)) };
        let depth = depth.checked_sub(1).ok_or(Malformed)?;
        // The announced length is not trusted with memory before that many bytes are there.
        let mut items = Vec::with_capacity(length.min(self.bytes.len() - self.at));
        for _ in 0..length {
            match self.value(depth)? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        Ok(Some(Value::Array(items)))
    }

    /// The next line without its end, or nothing while the end is still to come.
    fn line(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        const LONGEST_LINE: usize = 4_096;
        let rest = &self.bytes[self.at..];
        // Looks no further than that: a line is too long whether or not its end has arrived.
        match rest.iter().take(LONGEST_LINE + 1).position(|&byte| byte == b'\r') {
            Some(end) if end + 1 < rest.len() => {
                if rest[end + 1] != b'\n' {
                    return Err(Malformed);
                }
                self.at += end + 2;
                Ok(Some(&rest[..end]))
            }
            None if rest.len() > LONGEST_LINE => Err(Malformed),
            _ => Ok(None),
        }
    }
}

fn number(digits: &[u8]) -> Result<i64, Malformed> {
    std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or(Malformed)
}

fn bounded(length: i64) -> Result<Option<usize>, Malformed> {
    match length {
        -1 => Ok(None),
        0..=LONGEST => Ok(Some(length as usize)),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_kind_of_reply_is_read() {
        let bytes = b"*5\r\n:-7\r\n$3\r\na\r\n\r\n+OK\r\n$-1\r\n-ERR no\r\n";
        let items = vec![
            Value::Int(-7),
            Value::Text(b"a\r\n".to_vec()),
            Value::Text(b"OK".to_vec()),
            Value::Nil,
            Value::Error("ERR no".into()),
        ];
        assert_eq!(parse(bytes), Ok(Some((Value::Array(items), bytes.len()))));
    }

    #[test]
    fn a_reply_that_is_cut_anywhere_is_awaited_not_misread() {
        let bytes = b"*2\r\n:1\r\n$2\r\nhi\r\n";
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn lengths_that_nobody_means_are_refused() {
        for bytes in [&b"$99999999999\r\n"[..], b"*-2\r\n", b"$x\r\n", b"!\r\n", b"\r\n", b"$1\r\nabc"] {
            assert_eq!(parse(bytes), Err(Malformed), "{bytes:?}");
        }
        assert_eq!(parse(&b"*1\r\n".repeat(9)), Err(Malformed));
        assert_eq!(parse(&[b'+'; 5_000]), Err(Malformed));
    }

    fn written(value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::Nil => out.extend_from_slice(b"$-1\r\n"),
            Value::Int(int) => out.extend_from_slice(format!(":{int}\r\n").as_bytes()),
            Value::Text(text) => push_part(out, text),
            Value::Error(text) => out.extend_from_slice(format!("-{text}\r\n").as_bytes()),
            Value::Array(items) => {
                push_header(out, items.len());
                for item in items {
                    written(item, out);
                }
            }
        }
    }

    #[test]
    fn fuzzed_replies_read_the_same_in_pieces_and_when_they_are_written_again() {
        spile_testkit::fuzz::fuzz(
            "resp-reply",
            &["*2\r\n", "$3\r\n", ":-7\r\n", "-ERR x\r\n", "$-1\r\n"],
            |bytes| {
                // As a lane reads: all that has arrived, each time that more has.
                let (whole, mut arrived, mut in_pieces) = (parse(bytes), 0, Ok(None));
                for piece in spile_testkit::fuzz::pieces(bytes) {
                    arrived += piece.len();
                    in_pieces = parse(&bytes[..arrived]);
                    if in_pieces != Ok(None) {
                        break;
                    }
                }
                assert_eq!(in_pieces, whole);
                let Ok(Some((value, length))) = whole else { return (whole.is_err(), None) };
                assert_eq!(parse(&bytes[..length - 1]), Ok(None), "a reply has one end");
                let mut again = Vec::new();
                written(&value, &mut again);
                assert_eq!(parse(&again), Ok(Some((value.clone(), again.len()))));
                (false, Some((std::mem::discriminant(&value), value.as_array().map(<[_]>::len))))
            },
        );
    }

    #[test]
    fn a_line_that_is_too_long_is_refused_whether_or_not_it_has_arrived_whole() {
        let line = [&[b'+'; 5_000][..], b"\r\n"].concat();
        for arrived in [4_097, 5_001, line.len()] {
            assert_eq!(parse(&line[..arrived]), Err(Malformed), "{arrived}");
        }
        let longest = [&[b'+'; 4_096][..], b"\r\n"].concat();
        assert!(matches!(parse(&longest), Ok(Some((_, 4_098)))));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn a_command_reads_back_as_its_parts(parts in proptest::collection::vec("\\PC{0,9}", 1..5)) {
            let mut out = Vec::new();
            let bytes: Vec<&[u8]> = parts.iter().map(String::as_bytes).collect();
            push_command(&mut out, &bytes);
            let texts = bytes.iter().map(|part| Value::Text(part.to_vec())).collect();
            prop_assert_eq!(parse(&out), Ok(Some((Value::Array(texts), out.len()))));
        }
    }
}
