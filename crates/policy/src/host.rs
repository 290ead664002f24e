//! Which hosts a route or a rule is for: `api.example.com`, `*.example.com`.

use std::fmt;
use std::str::FromStr;

use smol_str::{SmolStr, StrExt};

/// One host, or all below a domain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HostPattern {
    /// This host.
    Exact(Box<str>),
    /// Every host below this domain, but not the domain itself.
    Below(Box<str>),
}

impl HostPattern {
    /// Whether the host matches; it comes in lower case and without a port.
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

    /// A host that is spelt out goes before a domain, and the longer domain before the shorter.
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

/// The host in lower case, without port and final dot; `None` if it is no host.
pub fn canonical(authority: &str) -> Option<SmolStr> {
    let host = without_port(authority)?;
    let host = host.strip_suffix('.').unwrap_or(host);
    let allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'[' | b']');
    let sound = !host.is_empty() && host.len() <= 255 && host.bytes().all(allowed);
    sound.then(|| host.to_ascii_lowercase_smolstr())
}

fn without_port(authority: &str) -> Option<&str> {
    if let Some(rest) = authority.strip_prefix('[') {
        let end = rest.find(']')? + 2;
        let after = &authority[end..];
        return (after.is_empty() || is_port(after)).then(|| &authority[..end]);
    }
    match authority.find(':') {
        None => Some(authority),
        Some(colon) => is_port(&authority[colon..]).then(|| &authority[..colon]),
    }
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

/// A text that names no host.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no host: write api.example.com, or *.example.com for all below")]
pub struct HostError(String);

#[cfg(test)]
mod tests {
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

    #[test]
    fn what_is_no_host_is_refused() {
        for text in ["", "a b", "a/b", "user@host", "host:port", "host:99999", "[::1", "[::1]x", "a\\b"] {
            assert!(canonical(text).is_none(), "{text}");
        }
    }
}
