//! Reads replies: RESP2, and of RESP3 nulls and maps.

use crate::integer;

/// The longest bulk string, and the most items of an array. The slot map of a large cluster is far smaller.
const MAX_LENGTH: i64 = 1 << 20;

/// The longest line: a header, a simple string or an error.
const MAX_LINE: usize = 4_096;

/// How deep arrays and maps may nest. The slot map nests three deep.
const MAX_DEPTH: u8 = 5;

/// One reply of a Redis server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// A null: the key or field does not exist.
    Nil,
    /// A whole number.
    Int(i64),
    /// A simple or a bulk string.
    Text(Vec<u8>),
    /// A list of replies.
    Array(Vec<Value>),
    /// Keys and values. Only RESP3 has maps.
    Map(Vec<(Value, Value)>),
    /// An error, which begins with its code: `NOAUTH Authentication required.`
    Error(String),
}

impl Value {
    /// The string. `None` if it is another kind of reply, or not UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    /// The number. `None` if it is another kind of reply.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(int) => Some(*int),
            _ => None,
        }
    }

    /// The items. `None` if it is another kind of reply.
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }
}

/// The bytes are not a reply, or its lengths are beyond the bounds.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("bytes that are not a Redis reply")]
pub struct InvalidReply;

/// The first reply in `bytes` and its length. `Ok(None)` if the reply has not arrived completely.
pub fn parse(bytes: &[u8]) -> Result<Option<(Value, usize)>, InvalidReply> {
    let mut reader = ValueReader { bytes, at: 0 };
    Ok(reader.value(MAX_DEPTH)?.map(|value| (value, reader.at)))
}

struct ValueReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ValueReader<'a> {
    fn value(&mut self, depth: u8) -> Result<Option<Value>, InvalidReply> {
        let Some(line) = self.line()? else { return Ok(None) };
        let (&kind, rest) = line.split_first().ok_or(InvalidReply)?;
        match kind {
            b'+' => Ok(Some(Value::Text(rest.to_vec()))),
            b'-' => Ok(Some(Value::Error(String::from_utf8_lossy(rest).into_owned()))),
            b':' => Ok(Some(Value::Int(integer(rest).ok_or(InvalidReply)?))),
            b'$' | b'*' if rest == b"-1" => Ok(Some(Value::Nil)),
            b'$' => self.bulk(length(rest)?),
            b'*' => Ok(self.items(length(rest)?, depth)?.map(Value::Array)),
            b'%' => self.map(length(rest)?, depth),
            b'_' if rest.is_empty() => Ok(Some(Value::Nil)),
            _ => Err(InvalidReply),
        }
    }

    fn bulk(&mut self, length: usize) -> Result<Option<Value>, InvalidReply> {
        let Some(bytes) = self.bytes.get(self.at..self.at + length + 2) else { return Ok(None) };
        let (text, end) = bytes.split_at(length);
        if end != b"\r\n" {
            return Err(InvalidReply);
        }
        self.at += length + 2;
        Ok(Some(Value::Text(text.to_vec())))
    }

    fn map(&mut self, length: usize, depth: u8) -> Result<Option<Value>, InvalidReply> {
        let Some(items) = self.items(2 * length, depth)? else { return Ok(None) };
        let mut items = items.into_iter();
        Ok(Some(Value::Map(std::iter::from_fn(|| items.next().zip(items.next())).collect())))
    }

    fn items(&mut self, count: usize, depth: u8) -> Result<Option<Vec<Value>>, InvalidReply> {
        let depth = depth.checked_sub(1).ok_or(InvalidReply)?;
        // Memory is reserved for no more items than bytes have arrived, even if the header announces more.
        let mut items = Vec::with_capacity(count.min(self.bytes.len() - self.at));
        for _ in 0..count {
            match self.value(depth)? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        Ok(Some(items))
    }

    /// The next line without its end. `Ok(None)` if its end has not arrived.
    fn line(&mut self) -> Result<Option<&'a [u8]>, InvalidReply> {
        let rest = &self.bytes[self.at..];
        // The search stops at the bound: a line is too long whether or not its end has arrived.
        match rest[..rest.len().min(MAX_LINE + 1)].iter().position(|&byte| byte == b'\r') {
            Some(end) if end + 1 < rest.len() => {
                if rest[end + 1] != b'\n' {
                    return Err(InvalidReply);
                }
                self.at += end + 2;
                Ok(Some(&rest[..end]))
            }
            None if rest.len() > MAX_LINE => Err(InvalidReply),
            _ => Ok(None),
        }
    }
}

/// A length within its bound.
fn length(text: &[u8]) -> Result<usize, InvalidReply> {
    let length = integer(text).filter(|length| (0..=MAX_LENGTH).contains(length));
    length.map(|length| length as usize).ok_or(InvalidReply)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::write;

    #[test]
    fn every_kind_of_reply_is_read() {
        let bytes = b"*7\r\n:-7\r\n$3\r\na\r\n\r\n+OK\r\n$-1\r\n-ERR no\r\n_\r\n%1\r\n+a\r\n:1\r\n";
        let items = vec![
            Value::Int(-7),
            Value::Text(b"a\r\n".to_vec()),
            Value::Text(b"OK".to_vec()),
            Value::Nil,
            Value::Error("ERR no".into()),
            Value::Nil,
            Value::Map(vec![(Value::Text(b"a".to_vec()), Value::Int(1))]),
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
    fn lengths_beyond_the_bounds_are_refused() {
        for bytes in [
            &b"$99999999999\r\n"[..],
            b"*-2\r\n",
            b"$x\r\n",
            b"!\r\n",
            b"\r\n",
            b"$1\r\nabc",
            b"%-1\r\n",
            b"_1\r\n",
        ] {
            assert_eq!(parse(bytes), Err(InvalidReply), "{bytes:?}");
        }
        assert_eq!(parse(&b"*1\r\n".repeat(9)), Err(InvalidReply));
        assert_eq!(parse(&[b'+'; 5_000]), Err(InvalidReply));
    }

    fn written(value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::Nil => out.extend_from_slice(b"$-1\r\n"),
            Value::Int(int) => write::integer(out, *int),
            Value::Text(text) => write::bulk(out, text),
            // As it is: the writer of errors would replace control characters.
            Value::Error(text) => out.extend_from_slice(format!("-{text}\r\n").as_bytes()),
            Value::Array(items) => {
                write::array(out, items.len());
                for item in items {
                    written(item, out);
                }
            }
            Value::Map(pairs) => {
                write::map(out, pairs.len());
                for (key, value) in pairs {
                    written(key, out);
                    written(value, out);
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
            assert_eq!(parse(&line[..arrived]), Err(InvalidReply), "{arrived}");
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
            write::command(&mut out, &bytes);
            let texts = bytes.iter().map(|part| Value::Text(part.to_vec())).collect();
            prop_assert_eq!(parse(&out), Ok(Some((Value::Array(texts), out.len()))));
        }
    }
}
