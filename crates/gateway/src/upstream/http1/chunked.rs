//! The chunked coding of an answer's body, read strictly and as it arrives.

use bytes::{Buf, Bytes};
use http::HeaderMap;

use super::head::read_fields;
use super::malformed::Malformed;

/// Bytes of extensions and padding in all chunks of one body together. They say nothing that is passed on.
const MAX_EXTENSION_BYTES: u32 = 16 * 1024;
const MAX_TRAILER_BYTES: usize = 16 * 1024;

/// Reads one body.
#[derive(Debug, Default)]
pub(super) struct Chunked {
    state: State,
    extension_bytes: u32,
    trailers: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// At the size of a chunk, of which so many digits are known.
    Size {
        digits: u8,
        size: u64,
    },
    /// Behind a size, at the padding or the extensions of its line.
    Extension {
        size: u64,
    },
    /// Behind the carriage return of a size's line.
    SizeEnd {
        size: u64,
    },
    /// In a chunk of which so many bytes are still to come.
    Data {
        left: u64,
    },
    /// Behind a chunk, of whose line end so many bytes are known.
    DataEnd {
        known: usize,
    },
    Trailers,
    Ended,
}

/// What the next bytes are.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
    /// More must arrive first.
    Starved,
}

impl Default for State {
    fn default() -> Self {
        Self::Size { digits: 0, size: 0 }
    }
}

impl Chunked {
    /// Takes the next piece off what has arrived.
    pub(super) fn step(&mut self, arrived: &mut Bytes) -> Result<Step, Malformed> {
        while !arrived.is_empty() {
            if let State::Data { left } = self.state {
                return Ok(Step::Data(self.data(left, arrived)));
            }
            if matches!(self.state, State::Ended) {
                return Ok(Step::End);
            }
            let byte = arrived.get_u8();
            if let Some(trailers) = self.take_in(byte)? {
                self.state = State::Ended;
                return Ok(if trailers.is_empty() { Step::End } else { Step::Trailers(trailers) });
            }
        }
        Ok(if self.has_ended() { Step::End } else { Step::Starved })
    }

    pub(super) const fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    fn data(&mut self, left: u64, arrived: &mut Bytes) -> Bytes {
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(arrived.len());
        let left = left - taken as u64;
        self.state = if left == 0 { State::DataEnd { known: 0 } } else { State::Data { left } };
        arrived.split_to(taken)
    }

    /// Goes on by one byte of what stands between the chunks. Gives the trailers once they are complete.
    fn take_in(&mut self, byte: u8) -> Result<Option<HeaderMap>, Malformed> {
        self.state = match (self.state, byte) {
            (State::Size { digits, size }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == 16 {
                    return Err(Malformed("a chunk is larger than any number of 64 bits"));
                }
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                State::Size { digits: digits + 1, size: size << 4 | u64::from(digit) }
            }
            (State::Size { digits: 1.., size } | State::Extension { size }, b'\r') => State::SizeEnd { size },
            (State::Size { digits: 1.., size }, b' ' | b'\t' | b';') => self.extension(size)?,
            (State::Size { .. }, _) => return Err(Malformed("a chunk's size is no number")),
            (State::Extension { .. }, b'\n') => {
                return Err(Malformed("a chunk's line ends in a bare line feed"));
            }
            (State::Extension { size }, _) => self.extension(size)?,
            (State::SizeEnd { size: 0 }, b'\n') => State::Trailers,
            (State::SizeEnd { size }, b'\n') => State::Data { left: size },
            (State::SizeEnd { .. }, _) => return Err(Malformed("a chunk's line has a bare carriage return")),
            (State::DataEnd { known: 0 }, b'\r') => State::DataEnd { known: 1 },
            (State::DataEnd { known: 1 }, b'\n') => State::default(),
            (State::DataEnd { .. }, _) => return Err(Malformed("a chunk is longer than its size")),
            (State::Trailers, _) => return self.trailer(byte),
            (state @ (State::Data { .. } | State::Ended), _) => state,
        };
        Ok(None)
    }

