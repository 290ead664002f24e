//! A strict, incremental decoder of chunked bodies.

use bytes::{Buf, Bytes};
use http::HeaderMap;

use super::MalformedResponse;
use super::head::read_fields;

/// The most bytes of extensions and padding in one body. They are not forwarded.
const MAX_EXTENSION_BYTES: u32 = 16 * 1024;
const MAX_TRAILER_BYTES: usize = 16 * 1024;

/// Decodes one body.
#[derive(Debug, Default)]
pub(super) struct ChunkedDecoder {
    state: ChunkState,
    extension_bytes: u32,
    trailers: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum ChunkState {
    /// In the size of a chunk, after this many digits.
    Size {
        digits: u8,
        size: u64,
    },
    /// After a size, in the padding or extensions of its line.
    Extension {
        size: u64,
    },
    /// After the carriage return of the line with the size.
    SizeEnd {
        size: u64,
    },
    /// In a chunk of which this many bytes are left.
    Data {
        left: u64,
    },
    /// After a chunk, with this many bytes of its line end read.
    DataEnd {
        known: usize,
    },
    Trailers,
    Ended,
}

/// The result of one step.
#[derive(Debug, PartialEq)]
pub(super) enum ChunkStep {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
    /// More bytes are needed.
    NeedsMore,
}

impl Default for ChunkState {
    fn default() -> Self {
        Self::Size { digits: 0, size: 0 }
    }
}

impl ChunkedDecoder {
    /// Decodes the next part of the bytes that have arrived.
    pub(super) fn step(&mut self, arrived: &mut Bytes) -> Result<ChunkStep, MalformedResponse> {
        while !arrived.is_empty() {
            if let ChunkState::Data { left } = self.state {
                return Ok(ChunkStep::Data(self.data(left, arrived)));
            }
            if matches!(self.state, ChunkState::Ended) {
                return Ok(ChunkStep::End);
            }
            let byte = arrived.get_u8();
            if let Some(trailers) = self.push_byte(byte)? {
                self.state = ChunkState::Ended;
                return Ok(if trailers.is_empty() { ChunkStep::End } else { ChunkStep::Trailers(trailers) });
            }
        }
        Ok(if self.has_ended() { ChunkStep::End } else { ChunkStep::NeedsMore })
    }

    pub(super) const fn has_ended(&self) -> bool {
        matches!(self.state, ChunkState::Ended)
    }

    fn data(&mut self, left: u64, arrived: &mut Bytes) -> Bytes {
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(arrived.len());
        let left = left - taken as u64;
        self.state = if left == 0 { ChunkState::DataEnd { known: 0 } } else { ChunkState::Data { left } };
        arrived.split_to(taken)
    }

    /// Consumes one byte between chunks. Returns the trailers once they are complete.
    fn push_byte(&mut self, byte: u8) -> Result<Option<HeaderMap>, MalformedResponse> {
        self.state = match (self.state, byte) {
            (ChunkState::Size { digits, size }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == 16 {
                    return Err(MalformedResponse("a chunk is larger than any number of 64 bits"));
                }
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                ChunkState::Size { digits: digits + 1, size: size << 4 | u64::from(digit) }
            }
            (ChunkState::Size { digits: 1.., size } | ChunkState::Extension { size }, b'\r') => {
                ChunkState::SizeEnd { size }
            }
            (ChunkState::Size { digits: 1.., size }, b' ' | b'\t' | b';') => self.extension(size)?,
            (ChunkState::Size { .. }, _) => return Err(MalformedResponse("a chunk's size is not a number")),
            (ChunkState::Extension { .. }, b'\n') => {
                return Err(MalformedResponse("a chunk's line ends in a bare line feed"));
            }
            (ChunkState::Extension { size }, _) => self.extension(size)?,
            (ChunkState::SizeEnd { size: 0 }, b'\n') => ChunkState::Trailers,
            (ChunkState::SizeEnd { size }, b'\n') => ChunkState::Data { left: size },
            (ChunkState::SizeEnd { .. }, _) => {
                return Err(MalformedResponse("a chunk's line has a bare carriage return"));
            }
            (ChunkState::DataEnd { known: 0 }, b'\r') => ChunkState::DataEnd { known: 1 },
            (ChunkState::DataEnd { known: 1 }, b'\n') => ChunkState::default(),
            (ChunkState::DataEnd { .. }, _) => {
                return Err(MalformedResponse("a chunk is longer than its size"));
            }
            (ChunkState::Trailers, _) => return self.trailer(byte),
            (state @ (ChunkState::Data { .. } | ChunkState::Ended), _) => state,
        };
        Ok(None)
    }

    fn extension(&mut self, size: u64) -> Result<ChunkState, MalformedResponse> {
        self.extension_bytes += 1;
        if self.extension_bytes > MAX_EXTENSION_BYTES {
            return Err(MalformedResponse("the chunks' extensions are too long"));
        }
        Ok(ChunkState::Extension { size })
    }

    fn trailer(&mut self, byte: u8) -> Result<Option<HeaderMap>, MalformedResponse> {
        if byte == b'\n' && self.trailers.last() != Some(&b'\r') {
            return Err(MalformedResponse("a trailer's line ends in a bare line feed"));
        }
        self.trailers.push(byte);
        if self.trailers.len() > MAX_TRAILER_BYTES {
            return Err(MalformedResponse("the trailers are too long"));
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

    /// The data and trailers of a body that arrives in these pieces, and the bytes after its end.
    fn read(pieces: &[&[u8]]) -> Result<(Vec<u8>, HeaderMap, Vec<u8>), MalformedResponse> {
        let (mut chunked, mut data, mut trailers) = (ChunkedDecoder::default(), Vec::new(), HeaderMap::new());
        let mut behind = Vec::new();
        for piece in pieces {
            let mut arrived = Bytes::copy_from_slice(piece);
            loop {
                match chunked.step(&mut arrived)? {
                    ChunkStep::Data(bytes) => data.extend_from_slice(&bytes),
                    ChunkStep::Trailers(fields) => trailers = fields,
                    ChunkStep::NeedsMore => break,
                    ChunkStep::End => {
                        behind.extend_from_slice(&arrived);
                        break;
                    }
                }
            }
        }
        if chunked.has_ended() { Ok((data, trailers, behind)) } else { Err(MalformedResponse("(not ended)")) }
    }

    fn data(text: &str) -> Result<String, MalformedResponse> {
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
            assert!(
                matches!(outcome, Err(MalformedResponse(why)) if why != "(not ended)"),
                "{text:?}: {outcome:?}"
            );
        }
    }

    #[test]
    fn a_body_that_breaks_off_has_not_ended() {
        for text in
            ["", "5", "5\r", "5\r\n", "5\r\nhell", "5\r\nhello", "5\r\nhello\r\n", "0\r\n", "0\r\nx: 1\r\n"]
        {
            assert_eq!(data(text), Err(MalformedResponse("(not ended)")), "{text:?}");
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
                Err(MalformedResponse(why)) => return Err(why),
            };
            let (own, _) = bytes.split_at(bytes.len() - behind.len());
            assert_eq!(read(&[&own[..own.len() - 1]]), Err(MalformedResponse("(not ended)")));
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
