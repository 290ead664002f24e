//! The length of a response's body, and whether the connection can be used again after it.

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use http::{Method, Response, StatusCode, Version};

use super::MalformedResponse;

/// Where the body of a response ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BodyLength {
    /// There is no body.
    None,
    Exact(u64),
    Chunked,
    /// At the end of the connection.
    UntilClose,
}

/// The framing of a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ResponseFraming {
    pub(super) length: BodyLength,
    /// Whether the connection can be used again. It cannot if a response that has no body announces one: some upstreams
    /// send it late, and it would be taken for the response to the next request.
    pub(super) keeps_alive: bool,
}

/// The fields that determine the framing.
#[derive(Default)]
struct FramingFields<'h> {
    length: Option<&'h [u8]>,
    coding: Option<&'h [u8]>,
    close: bool,
    keep_alive: bool,
}

impl ResponseFraming {
    /// The framing of a response to a request with this method. Ambiguous framing (two lengths, or a length and a
    /// coding) is refused: it is how one response is smuggled in as two.
    pub(super) fn of<B>(method: &Method, answer: &Response<B>) -> Result<Self, MalformedResponse> {
        let (version, status) = (answer.version(), answer.status());
        let fields = FramingFields::of(answer.headers())?;
        let exact = fields.length.map(number).transpose()?;
        let chunked = fields.coding.map(only_chunked).transpose()?.is_some();
        if chunked && exact.is_some() {
            return Err(MalformedResponse("the body has both a length and a coding"));
        }
        if chunked && version == Version::HTTP_10 {
            return Err(MalformedResponse("HTTP/1.0 knows no codings of a body"));
        }
        let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let length = match exact {
            _ if method == Method::HEAD || bodiless || status.is_informational() => BodyLength::None,
            Some(0) => BodyLength::None,
            Some(bytes) => BodyLength::Exact(bytes),
            None if chunked => BodyLength::Chunked,
            None => BodyLength::UntilClose,
        };
        let announces_more = length == BodyLength::None && (chunked || exact.is_some_and(|bytes| bytes > 0));
        let goes_on = !fields.close && (version != Version::HTTP_10 || fields.keep_alive);
        Ok(Self { length, keeps_alive: goes_on && !announces_more })
    }
}

