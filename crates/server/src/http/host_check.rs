//! Checks the host that a request is meant for and the page that sends it.
//!
//! A web page can have a browser send requests to any address that the browser reaches, also to loopback and with a name of the page's
//! own that resolves to it (DNS rebinding). Such a request carries the page's name as its `Host`, and, if it is sent across sites, an
//! `Origin` or `Sec-Fetch-Site`. This module must not know what a request asks for.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Version};
use smol_str::SmolStr;
use spile_policy::{HostPattern, canonical_host};
use tokio::net::TcpListener;

use super::problem::Problem;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The host names of a listener. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct HostCheck(Arc<HostNames>);

#[derive(Debug)]
struct HostNames {
    /// True if only this machine reaches the listener: any other name then leads here only by rebinding.
    is_loopback: bool,
    /// The two usual spellings of a loopback listener, which need not be parsed.
    usual: [String; 2],
    /// `listen.hosts`.
    configured: Vec<HostPattern>,
}

impl HostCheck {
    /// The check of a bound listener.
    pub(crate) fn of(listener: &TcpListener, configured: &[HostPattern]) -> Self {
        Self::new(listener.local_addr().expect("a bound socket has an address"), configured)
    }

    fn new(bound: SocketAddr, configured: &[HostPattern]) -> Self {
        let usual = [bound.to_string(), format!("localhost:{}", bound.port())];
        let is_loopback = bound.ip().to_canonical().is_loopback();
        Self(Arc::new(HostNames { is_loopback, usual, configured: configured.to_vec() }))
    }

    /// Refuses a request that is meant for another host, and if it is `guarded` also one that a page of another site sends.
    pub(crate) fn check<B>(&self, request: &Request<B>, guarded: bool) -> Result<(), Problem> {
        let mut hosts = request.headers().get_all(HOST).iter();
        let host = hosts.next().map(HeaderValue::as_bytes);
        if hosts.next().is_some() {
            return Err(Problem::new(StatusCode::BAD_REQUEST, "Host: is sent twice").with("field", "Host"));
        }
        let target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        if target.or(host).is_none() && request.version() == Version::HTTP_11 {
            return Err(Problem::new(StatusCode::BAD_REQUEST, "Host: is missing").with("field", "Host"));
        }
        for name in [target, host].into_iter().flatten() {
            if self.0.is_loopback && !self.0.are_asked_by(name) {
                return Err(misdirected(name));
            }
        }
        if guarded { self.check_origin(target.or(host), request.headers()) } else { Ok(()) }
    }

    fn check_origin(&self, own: Option<&[u8]>, headers: &HeaderMap) -> Result<(), Problem> {
        let mut is_configured = false;
        for origin in headers.get_all(ORIGIN) {
            let sender = Sender::of_origin(origin.as_bytes()).ok_or_else(|| foreign("Origin", origin))?;
            is_configured = self.0.configured.iter().any(|host| host.matches(&sender.host));
            if !is_configured && !own.is_some_and(|own| sender.is_at(own)) {
                return Err(foreign("Origin", origin));
            }
        }
        let across = |site: &&HeaderValue| site.as_bytes().eq_ignore_ascii_case(b"cross-site");
        match headers.get_all(SEC_FETCH_SITE).iter().find(across) {
            Some(site) if !is_configured => Err(foreign("Sec-Fetch-Site", site)),
            _ => Ok(()),
        }
    }
}

impl HostNames {
    fn are_asked_by(&self, name: &[u8]) -> bool {
        if self.usual.iter().any(|usual| usual.as_bytes() == name) {
            return true;
        }
        let host = std::str::from_utf8(name).ok().and_then(canonical_host);
        host.is_some_and(|host| is_loopback(&host) || self.configured.iter().any(|own| own.matches(&host)))
    }
}

/// The page that has a browser send a request.
struct Sender {
    host: SmolStr,
    port: u16,
    /// True if it is the default port of the scheme, which browsers leave out.
    is_usual_port: bool,
}

