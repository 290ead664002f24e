//! Finds HTTP/1 requests with an ambiguous length, by parsing the bytes as they arrive, beside hyper.
//!
//! A request with both `Content-Length` and `Transfer-Encoding` has two possible ends, and a server that believes the
//! other one finds a second request in it (request smuggling). hyper uses `Transfer-Encoding` and removes
//! `Content-Length` before a handler could see both, so that they are looked for here. The result is only used to
//! refuse requests: hyper alone parses them. If this parser cannot follow the bytes but hyper may, the next request of
//! the connection is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use http::HeaderMap;
use http::header::TRANSFER_ENCODING;
use memchr::memchr;

/// How many bytes of a line are kept: enough for the names and numbers that matter. A number that does not fit cannot
/// be followed.
const KEPT: usize = 64;
const LENGTH: &[u8] = b"content-length";
const CODING: &[u8] = b"transfer-encoding";
const UPGRADE: &[u8] = b"upgrade";
/// Digits of the largest chunk.
const MAX_CHUNK_DIGITS: usize = 16;

/// Whether the only transfer coding is `chunked`, in one header line. A proxy removes that coding; it would lose any
/// other.
pub fn is_only_chunked(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(TRANSFER_ENCODING).iter();
    let first = lines.next();
    first.is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked")) && lines.next().is_none()
}

/// Follows the requests of one connection.
#[derive(Debug)]
pub(crate) struct RequestFraming {
    next: FramingState,
    /// The beginning of a line that is not complete yet.
    line: ArrayVec<u8, KEPT>,
    /// How many bytes of the line have arrived, and the last of them.
    arrived: (usize, u8),
    /// How many requests have a complete header.
    requests: u64,
    length: DeclaredLength,
    encoded: bool,
    /// Whether a request has asked for an upgrade. After that the connection may no longer be HTTP.
    upgrades: bool,
    ambiguous: FirstAmbiguous,
}

/// The `Content-Length` of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum DeclaredLength {
    Unsaid,
    Bytes(u64),
    /// Not a number, or a number that was cut off.
    Unknown,
}

/// The part of a request that the parser expects next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FramingState {
    RequestLine,
    Field,
    /// This many bytes of a body.
    Body(u64),
    ChunkSize,
    /// This many bytes of a chunk, including the line end after it.
    Chunk(u64),
    Trailer,
    /// Nothing: the rest of the connection is not parsed.
    Nothing,
}

/// The number of the first request of a connection that has two possible ends, or that follows a request whose end is
/// not known. Numbers begin with one.
#[derive(Clone, Debug)]
pub(crate) struct FirstAmbiguous(Arc<AtomicU64>);

impl FirstAmbiguous {
    /// Whether the request of this number, or one before it, is ambiguous.
    pub(crate) fn reaches(&self, request: u64) -> bool {
        self.0.load(Ordering::Relaxed) <= request
    }
}

impl RequestFraming {
    pub(crate) fn new() -> Self {
        Self {
            next: FramingState::RequestLine,
            line: ArrayVec::new(),
            arrived: (0, 0),
            requests: 0,
            length: DeclaredLength::Unsaid,
            encoded: false,
            upgrades: false,
            ambiguous: FirstAmbiguous(Arc::new(AtomicU64::new(u64::MAX))),
        }
    }

    pub(crate) fn ambiguous(&self) -> FirstAmbiguous {
        self.ambiguous.clone()
    }

    /// Whether the client is in the middle of a request, or was when the bytes could last be followed.
    pub(crate) const fn expects_more(&self) -> bool {
        let between_requests = matches!(self.next, FramingState::RequestLine) && self.arrived.0 == 0;
        !between_requests && !self.upgrades
    }

    /// Stops parsing, because the connection is not HTTP/1.
    pub(crate) const fn stop(&mut self) {
        self.next = FramingState::Nothing;
    }

