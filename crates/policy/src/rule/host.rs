//! Patterns of hosts: `api.example.com`, `*.example.com`.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use smol_str::{SmolStr, StrExt, format_smolstr};

/// More than the longest DNS name has.
const MAX_BYTES: usize = 255;

/// One host, or all below a domain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HostPattern {
    /// This host.
    Exact(Box<str>),
    /// Every host below this domain, but not the domain itself.
    Below(Box<str>),
}

impl HostPattern {
    /// Whether the host matches. It must be in lower case and without a port.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(own) => **own == *host,
            Self::Below(domain) => {
                host.strip_suffix(&**domain).is_some_and(|below| below.len() > 1 && below.ends_with('.'))
            }
        }
    }

    /// Whether some host matches both.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(host), pattern) | (pattern, Self::Exact(host)) => pattern.matches(host),
            (Self::Below(one), Self::Below(two)) => one == two || self.matches(two) || other.matches(one),
        }
    }

    /// An exact host is more specific than a domain, and a longer domain than a shorter one.
    pub fn specificity(&self) -> (u8, usize) {
        match self {
            Self::Exact(host) => (2, host.len()),
            Self::Below(domain) => (1, domain.len()),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(host),
            Self::Below(domain) => write!(f, "*.{domain}"),
        }
    }
}

impl FromStr for HostPattern {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let (name, below) = text.strip_prefix("*.").map_or((text, false), |name| (name, true));
        let name = canonical(name).ok_or_else(|| HostError(text.to_owned()))?;
        Ok(if below { Self::Below(name.as_str().into()) } else { Self::Exact(name.as_str().into()) })
    }
}

/// The host in lower case, without port and final dot. `None` if it is not a valid host.
///
/// A host is labels of letters, digits, `-` and `_` between single dots, an IPv4 address, or an IPv6 address in
/// brackets, with a port up to 65535 or none. URLs allow more: names with percent-encoding, with a user, with a colon
/// and no port. Servers read these in different ways, so they are refused here.
pub fn canonical(authority: &str) -> Option<SmolStr> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, after) = rest.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        return (after.is_empty() || after.strip_prefix(':').is_some_and(is_port))
            .then(|| format_smolstr!("[{address}]"));
    }
    // Bytes and not characters are searched for: texts are so short that a search for a character costs more to begin.
    let host = match authority.bytes().position(|byte| byte == b':') {
        None => authority,
        Some(colon) => is_port(&authority[colon + 1..]).then_some(&authority[..colon])?,
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    let mut labels = host.as_bytes().split(|&byte| byte == b'.');
    (host.len() <= MAX_BYTES && labels.all(is_label)).then(|| host.to_ascii_lowercase_smolstr())
}

fn is_label(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|&byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn is_port(text: &str) -> bool {
    text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// A text that is not a host pattern.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a host: write api.example.com, or *.example.com for all below")]
pub struct HostError(String);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts_match_whatever_their_case_port_or_final_dot() {
        for host in ["api.example.com", "API.Example.com:8443", "api.example.com."] {
            assert!("api.example.com".parse::<HostPattern>().unwrap().matches(&canonical(host).unwrap()));
        }
        assert_eq!(canonical("[2001:db8::1]:80").as_deref(), Some("[2001:db8::1]"));
    }

    #[test]
    fn a_domain_matches_what_lies_below_it_only() {
        let below: HostPattern = "*.example.com".parse().unwrap();
        assert!(below.matches("a.example.com") && below.matches("a.b.example.com"));
        assert!(
            !below.matches("example.com")
                && !below.matches("badexample.com")
                && !below.matches(".example.com")
        );
    }

    #[test]
    fn two_patterns_overlap_where_one_host_matches_both() {
        let pattern = |text: &str| text.parse::<HostPattern>().unwrap();
        for (one, two, overlap) in [
            ("a.example.com", "a.example.com", true),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "*.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "*.example.org", false),
        ] {
            assert_eq!(pattern(one).overlaps(&pattern(two)), overlap, "{one} {two}");
            assert_eq!(pattern(two).overlaps(&pattern(one)), overlap, "{two} {one}");
        }
    }

    fn assert_refused(hosts: &[&str]) {
        for text in hosts {
            assert!(canonical(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_host_is_refused() {
        let long = "a.".repeat(128) + "a";
        assert_refused(&[&long]);
        assert_refused(&[
            "",
            ".",
            "..",
            ".a",
            "a..b",
            "a..",
            "..a",
            "a b",
            " a",
            "a\t",
            "a/b",
            "a\\b",
            "a?b",
            "a#b",
            "a,b",
            "a;b",
            "a%2eb",
            "a%41",
            "a!b",
            "a~b",
            "a$b",
            "a*b",
            "a(b)",
            "a'b",
            "a=b",
            "\u{e4}.test",
        ]);
    }

    #[test]
    fn a_host_with_a_user_or_a_malformed_port_is_refused() {
        assert_refused(&[
            "user@host",
            "user:pw@host",
            "@",
            "a:",
            ":",
            ":80",
            "host:port",
            "a:+80",
            "a:-80",
            "a: 80",
            "a:80 ",
            "a:8_0",
            "a:65536",
            "a:99999",
            "a:000080",
            "a:80:80",
        ]);
    }

    #[test]
    fn a_malformed_ipv6_address_is_refused() {
        assert_refused(&[
            "a::1",
            "::1",
            "2001:db8::1",
            "a[b",
            "a]b",
            "[a]",
            "[",
            "]",
            "[]",
            "[::1",
            "::1]",
            "[::1]x",
            "[::1]:",
            "[::1]:+80",
            "[::1]:65536",
            "[::1]80",
            "[[::1]]",
            "[::1%25eth0]",
            "[::1%eth0]",
            "[v1.a]",
            "[127.0.0.1]",
            "x[::1]",
        ]);
    }

    #[test]
    fn every_other_host_has_one_spelling() {
        for (text, host) in [
            ("a", "a"),
            ("A_b-1.Test.:65535", "a_b-1.test"),
            ("a:0", "a"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("[::1]", "[::1]"),
            ("[2001:DB8:0:0::0001]:443", "[2001:db8::1]"),
            ("[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(host), "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_passes_is_made_of_a_hosts_characters_and_passes_again(text in "[a-c0-9A-C._:+@%\\[\\] -]{0,12}|\\PC{0,12}") {
            if let Some(host) = canonical(&text) {
                prop_assert_eq!(canonical(&host), Some(host.clone()));
                let name = host.split('.').map(str::as_bytes).all(is_label);
                let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                prop_assert!(name || address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok()));
            }
        }
    }
}