impl Sender {
    /// `None` for an opaque origin: a file, a sandboxed frame.
    fn of_origin(origin: &[u8]) -> Option<Self> {
        let (scheme, authority) = std::str::from_utf8(origin).ok()?.split_once("://")?;
        let usual = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let port = port_of(authority).unwrap_or(usual);
        Some(Self { host: canonical_host(authority)?, port, is_usual_port: port == usual })
    }

    /// True if the page has the origin that its request goes to.
    fn is_at(&self, authority: &[u8]) -> bool {
        let Ok(authority) = std::str::from_utf8(authority) else { return false };
        let same_port = port_of(authority).map_or(self.is_usual_port, |port| port == self.port);
        same_port && canonical_host(authority).is_some_and(|host| host == self.host)
    }
}

fn port_of(authority: &str) -> Option<u16> {
    let after = authority.rsplit_once(']').map_or(authority, |(_, after)| after);
    after.rsplit_once(':')?.1.parse().ok()
}

/// True if a canonical host always resolves to this machine.
fn is_loopback(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    host == "localhost"
        || host.ends_with(".localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn misdirected(host: &[u8]) -> Problem {
    let detail = format!(
        "Host: `{}` is not a name of this listener, which only this machine reaches; add more names to `listen.hosts`",
        shown(host)
    );
    Problem::new(StatusCode::MISDIRECTED_REQUEST, detail).with("field", "Host")
}

fn foreign(field: &'static str, value: &HeaderValue) -> Problem {
    let detail = format!(
        "{field}: `{}` is a page of another site, which is not allowed here; add its host to `listen.hosts`",
        shown(value.as_bytes())
    );
    Problem::new(StatusCode::FORBIDDEN, detail).with("field", field)
}

/// The first 64 bytes, as far as they can be read.
fn shown(value: &[u8]) -> String {
    value[..value.len().min(64)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bound: &str, hosts: &[&str]) -> HostCheck {
        let hosts: Vec<HostPattern> = hosts.iter().map(|host| host.parse().expect("a host")).collect();
        HostCheck::new(bound.parse().expect("an address"), &hosts)
    }

    fn asked(check: &HostCheck, uri: &str, fields: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        match check.check(&request.body(()).expect("a request"), true) {
            Ok(()) => 200,
            Err(problem) => problem.into_reply().status().as_u16(),
        }
    }

    #[test]
    fn a_loopback_listener_is_asked_by_loopback_names_and_configured_ones() {
        for bound in ["127.0.0.1:8080", "127.0.0.9:1", "[::1]:8080", "[::ffff:127.0.0.1]:8080"] {
            let check = check(bound, &["spile.internal", "*.example.com"]);
            for host in [
                bound,
                "localhost",
                "localhost:8080",
                "LOCALHOST:1",
                "localhost.",
                "a.localhost:65535",
                "127.0.0.1",
                "127.255.0.7:80",
                "[::1]:9",
                "[0:0:0:0:0:0:0:1]",
                "[::ffff:127.0.0.1]:80",
                "[::FFFF:7f00:1]",
                "spile.internal:8080",
                "Spile.Internal.",
                "a.b.example.com",
            ] {
                assert_eq!(asked(&check, "/", &[("host", host)]), 200, "{bound} {host}");
                assert_eq!(asked(&check, &format!("http://{host}/"), &[]), 200, "{bound} {host}");
            }
            for host in [
                "evil.example",
                "evil.example:8080",
                "",
                "example.com",
                "localhost.evil.example",
                "notlocalhost",
                "localhost@evil.example",
                "evil.example@localhost",
                "localhost:+80",
                "localhost:",
                "localhost:80:80",
                "localhost:65536",
                "localhost..",
                ".localhost",
                "localhost/",
                "localhost evil.example",
                "localhost,evil.example",
                "127.1",
                "2130706433",
                "0x7f.0.0.1",
                "0177.0.0.1",
                "127.0.0.1.evil.example",
                "0.0.0.0",
                "128.0.0.1",
                "10.0.0.1",
                "[::]",
                "[::2]",
                "[::ffff:10.0.0.1]",
                "[::1%25lo]",
                "::1",
                "[127.0.0.1]",
                "l\u{f6}calhost",
            ] {
                assert_eq!(asked(&check, "/", &[("host", host)]), 421, "{bound} {host}");
            }
        }
    }

    #[test]
    fn both_the_target_and_the_host_field_have_to_be_right_and_one_field_is_all_there_is() {
        let check = check("127.0.0.1:8080", &[]);
        assert_eq!(asked(&check, "http://evil.example/", &[("host", "localhost")]), 421);
        assert_eq!(asked(&check, "http://localhost/", &[("host", "evil.example")]), 421);
        assert_eq!(asked(&check, "/", &[("host", "localhost"), ("host", "localhost")]), 400);
        assert_eq!(asked(&check, "/", &[("host", "localhost"), ("host", "evil.example")]), 400);
        assert_eq!(asked(&check, "/", &[]), 400, "HTTP/1.1 needs one");
        let old = Request::builder().version(Version::HTTP_10).uri("/").body(()).expect("a request");
        assert!(check.check(&old, true).is_ok(), "HTTP/1.0 needs no host, and no browser speaks it");
    }

    #[test]
    fn a_listener_that_others_reach_is_asked_by_any_name() {
        for bound in ["0.0.0.0:8080", "[::]:8080", "10.0.0.1:8080"] {
            assert_eq!(asked(&check(bound, &[]), "/", &[("host", "spile.example")]), 200, "{bound}");
        }
    }

    #[test]
    fn a_page_asks_only_where_it_comes_from_or_where_it_is_configured() {
        let check = check("0.0.0.0:8081", &["console.example"]);
        let told = |host: &str, fields: &[(&str, &str)]| {
            let all: Vec<_> = [("host", host)].into_iter().chain(fields.iter().copied()).collect();
            asked(&check, "/", &all)
        };
        for (host, origin, status) in [
            ("spile.example:8081", "http://spile.example:8081", 200),
            ("SPILE.example:8081", "http://spile.example:8081", 200),
            ("spile.example", "https://spile.example", 200),
            ("spile.example:443", "https://spile.example", 200),
            ("spile.example", "http://spile.example:80", 200),
            ("[::1]:8081", "http://[::1]:8081", 200),
            ("spile.example", "https://console.example", 200),
            ("spile.example", "https://console.example:8443", 200),
            ("spile.example:8081", "http://spile.example", 403),
            ("spile.example:8081", "http://spile.example:8082", 403),
            ("spile.example", "http://spile.example:8082", 403),
            ("spile.example", "http://evil.example", 403),
            ("spile.example", "http://spile.example.evil.example", 403),
            ("spile.example", "http://a@spile.example", 403),
            ("spile.example", "http://spile.example/", 403),
            ("spile.example", "null", 403),
            ("spile.example", "", 403),
            ("spile.example", "spile.example", 403),
            ("spile.example", "file://spile.example", 403),
            ("spile.example", "http://x.console.example", 403),
        ] {
            assert_eq!(told(host, &[("origin", origin)]), status, "{host} {origin}");
        }
        let two = [("origin", "http://spile.example"), ("origin", "http://evil.example")];
        assert_eq!(told("spile.example", &two), 403);
        for (site, status) in [
            ("cross-site", 403),
            ("Cross-Site", 403),
            ("same-site", 200),
            ("same-origin", 200),
            ("none", 200),
        ] {
            assert_eq!(told("spile.example", &[("sec-fetch-site", site)]), status, "{site}");
        }
        let configured = [("origin", "https://console.example"), ("sec-fetch-site", "cross-site")];
        assert_eq!(told("spile.example", &configured), 200);
    }
}