    /// Parses the bytes that have arrived.
    pub(crate) fn read(&mut self, mut arrived: &[u8]) {
        while !arrived.is_empty() {
            arrived = match self.next {
                FramingState::Nothing => return,
                FramingState::Body(left) => {
                    self.skip(left, arrived, FramingState::Body, FramingState::RequestLine)
                }
                FramingState::Chunk(left) => {
                    self.skip(left, arrived, FramingState::Chunk, FramingState::ChunkSize)
                }
                _ => self.read_line(arrived),
            };
        }
    }

    fn skip<'a>(
        &mut self,
        left: u64,
        arrived: &'a [u8],
        more: fn(u64) -> FramingState,
        then: FramingState,
    ) -> &'a [u8] {
        let here = usize::try_from(left).map_or(arrived.len(), |left| left.min(arrived.len()));
        let left = left - here as u64;
        self.next = if left == 0 { then } else { more(left) };
        &arrived[here..]
    }

    /// Parses one line, or keeps the beginning of it. Returns the remaining bytes.
    fn read_line<'a>(&mut self, arrived: &'a [u8]) -> &'a [u8] {
        let Some(end) = memchr(b'\n', arrived) else {
            self.keep(arrived);
            return &[];
        };
        let piece = &arrived[..end];
        if self.arrived.0 == 0 {
            // Cut to the same length as a line that arrives in pieces, so that both give the same result.
            let kept = &piece[..piece.len().min(KEPT)];
            self.parse_line(kept, piece.len() <= KEPT, piece.ends_with(b"\r"));
        } else {
            self.keep(piece);
            let (line, (bytes, last)) = (std::mem::take(&mut self.line), std::mem::take(&mut self.arrived));
            self.parse_line(&line, bytes <= KEPT, last == b'\r');
        }
        &arrived[end + 1..]
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = self.line.remaining_capacity().min(piece.len());
        self.line.extend(piece[..room].iter().copied());
        self.arrived = (self.arrived.0 + piece.len(), piece.last().copied().unwrap_or(self.arrived.1));
    }

    /// Parses a line, or the beginning of one that is not `whole`. `returns` is true if it ended with a carriage
    /// return.
    fn parse_line(&mut self, line: &[u8], whole: bool, returns: bool) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.next {
            // Empty lines before a request are not part of it.
            FramingState::RequestLine if line.is_empty() => {}
            FramingState::RequestLine => {
                (self.length, self.encoded, self.next) = (DeclaredLength::Unsaid, false, FramingState::Field);
            }
            FramingState::Field if line.is_empty() => self.end_header(),
            FramingState::Field => self.take_field(line, whole),
            FramingState::ChunkSize => self.take_chunk_size(line),
            // In trailers hyper treats a bare line feed as part of the line.
            FramingState::Trailer if !returns => self.give_up(),
            FramingState::Trailer if line.is_empty() => self.next = FramingState::RequestLine,
            FramingState::Trailer
            | FramingState::Body(_)
            | FramingState::Chunk(_)
            | FramingState::Nothing => {}
        }
    }

    /// Stops parsing, and marks the next request as ambiguous.
    fn give_up(&mut self) {
        self.ambiguous.0.store(self.requests + 1, Ordering::Relaxed);
        self.next = FramingState::Nothing;
    }

    fn end_header(&mut self) {
        self.requests += 1;
        match (self.encoded, self.length) {
            (true, DeclaredLength::Bytes(_) | DeclaredLength::Unknown) => {
                self.ambiguous.0.store(self.requests, Ordering::Relaxed);
                self.next = FramingState::Nothing;
            }
            (true, DeclaredLength::Unsaid) => self.next = FramingState::ChunkSize,
            (false, DeclaredLength::Unsaid | DeclaredLength::Bytes(0)) => {
                self.next = FramingState::RequestLine;
            }
            (false, DeclaredLength::Bytes(length)) => self.next = FramingState::Body(length),
            // hyper refuses a length that is not a number.
            (false, DeclaredLength::Unknown) => self.give_up(),
        }
    }

    fn take_field(&mut self, line: &[u8], whole: bool) {
        // Most fields begin with other letters and need no comparison.
        match line[0] | 0x20 {
            b't' => self.encoded |= value_of(line, CODING).is_some(),
            b'u' => self.upgrades |= value_of(line, UPGRADE).is_some(),
            b'c' => {
                if let Some(value) = value_of(line, LENGTH) {
                    self.length = number(value)
                        .filter(|_| whole)
                        .map_or(DeclaredLength::Unknown, DeclaredLength::Bytes);
                }
            }
            _ => {}
        }
    }

    fn take_chunk_size(&mut self, line: &[u8]) {
        let digits = line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() <= MAX_CHUNK_DIGITS);
        match digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            Some(0) => self.next = FramingState::Trailer,
            Some(size) => self.next = FramingState::Chunk(size.saturating_add(2)),
            None => self.give_up(),
        }
    }
}

