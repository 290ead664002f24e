//! How HTTP/1 requests say where they end, read along from the bytes as they arrive.
//!
//! A request with both `Content-Length` and `Transfer-Encoding` has two ends, and whoever believes the other one finds a
//! second request in it. hyper goes by the latter and drops the former before anybody could see that there were two,
//! so they are looked for here. This only ever leads to a refusal: what a request is, hyper alone says. Where the two
//! should read differently, a refusal is missed, and hyper still forwards one framing and closes the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use memchr::memchr;

/// What is kept of a line that arrives in pieces: enough for the names and numbers that matter.
const KEPT: usize = 64;
const CONTENT_LENGTH: &[u8] = b"content-length";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding";

/// Reads along on one connection.
#[derive(Debug)]
pub(crate) struct Framing {
    next: Next,
    /// The beginning of a line that has not arrived whole.
    line: ArrayVec<u8, KEPT>,
    /// Requests whose header has arrived.
    requests: u64,
    length: Option<u64>,
    encoded: bool,
    found: Ambiguity,
}

/// What comes next on the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Next {
    RequestLine,
    Field,
    /// So many bytes of a body.
    Body(u64),
    ChunkSize,
    /// So many bytes of a chunk and the line end after it.
    Chunk(u64),
    Trailer,
    /// Nothing that matters here.
    Nothing,
}

/// Which request of a connection has two ends: the first is number one.
#[derive(Clone, Debug)]
pub(crate) struct Ambiguity(Arc<AtomicU64>);

impl Ambiguity {
    /// Whether the request of this number, or one before it, has two ends.
    pub(crate) fn reaches(&self, request: u64) -> bool {
        self.0.load(Ordering::Relaxed) <= request
    }
}

impl Framing {
    pub(crate) fn new() -> Self {
        Self {
            next: Next::RequestLine,
            line: ArrayVec::new(),
            requests: 0,
            length: None,
            encoded: false,
            found: Ambiguity(Arc::new(AtomicU64::new(u64::MAX))),
        }
    }

    pub(crate) fn found(&self) -> Ambiguity {
        self.found.clone()
    }

    /// Looks no further: this is not HTTP/1.
    pub(crate) const fn stop(&mut self) {
        self.next = Next::Nothing;
    }

    /// Reads what has arrived.
    pub(crate) fn read(&mut self, mut arrived: &[u8]) {
        while !arrived.is_empty() {
            arrived = match self.next {
                Next::Nothing => return,
                Next::Body(left) => self.skip(left, arrived, Next::Body, Next::RequestLine),
                Next::Chunk(left) => self.skip(left, arrived, Next::Chunk, Next::ChunkSize),
                _ => self.read_line(arrived),
            };
        }
    }

    fn skip<'a>(&mut self, left: u64, arrived: &'a [u8], more: fn(u64) -> Next, then: Next) -> &'a [u8] {
        let here = usize::try_from(left).map_or(arrived.len(), |left| left.min(arrived.len()));
        let left = left - here as u64;
        self.next = if left == 0 { then } else { more(left) };
        &arrived[here..]
    }

    /// Takes one line, or keeps the beginning of it. Gives what is left.
    fn read_line<'a>(&mut self, arrived: &'a [u8]) -> &'a [u8] {
        let Some(end) = memchr(b'\n', arrived) else {
            self.keep(arrived);
            return &[];
        };
        if self.line.is_empty() {
            self.take(&arrived[..end]);
        } else {
            self.keep(&arrived[..end]);
            let line = std::mem::take(&mut self.line);
            self.take(&line);
        }
        &arrived[end + 1..]
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = self.line.remaining_capacity().min(piece.len());
        self.line.extend(piece[..room].iter().copied());
    }

    fn take(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.next {
            // Empty lines before a request are not part of it.
            Next::RequestLine if line.is_empty() => {}
            Next::RequestLine => {
                (self.length, self.encoded, self.next) = (None, false, Next::Field);
            }
            Next::Field if line.is_empty() => self.end_header(),
            Next::Field => self.take_field(line),
            Next::ChunkSize => self.take_chunk_size(line),
            Next::Trailer if line.is_empty() => self.next = Next::RequestLine,
            Next::Trailer | Next::Body(_) | Next::Chunk(_) | Next::Nothing => {}
        }
    }

    fn end_header(&mut self) {
        self.requests += 1;
        self.next = match (self.encoded, self.length) {
            (true, Some(_)) => {
                self.found.0.store(self.requests, Ordering::Relaxed);
                Next::Nothing
            }
            (true, None) => Next::ChunkSize,
            (false, None | Some(0)) => Next::RequestLine,
            (false, Some(length)) => Next::Body(length),
        };
    }

    fn take_field(&mut self, line: &[u8]) {
        // Few fields begin with one of these letters, and most need no further look.
        match line[0] | 0x20 {
            b't' => self.encoded |= value_of(line, TRANSFER_ENCODING).is_some(),
            b'c' => match value_of(line, CONTENT_LENGTH).map(whole) {
                None => {}
                Some(Some(length)) => self.length = Some(length),
                // hyper refuses what is no number; whether there were two framings is then beside the point.
                Some(None) => self.next = Next::Nothing,
            },
            _ => {}
        }
    }

    fn take_chunk_size(&mut self, line: &[u8]) {
        let digits = line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        let size = std::str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
        self.next = match size {
            Some(0) => Next::Trailer,
            Some(size) => Next::Chunk(size.saturating_add(2)),
            None => Next::Nothing,
        };
    }
}

