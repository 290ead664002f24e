//! The part of a text that may be shown if its purpose is not certain.

use std::ops::Range;

/// The schemes that some setting accepts. A similar word is a misspelt scheme.
const SCHEMES: [&str; 8] =
    ["memory", "redis", "rediss", "unix", "redis-sentinel", "redis-cluster", "http", "https"];
/// The longest text that is shown because it is plain.
const MOST_PLAIN: usize = 24;
/// The most digits of such a text.
const MOST_DIGITS: usize = 16;
/// The words that follow numbers: units of time, of size and of addresses in hexadecimal digits.
const UNITS: [&str; 35] = [
    "us", "ms", "s", "sec", "second", "seconds", "m", "min", "minute", "minutes", "h", "hour", "hours", "d",
    "day", "days", "w", "week", "weeks", "month", "year", "bytes", "b", "kb", "mb", "gb", "kib", "mib",
    "gib", "e", "tb", "tib", "pib", "eib", "k",
];
/// The longest word that is shown.
const MOST_WORD: usize = 9;
/// The shortest part of a hidden text that is searched for in messages.
const LEAST_PART: usize = 4;

/// Whether this is a scheme, a misspelt one, or a short word in its place.
pub(crate) fn is_almost_scheme(word: &str) -> bool {
    is_word(word) || is_misspelt_scheme(word)
}

fn is_misspelt_scheme(word: &str) -> bool {
    let bearable = if word.len() <= 4 { 1 } else { 2 };
    SCHEMES.iter().any(|scheme| strsim::osa_distance(word, scheme) <= bearable)
}

/// Whether this is a short word in lowercase, which is too weak for a secret.
fn is_word(text: &str) -> bool {
    text.len() <= MOST_WORD && text.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// Whether the text is a number, a duration, a rate, addresses in digits, or a short word.
pub(crate) fn is_plain(text: &str) -> bool {
    let is_known = |byte: u8| b"0123456789./:%+-_[] ".contains(&byte) || byte.is_ascii_alphabetic();
    let mut words = text.split(|letter: char| !letter.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let begins = text.bytes().next().is_none_or(|first| first.is_ascii_digit() || b"-+[:.".contains(&first));
    let is_number = begins && text.len() <= MOST_PLAIN && text.bytes().all(is_known);
    is_word(text)
        || (is_number
            && digits <= MOST_DIGITS
            && words.all(|word| UNITS.contains(&&*word.to_ascii_lowercase())))
}

/// The text as it was typed on a command line if it is plain, as a URL without what may be secret, or else a mask.
pub fn mask_typed(typed: &str) -> String {
    if is_plain(typed) {
        return typed.to_owned();
    }
    let mut shown = typed.to_owned();
    for hidden in url_secrets(typed).into_iter().rev() {
        shown.replace_range(hidden, super::mask::MASK);
    }
    shown
}

/// The parts of a URL that may be secret: all but a scheme that is known or almost so, hosts with their ports, and a database. All of it
/// if it is not such a URL.
pub(crate) fn url_secrets(url: &str) -> Vec<Range<usize>> {
    let all = std::iter::once(0..url.len()).collect();
    if url.strip_suffix(':').is_some_and(is_word) {
        return Vec::new();
    }
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| is_almost_scheme(scheme)) else {
        return all;
    };
    let start = scheme.len() + 3;
    // A password may hold any character, including one that should end it.
    let user = rest.rfind('@');
    let hosts_at = user.map_or(0, |at| at + 1);
    let hosts_end = rest[hosts_at..].find(['/', '?', '#']).map_or(rest.len(), |end| hosts_at + end);
    let hosts = &rest[hosts_at..hosts_end];
    let mut secrets: Vec<Range<usize>> = user.map(|at| start..start + at).into_iter().collect();
    if !hosts.split(',').all(|host| is_host(host, user.is_some())) {
        secrets.push(start + hosts_at..start + hosts_end);
    }
    let path = rest[hosts_end..].trim_start_matches('/');
    if !path.bytes().all(|byte| byte.is_ascii_digit()) || path.len() > 2 {
        secrets.push(url.len() - path.len()..url.len());
    }
    secrets.retain(|secret| !secret.is_empty());
    secrets
}

/// Whether this is a host with or without a port. A single word could be a password in its place, unless a user is
/// before it.
fn is_host(text: &str, is_certain: bool) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = port.is_none_or(|port| port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit()));
    let is_ipv6 = host.strip_prefix('[').is_some_and(|host| host.ends_with(']') && !host.contains('@'));
    let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    let is_known =
        is_certain || port.is_some_and(|port| !port.is_empty()) || host.contains('.') || host == "localhost";
    is_port && (is_ipv6 || (is_name && is_known))
}

/// The message without these hidden texts and their words.
pub(crate) fn without<'s>(message: &str, hidden: impl IntoIterator<Item = &'s str>) -> String {
    let mut shown = message.to_owned();
    for secret in hidden {
        let secret = secret.trim();
        let words = secret.split(|letter: char| !letter.is_alphanumeric());
        let words = words.filter(|word| word.len() >= LEAST_PART && !is_misspelt_scheme(word));
        for part in std::iter::once(secret).filter(|all| all.len() >= LEAST_PART).chain(words) {
            if shown.contains(part) {
                shown = shown.replace(part, super::mask::MASK);
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_as_far_as_it_is_one() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("redis://cache.example/1", "redis://cache.example/1"),
            ("redis-cluster://a:1,b:2,[::1]:3", "redis-cluster://a:1,b:2,[::1]:3"),
            ("memory:", "memory:"),
            ("reds://user:hunter2@h:6379/1", "reds://***@h:6379/1"),
            ("redis://:hun/ter2@h", "redis://***@h"),
            ("redis://hunter2", "redis://***"),
            ("redis://:hunter2", "redis://***"),
            ("redis://h:6379:hunter2", "redis://***"),
            ("redis://h:6379/hunter2", "redis://h:6379/***"),
            ("htps://hooks.example.com/services/hunter2", "htps://hooks.example.com/***"),
            ("https://h.example?token=hunter2", "https://h.example***"),
            ("hunter2@h", "***"),
            ("h:6379:hunter2", "***"),
            ("hunter2://h:6379", "***"),
        ] {
            assert_eq!(mask_typed(url), shown);
        }
    }

    #[test]
    fn plain_texts_are_shown() {
        for text in [
            "10",
            "50ms",
            "1/s",
            "10000/day",
            "64KiB",
            "127.0.0.1:8080",
            "[::1]:80",
            ":8080",
            "0.5",
            "1h30m",
            "alow",
        ] {
            assert_eq!(mask_typed(text), text);
        }
        for text in [
            "hunter2",
            "4ab9c02e77f1",
            "12345678901234567",
            "correct horse",
            "Sup3rSecret",
            "127.0.0.1:6379:hunter2",
            "2fast4you",
        ] {
            assert_eq!(mask_typed(text), "***");
        }
    }
}
