//! The address of an upstream, and its protocol.

use std::net::IpAddr;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

use super::tls::UpstreamTls;

/// The host of requests to a Unix socket.
const LOCAL: &str = "localhost";

/// One server that requests are forwarded to: `http://10.0.0.1:9000`, `https://api.internal`, or `h2c://…` for HTTP/2
/// without TLS, which gRPC servers inside a cluster speak. `unix:/run/app.sock` and `h2c+unix:/run/app.sock` are
/// servers on this machine that listen on a Unix socket.
///
/// Over `https` the two sides agree on HTTP/2 or HTTP/1.1 in the handshake.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Upstream {
    pub(crate) protocol: UpstreamProtocol,
    /// Host and port of requests. `localhost` for a Unix socket.
    pub(crate) authority: Authority,
    /// The path of the Unix socket. `None` for a server that is reached over the network.
    pub(crate) socket: Option<Box<Path>>,
    /// TLS settings of this upstream. `None` for those of the gateway.
    pub(crate) tls: Option<UpstreamTls>,
}

/// The protocol of an upstream.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum UpstreamProtocol {
    Http1,
    Http2,
    /// TLS. The handshake decides between HTTP/1.1 and HTTP/2.
    Tls,
}

impl Upstream {
    /// The name in metrics: host and port, or `unix:` and the path of the socket.
    pub fn label(&self) -> String {
        match &self.socket {
            Some(path) => format!("unix:{}", path.display()),
            None => self.authority.to_string(),
        }
    }

    /// The host name or address, without brackets.
    pub(crate) fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    /// The host name to resolve. `None` for an address and for a Unix socket.
    pub(crate) fn name(&self) -> Option<&str> {
        let host = self.host();
        (self.socket.is_none() && host.parse::<IpAddr>().is_err()).then_some(host)
    }

    pub(crate) fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.protocol == UpstreamProtocol::Tls { 443 } else { 80 })
    }

    /// Whether connections may turn out to speak HTTP/2.
    pub(crate) fn may_speak_http2(&self) -> bool {
        self.protocol != UpstreamProtocol::Http1
    }

    pub(crate) fn speaks_tls(&self) -> bool {
        self.protocol == UpstreamProtocol::Tls
    }

    /// The URI of a request for this path over HTTP/2.
    pub(crate) fn uri(&self, path: &PathAndQuery) -> Uri {
        let whole = Uri::builder().scheme(self.scheme()).authority(self.authority.clone());
        whole.path_and_query(path.clone()).build().unwrap_or_default()
    }

    fn scheme(&self) -> Scheme {
        if self.speaks_tls() { Scheme::HTTPS } else { Scheme::HTTP }
    }
}

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, UpstreamError> {
        for (scheme, protocol) in [("unix:", UpstreamProtocol::Http1), ("h2c+unix:", UpstreamProtocol::Http2)]
        {
            if let Some(path) = text.strip_prefix(scheme) {
                let socket = socket(path).ok_or_else(|| UpstreamError::Socket(text.to_owned()))?;
                let authority = Authority::from_static(LOCAL);
                return Ok(Self { protocol, authority, socket: Some(socket), tls: None });
            }
        }
        let wrong = || UpstreamError::Url(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let protocol = match uri.scheme_str() {
            Some("http") => UpstreamProtocol::Http1,
            Some("h2c") => UpstreamProtocol::Http2,
            Some("https") => UpstreamProtocol::Tls,
            _ => return Err(wrong()),
        };
        let bare = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
        let authority = uri.authority().filter(|authority| bare && !authority.as_str().contains('@'));
        Ok(Self { protocol, authority: authority.ok_or_else(wrong)?.clone(), socket: None, tls: None })
    }
}

/// The path of a Unix socket, from `/run/a` or `///run/a`. `None` if it is not absolute or too long for the kernel.
fn socket(text: &str) -> Option<Box<Path>> {
    let path = text.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(text);
    let names_file = path.starts_with('/') && !path.starts_with("//") && !path.ends_with('/');
    (names_file && SocketAddr::from_pathname(path).is_ok()).then(|| Path::new(path).into())
}

/// Why a text is not an upstream.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// Not a valid URL.
    #[error(
        "`{0}` is not an upstream: write http://HOST:PORT, https://HOST or h2c://HOST:PORT, without a path, or \
         unix:/PATH/OF/SOCKET"
    )]
    Url(String),
    /// Not a valid path of a Unix socket.
    #[error(
        "`{0}` is not an upstream: write unix:/PATH or h2c+unix:/PATH, with an absolute path of at most 107 bytes"
    )]
    Socket(String),
}

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
    fn a_socket_is_a_scheme_and_an_absolute_path() {
        for (text, protocol) in [
            ("unix:/run/app.sock", UpstreamProtocol::Http1),
            ("unix:///run/app.sock", UpstreamProtocol::Http1),
            ("h2c+unix:/run/app.sock", UpstreamProtocol::Http2),
        ] {
            let upstream: Upstream = text.parse().unwrap();
            assert_eq!(upstream.socket.as_deref(), Some(Path::new("/run/app.sock")), "{text}");
            assert_eq!((upstream.protocol, upstream.host()), (protocol, "localhost"));
            assert_eq!(upstream.label(), "unix:/run/app.sock");
        }
        let long = format!("unix:/{}", "a".repeat(108));
        for text in ["unix:", "unix:/", "unix:app.sock", "unix://host/a", "unix:/run/", "unix:/a\0b", &long] {
            assert!(matches!(text.parse::<Upstream>(), Err(UpstreamError::Socket(_))), "{text}");
        }
    }

    #[test]
    fn anything_more_is_refused() {
        for text in
            ["127.0.0.1:9000", "ftp://a", "http://a/path", "http://user:pw@a", "/a", "", "http://unix:/a"]
        {
            assert!(text.parse::<Upstream>().is_err(), "{text}");
        }
    }
}
