//! The request line, as a log quotes it: `GET /scores HTTP/1.1`.

use std::borrow::Cow;

use http::uri::PathAndQuery;
use http::{Method, Uri};
use smol_str::SmolStr;
use spile_policy::{AmbiguousPath, CleanPath, canonical_host, is_misspelt};

/// The request of a line.
#[derive(Debug)]
pub(crate) struct LoggedRequest {
    pub(crate) method: Method,
    pub(crate) path: CleanPath,
    /// The host of a target that is a whole URL, in lower case and without a port.
    pub(crate) host: Option<SmolStr>,
}

/// Why a server refuses a request before any rule is asked. Nothing is charged for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MalformedRequest(pub(crate) &'static str);

impl LoggedRequest {
    /// Reads a request line. One without a version is of HTTP/0.9.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, MalformedRequest> {
        let line = line.trim_ascii();
        if line.is_empty() || line == b"-" {
            return Err(MalformedRequest("no request was sent"));
        }
        let split = |text: &[u8]| text.iter().position(|byte| *byte == b' ');
        let at = split(line).ok_or(MalformedRequest("the request line is not HTTP"))?;
        let (method, rest) = (&line[..at], line[at..].trim_ascii_start());
        let version =
            rest.iter().rposition(|byte| *byte == b' ').filter(|&at| rest[at..].starts_with(b" HTTP/"));
        let target = version.map_or(rest, |at| rest[..at].trim_ascii_end());
        Self::new(method, target)
    }

    /// The request of this method for this target: a path, a whole URL, or `*`.
    pub(crate) fn new(method: &[u8], target: &[u8]) -> Result<Self, MalformedRequest> {
        let method = Method::from_bytes(method).map_err(|_| MalformedRequest("the method is not valid"))?;
        if is_misspelt(&method) {
            return Err(MalformedRequest("the method is not written in capitals"));
        }
        if method == Method::CONNECT {
            return Err(MalformedRequest("it asks for a tunnel"));
        }
        if target == b"*" && method == Method::OPTIONS {
            return Self::for_path(method, &PathAndQuery::from_static("/"), None);
        }
        let unreadable = |_| MalformedRequest("the target cannot be read");
        if target.starts_with(b"/") {
            let path = PathAndQuery::try_from(target).map_err(unreadable)?;
            return Self::for_path(method, &path, None);
        }
        let url = Uri::try_from(target).map_err(unreadable)?;
        let (Some(authority), Some(_)) = (url.authority(), url.scheme()) else {
            return Err(MalformedRequest("the target is neither a path nor a URL"));
        };
        let host = canonical_host(authority.as_str()).ok_or(MalformedRequest("the host is not valid"))?;
        let slash = PathAndQuery::from_static("/");
        Self::for_path(method, url.path_and_query().unwrap_or(&slash), Some(host))
    }

    fn for_path(
        method: Method,
        path: &PathAndQuery,
        host: Option<SmolStr>,
    ) -> Result<Self, MalformedRequest> {
        let path = CleanPath::of(path).map_err(|AmbiguousPath(why)| MalformedRequest(why))?;
        Ok(Self { method, path, host })
    }
}

/// The content of a quoted field, which starts after the opening quote, and what follows the closing one.
pub(super) fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some((&text[..at], &text[at + 1..]));
        }
        at += 2;
    }
}

/// A field as the client sent it: nginx writes a quote as `\x22`, Apache as `\"`.
pub(super) fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = match (byte, after) {
            (b'\\', [b'x', high, low, after @ ..]) => match hex(*high).zip(hex(*low)) {
                Some((high, low)) => (high * 16 + low, after),
                None => (byte, &rest[1..]),
            },
            (b'\\', [b'n', after @ ..]) => (b'\n', after),
            (b'\\', [b'r', after @ ..]) => (b'\r', after),
            (b'\\', [b't', after @ ..]) => (b'\t', after),
            (b'\\', [escaped @ (b'"' | b'\\'), after @ ..]) => (*escaped, after),
            _ => (byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    Cow::Owned(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(String, String, Option<String>), &'static str> {
        let read = LoggedRequest::parse(line.as_bytes()).map_err(|why| why.0)?;
        let host = read.host.map(|host| host.to_string());
        Ok((read.method.to_string(), read.path.matched().to_owned(), host))
    }

    #[test]
    fn a_request_line_has_a_method_a_path_and_perhaps_a_host() {
        let ok = |method: &str, path: &str, host: Option<&str>| {
            Ok((method.to_owned(), path.to_owned(), host.map(str::to_owned)))
        };
        assert_eq!(read("GET /a/b?x=1 HTTP/1.1"), ok("GET", "/a/b", None));
        assert_eq!(read("GET /a"), ok("GET", "/a", None), "HTTP/0.9");
        assert_eq!(read("GET //a/../b%2e HTTP/2.0"), ok("GET", "/b.", None));
        assert_eq!(
            read("POST http://API.example.com:80/x HTTP/1.1"),
            ok("POST", "/x", Some("api.example.com"))
        );
        assert_eq!(read("GET https://[2001:db8::1]/ HTTP/1.1"), ok("GET", "/", Some("[2001:db8::1]")));
        assert_eq!(read("OPTIONS * HTTP/1.1"), ok("OPTIONS", "/", None));
        assert_eq!(read("PURGE /x HTTP/1.1"), ok("PURGE", "/x", None));
    }

    #[test]
    fn what_a_server_refuses_is_named() {
        for (line, words) in [
            ("", "no request"),
            ("-", "no request"),
            ("\u{16}\u{3}\u{1}", "not HTTP"),
            ("get / HTTP/1.1", "capitals"),
            ("G(T / HTTP/1.1", "method"),
            ("CONNECT a:443 HTTP/1.1", "tunnel"),
            ("GET /a b HTTP/1.1", "target"),
            ("GET a HTTP/1.1", "neither"),
            ("GET /../a HTTP/1.1", "above the root"),
            ("GET http://a b/ HTTP/1.1", "target"),
            ("GET http://user@host/ HTTP/1.1", "host"),
        ] {
            let why = read(line).expect_err(line);
            assert!(why.contains(words), "{line}: {why}");
        }
    }

    #[test]
    fn quotes_that_are_escaped_do_not_end_a_field() {
        let (field, rest) = quoted(br#"GET /\"a\\" 200"#).expect("a field");
        assert_eq!((field, rest), (&br#"GET /\"a\\"#[..], &b" 200"[..]));
        assert_eq!(unescaped(field).as_ref(), br#"GET /"a\"#);
        assert_eq!(unescaped(br"\x22\x0A\xzz\").as_ref(), b"\"\n\\xzz\\");
        assert_eq!(quoted(br#"no end\""#), None);
        assert_eq!(quoted(br"no end\"), None);
    }
}