/// The value of the field, where the line is of that name. A space before the colon makes no other name of it.
fn value_of<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    let rest = start.eq_ignore_ascii_case(name).then_some(rest)?;
    rest.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii)
}

fn whole(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GET: &str = "GET / HTTP/1.1\r\nHost: g\r\nAccept: */*\r\n\r\n";
    const POST: &str = "POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &str = "PUT / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n\
        1f;x=y\r\n\r\nContent-Length: 5\r\n\r\n GET /\r\n\r\n0\r\nContent-Length: 7\r\n\r\n";
    const BOTH: &str =
        "POST / HTTP/1.1\r\nHost: g\r\ncontent-length: 5\r\nTRANSFER-ENCODING: chunked\r\n\r\n";

    /// The number of the request that has two ends, where one has, with the bytes arriving in pieces of this size.
    fn found(bytes: &str, piece: usize) -> Option<u64> {
        let mut framing = Framing::new();
        bytes.as_bytes().chunks(piece).for_each(|piece| framing.read(piece));
        Some(framing.found.0.load(Ordering::Relaxed)).filter(|&request| request != u64::MAX)
    }

    #[test]
    fn both_framings_are_found_in_either_order_and_spelling() {
        for fields in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            "transfer-encoding:chunked\ncontent-length:0",
            "TRANSFER-ENCODING : gzip, chunked\r\nX: y\r\nContent-Length:\t4",
        ] {
            let request = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n");
            assert_eq!(found(&request, 7), Some(1), "{fields}");
        }
    }

    #[test]
    fn one_framing_is_no_fault_whatever_the_body_says() {
        for request in [GET, POST, CHUNKED, &format!("{POST}{CHUNKED}{GET}{CHUNKED}")] {
            assert_eq!(found(request, request.len()), None, "{request}");
        }
    }

    #[test]
    fn the_request_is_told_by_its_number() {
        let found_at = |before: &str| found(&format!("{before}{BOTH}{GET}"), 4096);
        assert_eq!(found_at(""), Some(1));
        assert_eq!(found_at("\r\n\r\n"), Some(1), "empty lines before a request are not one");
        assert_eq!(found_at(&format!("{GET}{POST}{CHUNKED}{GET}")), Some(5));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            before in proptest::collection::vec(proptest::sample::select(vec![GET, POST, CHUNKED]), 0..6),
            piece in 1_usize..80,
        ) {
            let bytes = before.concat() + BOTH;
            prop_assert_eq!(found(&bytes, piece), Some(before.len() as u64 + 1));
        }

        #[test]
        fn whatever_arrives_is_read_to_its_end(bytes: Vec<u8>, piece in 1_usize..80) {
            let mut framing = Framing::new();
            bytes.chunks(piece).for_each(|piece| framing.read(piece));
            prop_assert!(framing.line.len() <= KEPT);
        }
    }
}
