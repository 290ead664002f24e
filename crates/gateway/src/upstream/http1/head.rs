//! A strict, incremental parser of response headers.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;

use super::MalformedResponse;
use crate::upstream::header_maps;

const MAX_BYTES: usize = 64 * 1024;
const MAX_FIELDS: usize = 100;
/// The most interim responses (100, 103 and others) before the final one.
const MAX_INTERIM: u32 = 16;
/// The number of fields that the gateway adds to a response, for which room is reserved at once.
const ADDED_FIELDS: usize = 8;

/// Collects a header as it arrives.
#[derive(Debug, Default)]
pub(super) struct HeadReader {
    arrived: Bytes,
    /// The number of bytes in which the end was not found.
    looked_at: usize,
    interim: u32,
}

impl HeadReader {
    /// The header of the final response once it is complete, and the bytes after it.
    pub(super) fn push(&mut self, more: Bytes) -> Result<Option<(Response<()>, Bytes)>, MalformedResponse> {
        self.arrived = if self.arrived.is_empty() { more } else { joined(&self.arrived, &more) };
        while let Some(end) = end_of_head(&self.arrived, self.looked_at)? {
            self.looked_at = 0;
            let head = parse(&self.arrived.split_to(end))?;
            if !is_interim(head.status()) {
                return Ok(Some((head, std::mem::take(&mut self.arrived))));
            }
            self.interim += 1;
            if self.interim > MAX_INTERIM {
                return Err(MalformedResponse("too many interim answers"));
            }
        }
        self.looked_at = self.arrived.len();
        if self.looked_at > MAX_BYTES {
            return Err(MalformedResponse("the header is too long"));
        }
        Ok(None)
    }

    /// Whether any bytes have arrived.
    pub(super) fn has_begun(&self) -> bool {
        self.interim > 0 || !self.arrived.is_empty()
    }
}

/// Parses trailers. Fields that frame or route a message are removed, because they are not allowed in trailers.
pub(super) fn read_fields(trailers: &Bytes) -> Result<HeaderMap, MalformedResponse> {
    let mut room = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let fields = match httparse::parse_headers(trailers, &mut room) {
        Ok(httparse::Status::Complete((_, fields))) => fields_of(trailers, fields, 0),
        _ => Err(MalformedResponse("the trailers cannot be read")),
    };
    let mut fields = fields?;
    for name in [CONNECTION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE] {
        fields.remove(name);
    }
    Ok(fields)
}

const fn is_interim(status: StatusCode) -> bool {
    matches!(status.as_u16(), 100 | 102..=199)
}

fn joined(first: &[u8], second: &[u8]) -> Bytes {
    let mut both = BytesMut::with_capacity(first.len() + second.len());
    both.extend_from_slice(first);
    both.extend_from_slice(second);
    both.freeze()
}

/// The end of the header, if it has arrived. Lines must end in CR LF, because servers disagree about a bare LF.
fn end_of_head(bytes: &[u8], looked_at: usize) -> Result<Option<usize>, MalformedResponse> {
    for step in memchr::memchr_iter(b'\n', &bytes[looked_at..]) {
        let line = &bytes[..=looked_at + step];
        if !line.ends_with(b"\r\n") {
            return Err(MalformedResponse("a line of the header ends in a bare line feed"));
        }
        if line.ends_with(b"\r\n\r\n") {
            return if line.len() <= MAX_BYTES {
                Ok(Some(line.len()))
            } else {
                Err(MalformedResponse("the header is too long"))
            };
        }
    }
    Ok(None)
}

fn parse(head: &Bytes) -> Result<Response<()>, MalformedResponse> {
    if !head.starts_with(b"HTTP/1.") {
        return Err(MalformedResponse("the header does not start with a version"));
    }
    let mut room = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let outcome =
        httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, head, &mut room);
    let (Ok(httparse::Status::Complete(_)), Some(code)) = (outcome, parsed.code) else {
        return Err(MalformedResponse("the header cannot be read"));
    };
    let mut response = Response::new(());
    *response.status_mut() =
        StatusCode::from_u16(code).map_err(|_| MalformedResponse("the status is none"))?;
    *response.version_mut() = if parsed.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    *response.headers_mut() = fields_of(head, parsed.headers, ADDED_FIELDS)?;
    keep_reason(&mut response, parsed.reason.unwrap_or_default());
    Ok(response)
}

