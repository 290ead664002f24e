//! The address of one Redis node.

use std::fmt;
use std::path::PathBuf;

/// A TCP address, by name or number, or a Unix socket.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Endpoint {
    Tcp { host: Box<str>, port: u16 },
    Unix(PathBuf),
}

impl Endpoint {
    pub(crate) fn tcp(host: &str, port: u16) -> Self {
        Self::Tcp { host: host.into(), port }
    }

    /// Parses `host:port`, `[::1]:port` or `::1:port`. Uses `default_port` if the text has no port.
    ///
    /// An IPv6 address without brackets is parsed as Redis Cluster writes it, with the port last. URLs need the
    /// brackets.
    pub(crate) fn parse(text: &str, default_port: Option<u16>) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']')?;
                (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
            }
            None => match text.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            Some(digits) => digits.parse().ok().filter(|&port| port > 0)?,
            None => default_port?,
        };
        let sane = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        (host.bytes().all(sane)).then(|| Self::tcp(host, port))
    }

    /// An address as this node reports it. An empty host and `?` stand for the host of this node.
    pub(crate) fn redirected(&self, to: &str) -> Option<Self> {
        match (Self::parse(to.trim_start_matches('?'), None)?, self) {
            (Self::Tcp { host, port }, Self::Tcp { host: own, .. }) if host.is_empty() => {
                Some(Self::tcp(own, port))
            }
            (Self::Tcp { host, .. }, Self::Unix(_)) if host.is_empty() => None,
            (to, _) => Some(to),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}