/// The value of the line if it has this name. Spaces after the name, and a colon that is missing or was cut off, are
/// tolerated.
fn value_of<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    let ends = rest.first().is_none_or(|&byte| byte == b':' || byte.is_ascii_whitespace());
    let rest = (ends && start.eq_ignore_ascii_case(name)).then_some(rest)?.trim_ascii();
    Some(rest.strip_prefix(b":").map_or(rest, <[u8]>::trim_ascii))
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use http_body_util::BodyExt;
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
        let mut framing = RequestFraming::new();
        bytes.as_bytes().chunks(piece).for_each(|piece| framing.read(piece));
        Some(framing.ambiguous.0.load(Ordering::Relaxed)).filter(|&request| request != u64::MAX)
    }

    #[test]
    fn both_framings_are_found_in_either_order_and_spelling() {
        for fields in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            "transfer-encoding:chunked\ncontent-length:0",
            "TRANSFER-ENCODING : gzip, chunked\r\nX: y\r\nContent-Length:\t4",
            "Transfer-Encoding: chunked\r\nContent-Length: abc",
            "Transfer-Encoding: chunked\r\nContent-Length: 5, 5",
            "Transfer-Encoding: chunked\r\nContent-Length: +5",
            "Transfer-Encoding: chunked\r\nContent-Length:",
            "Transfer-Encoding: chunked\r\nContent-Length",
            "Transfer-Encoding: chunked\r\nContent-Length \t: 5\r\nContent-Length: -",
            &format!("Content-Length:{}5\r\nTransfer-Encoding{}: chunked", " ".repeat(99), "\t".repeat(99)),
        ] {
            let request = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n");
            for piece in [1, 7, 64, 65, 4096] {
                assert_eq!(found(&request, piece), Some(1), "{fields}");
            }
        }
    }

    #[test]
    fn a_long_line_is_read_alike_in_one_piece_and_in_many() {
        let request = |size: &str| {
            format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{size}\r\nhello\r\n0\r\n\r\n{GET}")
        };
        for size in
            [format!("{}5", " ".repeat(99)), format!("5{}", " ".repeat(99)), format!("5;{}", "x".repeat(99))]
        {
            let request = request(&size);
            let found = [1, 7, 64, 65, 4096].map(|piece| found(&request, piece));
            assert_eq!(found, [found[0]; 5], "{size}");
        }
    }

    #[test]
    fn one_framing_is_no_fault_whatever_the_body_says() {
        for request in [GET, POST, CHUNKED, &format!("{POST}{CHUNKED}{GET}{CHUNKED}")] {
            assert_eq!(found(request, request.len()), None, "{request}");
        }
    }

    #[test]
    fn what_follows_a_request_that_cannot_be_followed_is_refused() {
        let blanks = " ".repeat(99);
        for lost in [
            format!("POST / HTTP/1.1\r\nContent-Length:{blanks}5\r\n\r\nhello"),
            format!("{CHUNKED}POST / HTTP/1.1\r\nContent-Length: 0{}5\r\n\r\nhello", "0".repeat(99)),
            format!(
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{}5\r\nhello\r\n0\r\n\r\n",
                "0".repeat(99)
            ),
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: 1\n\nX: 2\r\n\r\n".to_owned(),
            format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: {blanks}\n\nX: 2\r\n\r\n"),
        ] {
            let number = lost.matches("HTTP/1.1").count() as u64;
            for piece in [1, 7, 4096] {
                assert_eq!(found(&format!("{lost}{BOTH}"), piece), Some(number + 1), "{lost}");
            }
        }
        let sound = CHUNKED.replace("1f;x=y", &format!("1f;x={}", "y".repeat(99)));
        assert_eq!(found(&format!("{sound}{GET}{BOTH}"), 5), Some(3), "a long extension hides no size");
    }

    #[test]
    fn more_is_expected_in_the_middle_of_a_request_of_a_connection_that_stays_what_it_is() {
        let expects_more = |bytes: &str| {
            let mut framing = RequestFraming::new();
            framing.read(bytes.as_bytes());
            framing.expects_more()
        };
        for whole in ["", GET, POST, CHUNKED, &format!("{GET}{POST}")] {
            assert!(!expects_more(whole), "{whole}");
        }
        for part in ["G", &GET[..20], &POST[..POST.len() - 1], &CHUNKED[..CHUNKED.len() - 1], BOTH] {
            assert!(expects_more(part), "{part}");
        }
        let upgrade = "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n";
        assert!(!expects_more(&format!("{upgrade}any bytes")), "a tunnel is no request");
    }

    #[test]
    fn the_request_is_told_by_its_number() {
        let found_at = |before: &str| found(&format!("{before}{BOTH}{GET}"), 4096);
        assert_eq!(found_at(""), Some(1));
        assert_eq!(found_at("\r\n\r\n"), Some(1), "empty lines before a request are not one");
        assert_eq!(found_at(&format!("{GET}{POST}{CHUNKED}{GET}")), Some(5));
    }

    /// Parses the bytes with hyper: returns the number of requests that it sees, and whether it found no fault and would
    /// have gone on.
    async fn by_hyper(bytes: &[u8]) -> (u64, bool) {
        let (seen, goes_on) = (AtomicU64::new(0), AtomicBool::new(true));
        let service = hyper::service::service_fn(|request: hyper::Request<hyper::body::Incoming>| {
            seen.fetch_add(1, Ordering::Relaxed);
            // These end the connection, or make something else of it.
            let ends =
                request.headers().contains_key("connection") || request.method() == http::Method::CONNECT;
            if ends || request.version() != http::Version::HTTP_11 {
                goes_on.store(false, Ordering::Relaxed);
            }
            async { request.into_body().collect().await.map(|_| hyper::Response::new(String::new())) }
        });
        let stream = hyper_util::rt::TokioIo::new(tokio::io::join(bytes, tokio::io::sink()));
        let served = hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await;
        (seen.into_inner(), served.is_ok() && goes_on.into_inner())
    }

    #[test]
    fn fuzzed_requests_are_counted_as_hyper_counts_them_or_are_refused() {
        let words = [
            GET,
            POST,
            CHUNKED,
            "\r\n",
            "\n",
            "0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Content-Length: 5\r\n",
            "5;a\r\nhello\r\n",
            "GET /a HTTP/1.1\r\n",
        ];
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        spile_testkit::fuzz::fuzz("http1-request", &words, |bytes| {
            let read = |pieces: &[&[u8]]| {
                let mut framing = RequestFraming::new();
                for piece in pieces {
                    framing.read(piece);
                    assert!(framing.line.len() <= KEPT);
                }
                (framing.requests, framing.ambiguous.0.load(Ordering::Relaxed), framing.expects_more())
            };
            let (counted, found, expects_more) = read(&[bytes]);
            assert_eq!(read(&spile_testkit::fuzz::pieces(bytes)), (counted, found, expects_more));
            let (seen, goes_on) = runtime.block_on(by_hyper(bytes));
            // A request that hyper sees and that is not counted here would be judged by the number of another.
            assert!(seen <= counted || found <= seen, "hyper sees {seen}, counted are {counted}");
            assert!(
                !goes_on || seen == counted || found <= seen + 1,
                "hyper sees {seen}, counted are {counted}"
            );
            (counted.min(4), seen.min(4), found == u64::MAX, expects_more, goes_on)
        });
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
            let mut framing = RequestFraming::new();
            bytes.chunks(piece).for_each(|piece| framing.read(piece));
            prop_assert!(framing.line.len() <= KEPT);
        }
    }
}
