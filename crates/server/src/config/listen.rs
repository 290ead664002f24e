//! The addresses that the server answers on.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};
use spile_listener::Bounds;
use spile_policy::HostPattern;

use super::value::{Text, Texts, Written};

/// `[listen]`: the addresses of the listeners, and the bounds of all of them but the gateway.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Listen {
    /// The decision API and the sample endpoint.
    #[serde(with = "Text")]
    pub http: SocketAddr,
    /// Health and metrics; never the same listener as callers.
    #[serde(with = "Text")]
    pub admin: SocketAddr,
    /// Envoy's rate limit service.
    #[serde(deserialize_with = "Text::deserialize_some")]
    pub grpc: Option<SocketAddr>,
    /// The Redis protocol.
    #[serde(deserialize_with = "Text::deserialize_some")]
    pub resp: Option<SocketAddr>,
    /// The reverse proxy.
    #[serde(deserialize_with = "Text::deserialize_some")]
    pub gateway: Option<SocketAddr>,
    /// The host names of `http` and `admin` besides those of loopback, and the hosts whose pages may send requests to them.
    #[serde(with = "Texts", skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostPattern>,
    /// The bounds of all listeners but the gateway.
    #[serde(skip, default = "usual_bounds")]
    pub bounds: Bounds,
}

impl Default for Listen {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            http: loopback(8080),
            admin: loopback(8081),
            grpc: None,
            resp: None,
            gateway: None,
            hosts: Vec::new(),
            bounds: usual_bounds(),
        }
    }
}

/// Reads the address of a listener: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, or `:8080` for every IPv4 address of this machine.
/// Other names are not resolved, because their addresses may change.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let port =
        |port: &str| port.parse::<u16>().ok().filter(|_| port.bytes().all(|byte| byte.is_ascii_digit()));
    let at = |ip: Ipv4Addr| move |port| SocketAddr::from((ip, port));
    let read = match text.rsplit_once(':') {
        Some(("", digits)) => port(digits).map(at(Ipv4Addr::UNSPECIFIED)),
        Some((host, digits)) if host.eq_ignore_ascii_case("localhost") => {
            port(digits).map(at(Ipv4Addr::LOCALHOST))
        }
        _ => text.parse().ok(),
    };
    read.ok_or_else(|| format!("`{text}` is not an address"))
}

impl Written for SocketAddr {
    const RIGHT: &'static str = "an address and a port, as in `127.0.0.1:8080`, `localhost:8080` or `:8080` for all addresses of this machine";

    fn read(text: &str) -> Result<Self, String> {
        listen_address(text)
    }
}

/// Requests are small here, so a small flow-control window is enough.
fn usual_bounds() -> Bounds {
    let mut bounds = Bounds::default();
    bounds.stream_window = 64 << 10;
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, address) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("[::1]:8080", "[::1]:8080"),
            ("localhost:8000", "127.0.0.1:8000"),
            ("LocalHost:1", "127.0.0.1:1"),
            (":8081", "0.0.0.0:8081"),
            (":0", "0.0.0.0:0"),
        ] {
            assert_eq!(listen_address(text), Ok(address.parse().expect("an address")), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_addresses() {
        for text in [
            "",
            ":",
            "8080",
            "localhost",
            "localhost:",
            ":65536",
            ":+80",
            ":-1",
            "localhost:+80",
            "::1",
            "::1:8080",
            "spile.example:8080",
            "127.0.0.1",
            "127.1:80",
            "http://127.0.0.1:80",
            " :80",
            "127.0.0.1:80 ",
        ] {
            assert!(listen_address(text).is_err_and(|why| why.contains(text)), "{text}");
        }
    }
}
