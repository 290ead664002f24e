//! How long an answer's body is, and whether its connection goes on after it.

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, TRANSFER_ENCODING};
use http::{Method, Response, StatusCode, Version};

use super::malformed::Malformed;

/// Where an answer's body ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Length {
    /// There is no body.
    None,
    Exact(u64),
    Chunked,
    /// Where the connection does.
    UntilClose,
}

impl Length {
    /// The length of the body of an answer to a request of this method. There must be one reading only: two lengths,
    /// or a length and a coding, are how one answer is passed off as two.
    pub(super) fn of<B>(method: &Method, answer: &Response<B>) -> Result<Self, Malformed> {
        let (headers, status) = (answer.headers(), answer.status());
        let exact = content_length(headers)?;
        let chunked = is_chunked(headers)?;
        if chunked && exact.is_some() {
            return Err(Malformed("the body has both a length and a coding"));
        }
        if chunked && answer.version() == Version::HTTP_10 {
            return Err(Malformed("HTTP/1.0 knows no codings of a body"));
        }
        let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        Ok(match exact {
            _ if method == Method::HEAD || bodiless || status.is_informational() => Self::None,
            Some(0) => Self::None,
            Some(bytes) => Self::Exact(bytes),
            None if chunked => Self::Chunked,
            None => Self::UntilClose,
        })
    }
}

/// Whether the upstream lets its connection be used again after this answer.
pub(super) fn keeps_alive<B>(answer: &Response<B>) -> bool {
    if answer.version() == Version::HTTP_10 {
        names(answer.headers(), "keep-alive") && !names(answer.headers(), "close")
    } else {
        !names(answer.headers(), "close")
    }
}

fn names(headers: &HeaderMap, option: &str) -> bool {
    let lines = headers.get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|named| named.trim().eq_ignore_ascii_case(option))
}

fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Malformed> {
    let Some(value) = only(headers, &CONTENT_LENGTH, "the body has two lengths")? else { return Ok(None) };
    let digits =
        std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).map(Some).ok_or(Malformed("the body's length is no number"))
}

/// Whether the body comes in chunks. Any other coding would be lost on its way to the client.
fn is_chunked(headers: &HeaderMap) -> Result<bool, Malformed> {
    match only(headers, &TRANSFER_ENCODING, "the body has two codings")? {
        None => Ok(false),
        Some(coding) if coding.eq_ignore_ascii_case(b"chunked") => Ok(true),
        Some(_) => Err(Malformed("the body has a coding other than chunked")),
    }
}

fn only<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    otherwise: &'static str,
) -> Result<Option<&'h [u8]>, Malformed> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Malformed(otherwise));
    }
    Ok(first.map(http::HeaderValue::as_bytes))
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

    fn length(method: &Method, status: u16, fields: &[(&str, &str)]) -> Result<Length, Malformed> {
        Length::of(method, &answer(status, Version::HTTP_11, fields))
    }

    #[test]
    fn a_body_ends_where_its_length_its_coding_or_the_connection_says() {
        let get = |fields: &[(&str, &str)]| length(&Method::GET, 200, fields);
        assert_eq!(get(&[("content-length", "7")]), Ok(Length::Exact(7)));
        assert_eq!(get(&[("content-length", "0")]), Ok(Length::None));
        assert_eq!(get(&[("transfer-encoding", "Chunked")]), Ok(Length::Chunked));
        assert_eq!(get(&[]), Ok(Length::UntilClose));
    }

    #[test]
    fn some_answers_have_no_body_whatever_they_say() {
        for framing in [("content-length", "7"), ("transfer-encoding", "chunked")] {
            assert_eq!(length(&Method::HEAD, 200, &[framing]), Ok(Length::None));
            for status in [101, 204, 304] {
                assert_eq!(length(&Method::GET, status, &[framing]), Ok(Length::None));
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
        assert!(Length::of(&Method::GET, &old).is_err());
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
            assert_eq!(keeps_alive(&answer(200, *version, fields)), *expected, "{version:?} {fields:?}");
        }
    }
}