    fn extension(&mut self, size: u64) -> Result<State, Malformed> {
        self.extension_bytes += 1;
        if self.extension_bytes > MAX_EXTENSION_BYTES {
            return Err(Malformed("the chunks' extensions are too long"));
        }
        Ok(State::Extension { size })
    }

    fn trailer(&mut self, byte: u8) -> Result<Option<HeaderMap>, Malformed> {
        if byte == b'\n' && self.trailers.last() != Some(&b'\r') {
            return Err(Malformed("a trailer's line ends in a bare line feed"));
        }
        self.trailers.push(byte);
        if self.trailers.len() > MAX_TRAILER_BYTES {
            return Err(Malformed("the trailers are too long"));
        }
        if self.trailers != b"\r\n" && !self.trailers.ends_with(b"\r\n\r\n") {
            return Ok(None);
        }
        read_fields(&Bytes::from(std::mem::take(&mut self.trailers))).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The data and the trailers of a body that arrives in these pieces, and what is left behind its end.
    fn read(pieces: &[&[u8]]) -> Result<(Vec<u8>, HeaderMap, Vec<u8>), Malformed> {
        let (mut chunked, mut data, mut trailers) = (Chunked::default(), Vec::new(), HeaderMap::new());
        let mut behind = Vec::new();
        for piece in pieces {
            let mut arrived = Bytes::copy_from_slice(piece);
            loop {
                match chunked.step(&mut arrived)? {
                    Step::Data(bytes) => data.extend_from_slice(&bytes),
                    Step::Trailers(fields) => trailers = fields,
                    Step::Starved => break,
                    Step::End => {
                        behind.extend_from_slice(&arrived);
                        break;
                    }
                }
            }
        }
        if chunked.has_ended() { Ok((data, trailers, behind)) } else { Err(Malformed("(not ended)")) }
    }

    fn data(text: &str) -> Result<String, Malformed> {
        read(&[text.as_bytes()]).map(|(data, ..)| String::from_utf8(data).expect("text"))
    }

    #[test]
    fn chunks_make_a_body() {
        assert_eq!(data("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n").as_deref(), Ok("hello world"));
        assert_eq!(data("0\r\n\r\n").as_deref(), Ok(""));
        assert_eq!(data("00a\r\n0123456789\r\n000\r\n\r\n").as_deref(), Ok("0123456789"));
        assert_eq!(data("A\r\n0123456789\r\n0\r\n\r\n").as_deref(), Ok("0123456789"));
    }

    #[test]
    fn extensions_and_padding_are_skipped() {
        assert_eq!(data("2;a=\"b\"\r\nok\r\n0;last\r\n\r\n").as_deref(), Ok("ok"));
        assert_eq!(data("2  \r\nok\r\n0 \r\n\r\n").as_deref(), Ok("ok"));
    }

    #[test]
    fn trailers_are_read_and_framing_among_them_is_dropped() {
        let body = b"2\r\nok\r\n0\r\nx-sum: 7\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\nrest";
        let (data, trailers, behind) = read(&[body]).unwrap();
        assert_eq!((&data[..], &behind[..]), (b"ok".as_slice(), b"rest".as_slice()));
        assert_eq!(trailers, HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let long = format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(17_000));
        let trailers = format!("0\r\nx: {}\r\n\r\n", "t".repeat(17_000));
        let table = [
            "\r\n",
            ";\r\n",
            " 5\r\nhello\r\n0\r\n\r\n",
            "+5\r\nhello\r\n0\r\n\r\n",
            "-1\r\nhello\r\n0\r\n\r\n",
            "0x5\r\nhello\r\n0\r\n\r\n",
            "5\nhello\r\n0\r\n\r\n",
            "5;\nhello\r\n0\r\n\r\n",
            "5;a\nb\r\nhello\r\n0\r\n\r\n",
            "5\rhello\r\n0\r\n\r\n",
            "5;a\rb\r\nhello\r\n0\r\n\r\n",
            "5\r\nhello world\r\n0\r\n\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhello0\r\n\r\n",
            "g\r\n",
            "10000000000000005\r\nhello\r\n0\r\n\r\n",
            "00000000000000005\r\nhello\r\n0\r\n\r\n",
            "0\r\n\n",
            "0\r\nx: 1\n\r\n",
            "0\r\nx y: 1\r\n\r\n",
            "0\r\n folded\r\n\r\n",
            "0\r\nno colon\r\n\r\n",
            &long,
            &trailers,
        ];
        for text in table {
            let outcome = data(text);
            assert!(matches!(outcome, Err(Malformed(why)) if why != "(not ended)"), "{text:?}: {outcome:?}");
        }
    }

    #[test]
    fn a_body_that_breaks_off_has_not_ended() {
        for text in
            ["", "5", "5\r", "5\r\n", "5\r\nhell", "5\r\nhello", "5\r\nhello\r\n", "0\r\n", "0\r\nx: 1\r\n"]
        {
            assert_eq!(data(text), Err(Malformed("(not ended)")), "{text:?}");
        }
    }

    /// The bytes in pieces of these lengths.
    fn split<'b>(mut bytes: &'b [u8], lengths: &[usize]) -> Vec<&'b [u8]> {
        let mut pieces = Vec::new();
        for &length in lengths.iter().cycle() {
            if bytes.is_empty() {
                return pieces;
            }
            let (piece, rest) = bytes.split_at(length.min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }

    #[test]
    fn fuzzed_bodies_have_one_end_and_read_the_same_in_pieces_and_when_they_are_written_again() {
        let words = ["0\r\n\r\n", "5\r\nhello\r\n", ";a=b", "\r\n", "x-sum: 7\r\n", "ffffffffffffffff"];
        spile_testkit::fuzz::fuzz("chunked", &words, |bytes| {
            let whole = read(&[bytes]);
            assert_eq!(read(&spile_testkit::fuzz::pieces(bytes)), whole);
            let (body, trailers, behind) = match whole {
                Ok(read) => read,
                Err(Malformed(why)) => return Err(why),
            };
            let (own, _) = bytes.split_at(bytes.len() - behind.len());
            assert_eq!(read(&[&own[..own.len() - 1]]), Err(Malformed("(not ended)")));
            for framing in ["content-length", "transfer-encoding", "host", "connection", "upgrade", "te"] {
                assert!(!trailers.contains_key(framing), "{framing}");
            }
            let mut again = format!("{:x}\r\n", body.len()).into_bytes();
            if !body.is_empty() {
                again.extend_from_slice(&[&body[..], b"\r\n0\r\n"].concat());
            }
            for (name, value) in &trailers {
                again.extend_from_slice(
                    &[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat(),
                );
            }
            again.extend_from_slice(b"\r\n");
            let kind = (body.is_empty(), trailers.len());
            assert_eq!(read(&[&again]), Ok((body, trailers, Vec::new())));
            Ok(kind)
        });
    }

    proptest! {
        #[test]
        fn however_a_body_is_cut_it_reads_the_same(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..8),
            extension in "(;[a-z]{1,4}(=\"[a-z \t]{0,4}\")?)?",
            trailer in proptest::option::of("[a-z]{1,8}"),
            behind in proptest::collection::vec(any::<u8>(), 0..20),
            lengths in proptest::collection::vec(1..40_usize, 1..20),
        ) {
            let mut body = Vec::new();
            for chunk in &chunks {
                body.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
                body.extend_from_slice(chunk);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"0\r\n");
            if let Some(value) = &trailer {
                body.extend_from_slice(format!("x-sum: {value}\r\n").as_bytes());
            }
            body.extend_from_slice(b"\r\n");
            body.extend_from_slice(&behind);
            let (data, trailers, left) = read(&split(&body, &lengths)).expect("a sound body");
            prop_assert_eq!(data, chunks.concat());
            prop_assert_eq!(trailers.get("x-sum").map(|value| value.to_str().unwrap().to_owned()), trailer);
            prop_assert_eq!(left, behind);
        }

        #[test]
        fn however_anything_is_cut_it_reads_the_same(
            text in proptest::collection::vec(proptest::sample::select(b"0015af;\r\n\r\n \tx:".to_vec()), 0..60),
            lengths in proptest::collection::vec(1..9_usize, 1..9),
        ) {
            prop_assert_eq!(read(&split(&text, &lengths)), read(&[&text]));
        }
    }
}