impl<'h> FramingFields<'h> {
    /// Iterates over all fields once, which is faster than a lookup for each.
    fn of(headers: &'h HeaderMap) -> Result<Self, MalformedResponse> {
        let mut found = Self::default();
        for (name, value) in headers {
            if *name == CONTENT_LENGTH {
                if found.length.replace(value.as_bytes()).is_some() {
                    return Err(MalformedResponse("the body has two lengths"));
                }
            } else if *name == TRANSFER_ENCODING {
                if found.coding.replace(value.as_bytes()).is_some() {
                    return Err(MalformedResponse("the body has two codings"));
                }
            } else if *name == CONNECTION {
                let options = value.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
                for option in options {
                    found.close |= option.eq_ignore_ascii_case(b"close");
                    found.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
        }
        Ok(found)
    }
}

fn number(length: &[u8]) -> Result<u64, MalformedResponse> {
    let digits =
        std::str::from_utf8(length).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or(MalformedResponse("the body's length is not a number"))
}

/// Any other coding would not reach the client.
fn only_chunked(coding: &[u8]) -> Result<(), MalformedResponse> {
    if coding.eq_ignore_ascii_case(b"chunked") {
        Ok(())
    } else {
        Err(MalformedResponse("the body has a coding other than chunked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, version: Version, fields: &[(&str, &str)]) -> Response<()> {
        let mut answer = Response::builder().status(status).version(version);
        for (name, value) in fields {
            answer = answer.header(*name, *value);
        }
        answer.body(()).expect("an answer")
    }

    fn length(
        method: &Method,
        status: u16,
        fields: &[(&str, &str)],
    ) -> Result<BodyLength, MalformedResponse> {
        ResponseFraming::of(method, &answer(status, Version::HTTP_11, fields)).map(|framing| framing.length)
    }

    #[test]
    fn a_body_ends_where_its_length_its_coding_or_the_connection_says() {
        let get = |fields: &[(&str, &str)]| length(&Method::GET, 200, fields);
        assert_eq!(get(&[("content-length", "7")]), Ok(BodyLength::Exact(7)));
        assert_eq!(get(&[("content-length", "0")]), Ok(BodyLength::None));
        assert_eq!(get(&[("transfer-encoding", "Chunked")]), Ok(BodyLength::Chunked));
        assert_eq!(get(&[]), Ok(BodyLength::UntilClose));
    }

    #[test]
    fn some_answers_have_no_body_whatever_they_say() {
        for framing in [("content-length", "7"), ("transfer-encoding", "chunked")] {
            assert_eq!(length(&Method::HEAD, 200, &[framing]), Ok(BodyLength::None));
            for status in [101, 204, 304] {
                assert_eq!(length(&Method::GET, status, &[framing]), Ok(BodyLength::None));
            }
        }
    }

    #[test]
    fn a_body_with_two_readings_is_refused() {
        let table: &[&[(&str, &str)]] = &[
            &[("content-length", "5"), ("transfer-encoding", "chunked")],
            &[("content-length", "5"), ("content-length", "6")],
            &[("content-length", "5"), ("content-length", "5")],
            &[("content-length", "5, 5")],
            &[("content-length", "+5")],
            &[("content-length", "-5")],
            &[("content-length", "0x5")],
            &[("content-length", "5 6")],
            &[("content-length", "")],
            &[("content-length", "18446744073709551616")],
            &[("transfer-encoding", "gzip, chunked")],
            &[("transfer-encoding", "chunked, identity")],
            &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
            &[("transfer-encoding", "identity")],
            &[("transfer-encoding", "xchunked")],
            &[("transfer-encoding", "")],
        ];
        for fields in table {
            for method in [Method::GET, Method::HEAD] {
                assert!(length(&method, 200, fields).is_err(), "{fields:?}");
            }
        }
        let old = answer(200, Version::HTTP_10, &[("transfer-encoding", "chunked")]);
        assert!(ResponseFraming::of(&Method::GET, &old).is_err());
    }

    #[test]
    fn a_connection_ends_after_an_answer_that_announces_a_body_it_must_not_have() {
        for (method, status) in
            [(Method::HEAD, 200), (Method::GET, 204), (Method::GET, 304), (Method::HEAD, 404)]
        {
            let keeps_alive = |fields: &[(&str, &str)]| {
                ResponseFraming::of(&method, &answer(status, Version::HTTP_11, fields)).unwrap().keeps_alive
            };
            assert!(!keeps_alive(&[("content-length", "7")]), "{method} {status}");
            assert!(!keeps_alive(&[("transfer-encoding", "chunked")]), "{method} {status}");
            assert!(keeps_alive(&[("content-length", "0")]) && keeps_alive(&[]), "{method} {status}");
        }
    }

    #[test]
    fn a_connection_goes_on_unless_somebody_says_otherwise() {
        type Case<'c> = (Version, &'c [(&'c str, &'c str)], bool);
        let table: &[Case<'_>] = &[
            (Version::HTTP_11, &[], true),
            (Version::HTTP_11, &[("connection", "keep-alive")], true),
            (Version::HTTP_11, &[("connection", "x, Close")], false),
            (Version::HTTP_10, &[], false),
            (Version::HTTP_10, &[("connection", "Keep-Alive")], true),
            (Version::HTTP_10, &[("connection", "keep-alive"), ("connection", "close")], false),
        ];
        for (version, fields, expected) in table {
            let framing = ResponseFraming::of(&Method::GET, &answer(200, *version, fields)).unwrap();
            assert_eq!(framing.keeps_alive, *expected, "{version:?} {fields:?}");
        }
    }
}
