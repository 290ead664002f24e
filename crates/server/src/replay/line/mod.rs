//! One line of an access log, in any of the usual formats.

mod combined;
mod json;
mod request_line;
mod time;

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use smol_str::SmolStr;
use spile_policy::canonical_host;

pub(crate) use self::json::{JsonFields, LogField};
pub(crate) use self::request_line::{LoggedRequest, MalformedRequest};
pub(crate) use self::time::LogTime;

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A request as a line records it.
#[derive(Debug)]
pub(crate) struct LogRecord {
    pub(crate) time: LogTime,
    /// The address that the connection came from. `None` if the log has none.
    pub(crate) peer: Option<IpAddr>,
    pub(crate) request: Result<LoggedRequest, MalformedRequest>,
    /// In lower case and without a port. Empty if the log has none.
    pub(crate) host: SmolStr,
    /// The user that was authenticated.
    pub(crate) user: Option<SmolStr>,
    /// The tenant's id, if the log has a field for it.
    pub(crate) tenant: Option<SmolStr>,
    /// The requested header fields that the log has.
    pub(crate) headers: HeaderMap,
}

/// Why a line cannot be read. Never shows the line: it may hold a credential.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum LineError {
    #[error("there is no time in brackets, as in `[10/Oct/2000:13:55:36 -0700]`")]
    NoBracketedTime,
    #[error("it does not start with an address")]
    NoAddress,
    #[error("there is no request in quotes after the time")]
    NoRequest,
    #[error("it is not JSON: {0}")]
    NotJson(String),
    #[error("it has no field for the {0}: `--field {0}=NAME` says which it is")]
    NoField(&'static str),
    #[error("the field `{name}` is not {what}")]
    BadField { name: String, what: &'static str },
    #[error("it has more than {0} bytes")]
    TooLong(usize),
}

/// Reads lines of any format, which is detected per line.
#[derive(Debug)]
pub(crate) struct LineParser {
    json: JsonFields,
    headers: Vec<HeaderName>,
    /// The host of lines that have none.
    host: SmolStr,
}

impl LineParser {
    /// A parser that keeps these header fields, where a line has them.
    pub(crate) fn new(json: JsonFields, headers: Vec<HeaderName>, host: SmolStr) -> Self {
        Self { json: json.for_headers(&headers), headers, host }
    }

    /// Parses a line. JSON starts with a brace; other lines are in the common format or one that begins like it.
    pub(crate) fn parse(&self, line: &[u8]) -> Result<LogRecord, LineError> {
        let line = line.trim_ascii();
        let mut record = if line.starts_with(b"{") {
            self.json.parse(line)?
        } else {
            combined::parse(line, |name| self.headers.contains(name))?
        };
        if let Ok(LoggedRequest { host: Some(host), .. }) = &record.request {
            record.host.clone_from(host);
        } else if record.host.is_empty() {
            record.host.clone_from(&self.host);
        }
        Ok(record)
    }
}

/// An address as logs write it: bare, in brackets, with a port, or with a zone.
fn address(text: &str) -> Option<IpAddr> {
    let bare = |text: &str| text.split('%').next()?.parse().ok();
    if let Some(rest) = text.strip_prefix('[') {
        return bare(rest.split_once(']')?.0);
    }
    bare(text).or_else(|| bare(text.rsplit_once(':')?.0).filter(IpAddr::is_ipv4))
}

/// A host without its port. Empty if it is not a host.
fn host(text: &str) -> SmolStr {
    canonical_host(text).unwrap_or_default()
}

/// A value that is present: logs write `-` for an absent one.
fn present(text: &str) -> Option<&str> {
    Some(text).filter(|text| !matches!(*text, "" | "-"))
}

fn add_header(headers: &mut HeaderMap, name: &HeaderName, value: &[u8]) {
    if matches!(value, b"" | b"-") {
        return;
    }
    // A server would not have accepted an invalid value.
    if let Ok(value) = HeaderValue::from_bytes(value) {
        headers.append(name, value);
    }
}

#[cfg(test)]
mod tests {
    use spile_testkit::fuzz::fuzz;

    use super::*;

    fn parser(headers: &[&'static str]) -> LineParser {
        let names = headers.iter().map(|name| HeaderName::from_static(name)).collect();
        LineParser::new(JsonFields::default(), names, SmolStr::default())
    }

    #[test]
    fn addresses_are_read_with_and_without_ports() {
        let read = |text| address(text).map(|address| address.to_string());
        for text in ["203.0.113.7", "203.0.113.7:5123"] {
            assert_eq!(read(text).as_deref(), Some("203.0.113.7"));
        }
        for text in ["2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:443", "2001:db8::1%eth0"] {
            assert_eq!(read(text).as_deref(), Some("2001:db8::1"), "{text}");
        }
        for text in ["", "-", "unix:", "host.example", "203.0.113", "[::1", "1:2:3"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_line_tells_its_own_format() {
        let parser = parser(&["user-agent"]);
        for line in [
            r#"203.0.113.7 - ann [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326"#,
            r#"{"time":"2000-10-10T20:55:36Z","remote_addr":"203.0.113.7","remote_user":"ann","request":"GET /a HTTP/1.0"}"#,
        ] {
            let record = parser.parse(line.as_bytes()).expect(line);
            assert_eq!(record.time.at.get(), 971_211_336_000_000);
            assert_eq!(record.peer, Some([203, 0, 113, 7].into()));
            assert_eq!(record.user.as_deref(), Some("ann"));
            assert_eq!(record.request.expect("a request").path.matched(), "/a");
        }
    }

    #[test]
    fn the_host_is_of_the_url_or_of_the_log_or_as_it_was_said() {
        let parser = LineParser::new(JsonFields::default(), Vec::new(), "said.example".into());
        let host = |request: &str, field: &str| {
            let line = format!(r#"{{"ts":1,"remote_ip":"::1","request":"{request}"{field}}}"#);
            parser.parse(line.as_bytes()).expect("a line").host.to_string()
        };
        assert_eq!(host("GET / HTTP/1.1", ""), "said.example");
        assert_eq!(host("GET / HTTP/1.1", r#","host":"Logged.example:8080""#), "logged.example");
        assert_eq!(host("GET http://url.example/ HTTP/1.1", r#","host":"logged.example""#), "url.example");
    }

    #[test]
    fn fuzzed_lines_are_records_of_a_sane_time_and_path_or_are_refused_with_a_reason() {
        let words = [
            "[10/Oct/2000:13:55:36 -0700]",
            "\"GET / HTTP/1.1\"",
            "\\x22",
            "\\\"",
            "{\"ts\":1700000000.5,",
            "\"request\":{",
            "\"remote_ip\":\"2001:db8::1\"",
            "\"headers\":{\"X-Api-Key\":[\"k\"]}",
            "http://a.example/",
            " - - ",
        ];
        let parser = parser(&["user-agent", "x-forwarded-for", "x-api-key"]);
        fuzz("access-log", &words, |input| {
            let record = match parser.parse(input) {
                Ok(record) => record,
                Err(why) => {
                    let why = why.to_string();
                    assert!(!why.is_empty() && why.len() < 300, "{why}");
                    return (0, why.split_whitespace().take(4).collect::<String>());
                }
            };
            // The year 10000.
            assert!(record.time.at.get() < 253_402_300_800_000_000 + 86_400_000_000);
            assert!(record.user.as_deref() != Some("-") && record.user.as_deref() != Some(""));
            assert!(record.host.bytes().all(|byte| !byte.is_ascii_uppercase()));
            if let Ok(request) = &record.request {
                assert!(request.path.matched().starts_with('/'));
                assert!(!request.path.forwarded().contains("/../"));
            }
            let kind =
                record.request.as_ref().map_or_else(|why| why.0.to_owned(), |_| "a request".to_owned());
            (1 + record.headers.len() + 8 * usize::from(record.peer.is_some()), kind)
        });
    }
}
