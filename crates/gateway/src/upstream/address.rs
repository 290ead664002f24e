//! Where an upstream is, and what it speaks.

use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, Scheme};

/// One server that requests are forwarded to: `http://10.0.0.1:9000`, `https://api.internal`, or `h2c://…` for
/// HTTP/2 without TLS, as gRPC servers inside a cluster speak it.
///
/// Over `https` the two sides agree on HTTP/2 or HTTP/1.1 in the handshake.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Upstream {
    pub(crate) protocol: Protocol,
    pub(crate) authority: Authority,
}

/// What is spoken with an upstream.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    /// Whatever the TLS handshake agrees on.
    Tls,
}

impl Upstream {
    /// The name or address, without brackets.
    pub(crate) fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    pub(crate) fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.protocol == Protocol::Tls { 443 } else { 80 })
    }

    /// Whether connections to it may turn out to be of HTTP/2.
    pub(crate) fn may_speak_http2(&self) -> bool {
        self.protocol != Protocol::Http1
    }

    pub(crate) fn speaks_tls(&self) -> bool {
        self.protocol == Protocol::Tls
    }

    pub(crate) fn scheme(&self) -> Scheme {
        if self.speaks_tls() { Scheme::HTTPS } else { Scheme::HTTP }
    }
}

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, UpstreamError> {
        let wrong = || UpstreamError(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let protocol = match uri.scheme_str() {
            Some("http") => Protocol::Http1,
            Some("h2c") => Protocol::Http2,
            Some("https") => Protocol::Tls,
            _ => return Err(wrong()),
        };
        let bare = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
        let authority = uri.authority().filter(|authority| bare && !authority.as_str().contains('@'));
        Ok(Self { protocol, authority: authority.ok_or_else(wrong)?.clone() })
    }
}

/// A text that names no upstream.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no upstream: write http://HOST:PORT, https://HOST or h2c://HOST:PORT, without a path")]
pub struct UpstreamError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_scheme_a_host_and_a_port() {
        let table = [("http://127.0.0.1:9000", "127.0.0.1", 9000), ("https://a.example", "a.example", 443)];
        for (text, host, port) in table {
            let upstream: Upstream = text.parse().unwrap();
            assert_eq!((upstream.host(), upstream.port()), (host, port));
        }
        assert_eq!("h2c://[::1]:50051/".parse::<Upstream>().unwrap().host(), "::1");
    }

    #[test]
    fn anything_more_is_refused() {
        for text in ["127.0.0.1:9000", "ftp://a", "http://a/path", "http://user:pw@a", "/a", ""] {
            assert!(text.parse::<Upstream>().is_err(), "{text}");
        }
    }
}