/// Keeps a reason phrase that is not the usual one for the status.
fn keep_reason(response: &mut Response<()>, reason: &str) {
    if response.status().canonical_reason() != Some(reason)
        && let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes())
    {
        response.extensions_mut().insert(reason);
    }
}

/// The parsed fields. Their values are slices of `arrived`.
fn fields_of(
    arrived: &Bytes,
    parsed: &[httparse::Header<'_>],
    to_come: usize,
) -> Result<HeaderMap, MalformedResponse> {
    let mut fields = header_maps::take(parsed.len() + to_come);
    for field in parsed {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(arrived.slice_ref(field.value));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(MalformedResponse("a field of the header cannot be read"));
        };
        fields.append(name, value);
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Result<Option<(Response<()>, Bytes)>, MalformedResponse> {
        let mut reader = HeadReader::default();
        let mut found: Option<(Response<()>, Bytes)> = None;
        for piece in pieces {
            match &mut found {
                None => found = reader.push(Bytes::copy_from_slice(piece))?,
                Some((_, behind)) => *behind = joined(behind, piece),
            }
        }
        Ok(found)
    }

    fn whole(text: &str) -> Result<Option<(Response<()>, Bytes)>, MalformedResponse> {
        read(&[text.as_bytes()])
    }

    #[test]
    fn a_header_is_a_status_and_fields() {
        let text =
            "HTTP/1.1 404 Not Found\r\nServer: x\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nEmpty:\r\n\r\nbody";
        let (head, behind) = whole(text).unwrap().unwrap();
        assert_eq!((head.status().as_u16(), head.version()), (404, Version::HTTP_11));
        assert_eq!(head.headers().get_all("set-cookie").iter().collect::<Vec<_>>(), ["a=1", "b=2"]);
        assert_eq!((head.headers().len(), &head.headers()["empty"]), (4, &HeaderValue::from_static("")));
        assert_eq!(behind, "body");
        assert!(head.extensions().is_empty(), "the usual reason is not remembered");
    }

    #[test]
    fn an_unusual_reason_is_kept() {
        let (head, _) = whole("HTTP/1.0 302 Moved Temporarily\r\n\r\n").unwrap().unwrap();
        assert_eq!(head.version(), Version::HTTP_10);
        assert_eq!(head.extensions().get::<ReasonPhrase>().unwrap().as_bytes(), b"Moved Temporarily");
    }

    #[test]
    fn interim_answers_are_skipped_up_to_a_number() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\r\nx";
        let (head, behind) = whole(text).unwrap().unwrap();
        assert_eq!((head.status(), &behind[..]), (StatusCode::OK, b"x".as_slice()));
        assert!(head.headers().is_empty(), "nothing of an interim answer is mixed in");
        assert!(whole(&"HTTP/1.1 100 Continue\r\n\r\n".repeat(17)).is_err());
    }

    #[test]
    fn a_switch_of_protocols_is_no_interim_answer() {
        let (head, _) = whole("HTTP/1.1 101 Switching Protocols\r\n\r\n").unwrap().unwrap();
        assert_eq!(head.status(), StatusCode::SWITCHING_PROTOCOLS);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: 1\r\n".repeat(101));
        let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(70_000));
        let table = [
            "HTTP/1.1 200 OK\n\n",
            "HTTP/1.1 200 OK\nx: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx: 1\ncontent-length: 3\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx: 1\n\n",
            "HTTP/1.1 200 OK\r\nx: 1\rcontent-length: 3\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx: a\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\n folded: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length : 3\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent length: 3\r\n\r\n",
            "HTTP/1.1 200 OK\r\n: 3\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "\r\nHTTP/1.1 200 OK\r\n\r\n",
            "\r\n\r\n",
            "200 OK\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.2 200 OK\r\n\r\n",
            "HTTP/1.1 99 Low\r\n\r\n",
            "HTTP/1.1 000 Zero\r\n\r\n",
            "HTTP/1.1 2000 Long\r\n\r\n",
            "HTTP/1.1 +20 Signed\r\n\r\n",
            "HTTP/1.1  200 OK\r\n\r\n",
            "ICY 200 OK\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n\r\n",
            &many,
            &long,
        ];
        for text in table {
            assert!(whole(text).is_err(), "{text:.60}");
        }
    }

    #[test]
    fn a_header_without_an_end_is_given_up() {
        let mut reader = HeadReader::default();
        let fed = (0..1_000).find(|_| reader.push(Bytes::from_static(&[b'x'; 1_000])).is_err());
        assert_eq!(fed, Some(65), "the first byte above 64 KiB is one too many");
    }

    /// Everything by which two readings can differ.
    type Told = (StatusCode, Version, HeaderMap, Vec<u8>, Vec<u8>);

    fn last_warned(
        read: Result<Option<(Response<()>, Bytes)>, MalformedResponse>,
    ) -> Result<Option<Told>, MalformedResponse> {
        let (head, behind) = match read {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(None),
            Err(why) => return Err(why),
        };
        let reason = head.extensions().get::<ReasonPhrase>().map(|reason| reason.as_bytes().to_vec());
        let (status, version) = (head.status(), head.version());
        let usual = || status.canonical_reason().unwrap_or_default().as_bytes().to_vec();
        Ok(Some((status, version, head.headers().clone(), reason.unwrap_or_else(usual), behind.to_vec())))
    }

    #[test]
    fn fuzzed_headers_have_one_end_and_read_the_same_in_pieces_and_when_they_are_written_again() {
        let words = [
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.0 302 Found\r\n",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "\r\n\r\n",
            "content-length: 5\r\n",
            "transfer-encoding: chunked\r\n",
            "connection: close\r\n",
            "\n",
        ];
        spile_testkit::fuzz::fuzz("http1-answer", &words, |bytes| {
            let whole = last_warned(read(&[bytes]));
            assert_eq!(last_warned(read(&spile_testkit::fuzz::pieces(bytes))), whole);
            let (status, version, headers, reason, behind) = match whole {
                Ok(Some(read)) => read,
                Ok(None) => return Ok(None),
                Err(MalformedResponse(why)) => return Err(why),
            };
            let (own, _) = bytes.split_at(bytes.len() - behind.len());
            assert!(own.ends_with(b"\r\n\r\n"));
            assert_eq!(last_warned(read(&[&own[..own.len() - 1]])), Ok(None), "a header has one end");
            let mut again = format!("{version:?} {} ", status.as_u16()).into_bytes();
            again.extend_from_slice(&[&reason[..], b"\r\n"].concat());
            for (name, value) in &headers {
                again
                    .extend_from_slice(&[name.as_str().as_bytes(), b":", value.as_bytes(), b"\r\n"].concat());
            }
            again.extend_from_slice(&[b"\r\n", &behind[..]].concat());
            assert_eq!(
                last_warned(read(&[&again])),
                Ok(Some((status, version, headers.clone(), reason, behind)))
            );
            let mut answer = Response::builder().status(status).version(version).body(()).expect("an answer");
            *answer.headers_mut() = headers;
            let framing = super::super::framing::ResponseFraming::of(&http::Method::GET, &answer);
            framing
                .map(|framing| Some(format!("{:?}", std::mem::discriminant(&framing.length))))
                .map_err(|why| why.0)
        });
    }

    proptest! {
        #[test]
        fn however_a_header_is_cut_it_reads_the_same(
            value in "[!-~]([ -~]{0,30}[!-~])?",
            behind in proptest::collection::vec(any::<u8>(), 0..30),
            at in proptest::collection::vec(0..200_usize, 0..6),
        ) {
            let mut bytes = format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nx-any: {value}\r\n\r\n").into_bytes();
            bytes.extend_from_slice(&behind);
            let mut at = at;
            at.retain(|&cut| cut < bytes.len());
            at.sort_unstable();
            let ends = at.iter().copied().chain([bytes.len()]);
            let mut start = 0;
            let pieces: Vec<_> = ends.map(|end| &bytes[std::mem::replace(&mut start, end)..end]).collect();
            let (head, left) = read(&pieces).expect("a sound header").expect("a whole one");
            prop_assert_eq!(&head.headers()["x-any"], &HeaderValue::from_str(&value).unwrap());
            prop_assert_eq!(&left[..], &behind[..]);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _outcome = read(&[&bytes]);
            let _outcome = read(&[b"HTTP/1.1 200 OK\r\n", &bytes, b"\r\n\r\n"]);
        }
    }
}
