//! The common log format, and those that begin like it: combined, nginx's `main`, and Apache's with the virtual host first.
//!
//! `[HOST] ADDRESS IDENT USER [TIME] "REQUEST" STATUS BYTES ["REFERER" ["USER-AGENT" ["X-FORWARDED-FOR"]]]`

use std::borrow::Cow;

use http::header::{REFERER, USER_AGENT};
use http::{HeaderMap, HeaderName};
use smol_str::SmolStr;

use super::request_line::{quoted, unescaped};
use super::{
    LineError, LogRecord, LogTime, LoggedRequest, X_FORWARDED_FOR, add_header, address, host, present,
};

/// The quoted fields after status and size.
const TRAILING: [HeaderName; 3] = [REFERER, USER_AGENT, X_FORWARDED_FOR];

pub(super) fn parse(line: &[u8], wanted: impl Fn(&HeaderName) -> bool) -> Result<LogRecord, LineError> {
    let (before, time, after) = bracketed_time(line).ok_or(LineError::NoBracketedTime)?;
    let client = Client::parse(before).ok_or(LineError::NoAddress)?;
    let request = after.trim_ascii_start().strip_prefix(b"\"").and_then(quoted);
    let (request, mut rest) = request.ok_or(LineError::NoRequest)?;
    let mut headers = HeaderMap::new();
    for name in &TRAILING {
        if !TRAILING.iter().any(&wanted) {
            break;
        }
        let Some(at) = memchr::memchr(b'"', rest) else { break };
        let Some((value, after)) = quoted(&rest[at + 1..]) else { break };
        if wanted(name) {
            add_header(&mut headers, name, &unescaped(value));
        }
        rest = after;
    }
    Ok(LogRecord {
        time,
        peer: client.peer,
        request: LoggedRequest::parse(&unescaped(request)),
        host: client.host,
        user: client.user,
        tenant: None,
        headers,
    })
}

/// The first time in brackets, with what is before and after it. A user's name may have brackets, too.
fn bracketed_time(line: &[u8]) -> Option<(&[u8], LogTime, &[u8])> {
    let opening = memchr::memchr_iter(b'[', line).filter(|&at| at > 0 && line[at - 1] == b' ');
    // The request is in quotes, and anything may be in it.
    let quotes = memchr::memchr(b'"', line).unwrap_or(line.len());
    opening.take_while(|&at| at < quotes).find_map(|at| {
        let end = at + memchr::memchr(b']', &line[at..])?;
        let time = LogTime::parse(&line[at + 1..end])?;
        Some((&line[..at], time, &line[end + 1..]))
    })
}

/// Who sent the request, and to which host.
struct Client {
    host: SmolStr,
    peer: Option<std::net::IpAddr>,
    user: Option<SmolStr>,
}

impl Client {
    fn parse(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let mut words = text.trim_end().splitn(3, ' ');
        let (first, second) = (words.next()?, words.next().unwrap_or_default());
        let rest = words.next().unwrap_or_default();
        // With the virtual host first, which may be an address too, everything is one word further on.
        if let Some(peer) = address(second) {
            let rest = rest.split_once(' ').map_or("", |(_, user)| user);
            return Some(Self { host: host(first), peer: Some(peer), user: user(rest) });
        }
        Some(Self { host: SmolStr::default(), peer: Some(address(first)?), user: user(rest) })
    }
}

fn user(text: &str) -> Option<SmolStr> {
    let name = unescaped(text.trim().as_bytes());
    let name = match &name {
        Cow::Borrowed(name) => String::from_utf8_lossy(name),
        Cow::Owned(name) => String::from_utf8_lossy(name),
    };
    present(&name).map(SmolStr::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<LogRecord, LineError> {
        parse(line.as_bytes(), |_| true)
    }

    #[test]
    fn common_combined_and_what_nginx_and_apache_make_of_them_are_read() {
        let combined = r#"2001:db8::1 - ann lee [10/Oct/2000:13:55:36 -0700] "GET /a?q=\"x\" HTTP/1.1" 200 23 "http://r.example/\x22" "Mozilla \"5\"" "198.51.100.1""#;
        let record = read(combined).expect("a line");
        assert_eq!(record.peer, Some("2001:db8::1".parse().unwrap()));
        assert_eq!(record.user.as_deref(), Some("ann lee"));
        assert_eq!(record.headers[REFERER], "http://r.example/\"");
        assert_eq!(record.headers[USER_AGENT], "Mozilla \"5\"");
        assert_eq!(record.headers[X_FORWARDED_FOR], "198.51.100.1");
        let vhost = r#"API.example:443 203.0.113.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 23"#;
        let record = read(vhost).expect("a line");
        assert_eq!((record.host.as_str(), record.user), ("api.example", None));
        assert_eq!(record.peer, Some([203, 0, 113, 7].into()));
        let vhost =
            r#"[2001:db8::2]:443 203.0.113.7 - [x] [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 -"#;
        let record = read(vhost).expect("a line");
        assert_eq!((record.host.as_str(), record.user.as_deref()), ("[2001:db8::2]", Some("[x]")));
    }

    #[test]
    fn a_request_that_no_server_takes_is_still_a_line() {
        for request in ["-", "", r"\x16\x03\x01\x02", r"GET /a\x00 HTTP/1.1", "get / HTTP/1.1"] {
            let line = format!(r#"203.0.113.7 - - [10/Oct/2000:13:55:36 -0700] "{request}" 400 0 "-" "-""#);
            let record = read(&line).expect("a line");
            assert!(record.request.is_err() && record.headers.is_empty(), "{request}");
        }
    }

    #[test]
    fn what_is_missing_from_a_line_is_named() {
        for (line, why) in [
            ("hello", LineError::NoBracketedTime),
            (r#"203.0.113.7 - - [yesterday] "GET / HTTP/1.1" 200 1"#, LineError::NoBracketedTime),
            (
                r#"203.0.113.7 - - "GET [10/Oct/2000:13:55:36 -0700] HTTP/1.1" 200 1"#,
                LineError::NoBracketedTime,
            ),
            (r#"host.example - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 1"#, LineError::NoAddress),
            ("203.0.113.7 - - [10/Oct/2000:13:55:36 -0700] GET", LineError::NoRequest),
            (r#"203.0.113.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTT"#, LineError::NoRequest),
        ] {
            assert_eq!(read(line).err(), Some(why), "{line}");
        }
    }
}
