//! The URL of a server, as it is typed.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::Scheme;

/// The URL of a listener: `http://HOST:PORT` or `https://HOST:PORT`. It may be written as `HOST:PORT`, or as `:PORT` for this
/// machine.
#[derive(Clone, Debug)]
pub(super) struct ServerUrl {
    uri: Uri,
    pub(super) encrypted: bool,
}

impl ServerUrl {
    /// Host and port, as the `Host` field has them.
    pub(super) fn authority(&self) -> &str {
        self.uri.authority().map(http::uri::Authority::as_str).unwrap_or_default()
    }

    /// The host alone, an IPv6 address without its brackets.
    pub(super) fn host(&self) -> &str {
        self.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    pub(super) fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(if self.encrypted { 443 } else { 80 })
    }
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not the address of a server: write HOST:PORT, http://HOST:PORT or https://HOST:PORT"
            )
        };
        let spelt = match text.strip_prefix(':') {
            Some(port) => format!("http://127.0.0.1:{port}"),
            None if text.contains("://") => text.to_owned(),
            // Without a scheme there is no default port.
            None if text.rsplit_once(':').is_some() => format!("http://{text}"),
            None => return Err(wrong()),
        };
        let uri: Uri = spelt.parse().map_err(|_| wrong())?;
        let encrypted = uri.scheme() == Some(&Scheme::HTTPS);
        let is_web = encrypted || uri.scheme() == Some(&Scheme::HTTP);
        let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let is_whole = uri.path() == "/" && uri.query().is_none();
        let has_port = !authority.ends_with(':') && (text.contains("://") || uri.port_u16().is_some());
        if !is_web
            || !is_whole
            || !has_port
            || authority.contains('@')
            || uri.host().is_none_or(str::is_empty)
        {
            return Err(wrong());
        }
        Ok(Self { uri, encrypted })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.encrypted { "https" } else { "http" }, self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_however_its_address_is_written() {
        for (text, url) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("localhost:8080", "http://localhost:8080"),
            ("[::1]:8080", "http://[::1]:8080"),
            (":8080", "http://127.0.0.1:8080"),
            ("https://spile.example", "https://spile.example"),
            ("https://spile.example:8443/", "https://spile.example:8443"),
        ] {
            assert_eq!(text.parse::<ServerUrl>().map(|url| url.to_string()), Ok(url.to_owned()), "{text}");
        }
        let port = |text: &str| text.parse::<ServerUrl>().map(|url| url.port());
        assert_eq!((port("https://h"), port("http://h"), port("h:1")), (Ok(443), Ok(80), Ok(1)));
    }

    #[test]
    fn what_leads_to_no_server_is_refused() {
        for text in [
            "",
            ":",
            "localhost",
            "redis://h:1",
            "http://",
            "http://h:1/path",
            "http://h:1?q",
            "http://u:p@h:1",
            "h:",
            "h:port",
            "h:65536",
            "::1",
            "a b:1",
            "http://:80",
        ] {
            assert!(text.parse::<ServerUrl>().is_err(), "{text}");
        }
    }
}
