//! `Forwarded` (RFC 7239): elements between commas, each with a `for` that names the client of the proxy.
//!
//! Quotes are read from the right as well: an unclosed quote of a client is to the left of what the proxy added, and so cannot
//! hide it.

use std::borrow::Cow;
use std::net::IpAddr;

use http::HeaderMap;
use http::header::FORWARDED;

use super::node;

/// The hops that the header lines name, from the right. A hop that names no address is `None`.
pub(crate) fn hops(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = headers.get_all(FORWARDED).iter().rev();
    let elements = lines.flat_map(|line| Split { rest: Some(line.as_bytes()), at: b',' });
    elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty()).map(hop)
}

fn hop(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    for pair in (Split { rest: Some(element), at: b';' }) {
        let pair = std::str::from_utf8(pair).ok()?.trim_ascii();
        let Some((name, value)) = pair.split_once('=') else {
            if pair.is_empty() {
                continue;
            }
            return None;
        };
        // Two of them contradict each other.
        if name.eq_ignore_ascii_case("for") && found.replace(value).is_some() {
            return None;
        }
    }
    found.and_then(unquoted).and_then(|value| node::address(&value))
}

/// The value without the quotes around it and the backslashes in it.
fn unquoted(value: &str) -> Option<Cow<'_, str>> {
    let Some(rest) = value.strip_prefix('"') else { return Some(Cow::Borrowed(value)) };
    let inner = rest.strip_suffix('"')?;
    if !inner.contains(['\\', '"']) {
        return Some(Cow::Borrowed(inner));
    }
    let mut plain = String::with_capacity(inner.len());
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => plain.push(letters.next()?),
            '"' => return None,
            _ => plain.push(letter),
        }
    }
    Some(Cow::Owned(plain))
}

/// The pieces of a text between separators outside of quotes, from the right.
struct Split<'a> {
    rest: Option<&'a [u8]>,
    at: u8,
}

impl<'a> Iterator for Split<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let text = self.rest?;
        let mut quoted = false;
        for index in (0..text.len()).rev() {
            match text[index] {
                b'"' if !escaped(&text[..index]) => quoted = !quoted,
                byte if byte == self.at && !quoted => {
                    self.rest = Some(&text[..index]);
                    return Some(&text[index + 1..]);
                }
                _ => {}
            }
        }
        self.rest = None;
        Some(text)
    }
}

/// True if the byte after `before` is escaped: `before` ends with an odd number of backslashes.
fn escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use spile_testkit::fuzz::fuzz;

    use super::*;
    use crate::client::x_forwarded_for;

    /// The hops of these lines by both headers, from the right.
    fn hops_of(lines: &[&[u8]]) -> Option<[Vec<Option<IpAddr>>; 2]> {
        let mut headers = HeaderMap::new();
        for line in lines {
            let line = HeaderValue::from_bytes(line).ok()?;
            headers.append(FORWARDED, line.clone());
            headers.append("x-forwarded-for", line);
        }
        Some([hops(&headers).collect(), x_forwarded_for::hops(&headers).collect()])
    }

    /// The hops of one header, if what was sent is followed by what a proxy adds, in the same line or in its own.
    fn followed(sent: &[u8], added: &str, header: usize) -> Option<[Vec<Option<IpAddr>>; 2]> {
        let joined = [sent, b", ", added.as_bytes()].concat();
        let [joined, apart] = [hops_of(&[&joined])?, hops_of(&[sent, added.as_bytes()])?];
        Some([joined, apart].map(|both| both[header].clone()))
    }

    #[test]
    fn fuzzed_lines_hide_no_hop_that_a_proxy_adds() {
        let words =
            ["for=", "\"[2001:db8::1]:80\"", ";proto=https", "192.0.2.1", "unknown", "_hid", "\\\"", "%eth0"];
        fuzz("forwarded", &words, |bytes| {
            let [forwarded, plain] = hops_of(&[bytes])?;
            assert!(forwarded.len() <= bytes.len() && plain.len() <= bytes.len());
            let added = [(0, "for=\"[2001:db8::9]:4\";by=_x"), (0, "For=192.0.2.9"), (1, "192.0.2.9:80")];
            for (header, text) in added {
                let address: IpAddr =
                    if text.contains("db8") { "2001:db8::9" } else { "192.0.2.9" }.parse().ok()?;
                for hops in followed(bytes, text, header)? {
                    assert_eq!(hops.first(), Some(&Some(address)), "{}", bytes.escape_ascii());
                }
            }
            let kinds =
                |hops: &[Option<IpAddr>]| hops.iter().map(Option::is_some).take(4).collect::<Vec<_>>();
            Some((kinds(&forwarded), kinds(&plain)))
        });
    }
}
