//! One entry of a forwarding header: an address as proxies write it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address that the entry names: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`. `None`
/// if it is `unknown`, obfuscated (`_hidden`) or anything else.
pub(crate) fn address(entry: &str) -> Option<IpAddr> {
    let address = match entry.strip_prefix('[') {
        Some(rest) => bracketed(rest)?,
        None => bare(entry)?,
    };
    Some(address.to_canonical())
}

fn bracketed(rest: &str) -> Option<IpAddr> {
    let (address, port) = rest.split_once(']')?;
    let known = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    known.then(|| v6(address)).flatten()
}

/// An address without brackets: more than one colon makes it IPv6, which then has no port.
fn bare(entry: &str) -> Option<IpAddr> {
    match entry.split_once(':') {
        None => v4(entry),
        Some((address, port)) if !port.contains(':') => is_port(port).then(|| v4(address)).flatten(),
        Some(_) => v6(entry),
    }
}

fn v4(text: &str) -> Option<IpAddr> {
    text.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

/// A zone (`fe80::1%eth0`) has a meaning only on the proxy, and is left out.
fn v6(text: &str) -> Option<IpAddr> {
    let address = text.split_once('%').map_or(text, |(address, _zone)| address);
    address.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

/// A port in digits, or hidden as RFC 7239 allows.
fn is_port(port: &str) -> bool {
    let hidden = |name: &str| !name.is_empty() && name.bytes().all(is_obfuscated);
    port.strip_prefix('_').map_or_else(|| port.parse::<u16>().is_ok(), hidden)
}

const fn is_obfuscated(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_entries_read_as_the_address_they_name_or_as_none() {
        let table = [
            ("192.0.2.1", Some("192.0.2.1")),
            ("192.0.2.1:8080", Some("192.0.2.1")),
            ("192.0.2.1:_hidden", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:443", Some("2001:db8::1")),
            ("[fe80::1%eth0]:443", Some("fe80::1")),
            ("fe80::1%eth0", Some("fe80::1")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("[::ffff:192.0.2.1]:80", Some("192.0.2.1")),
            ("unknown", None),
            ("_hidden", None),
            ("_SEVKISEK", None),
            ("", None),
            ("localhost", None),
            ("192.0.2", None),
            ("192.0.2.256", None),
            ("0192.0.2.1", None),
            ("192.0.2.1:", None),
            ("192.0.2.1:http", None),
            ("192.0.2.1:99999", None),
            ("[2001:db8::1", None),
            ("[2001:db8::1]443", None),
            ("[192.0.2.1]", None),
            ("2001:db8::1]", None),
            ("192.0.2.1 192.0.2.2", None),
        ];
        for (entry, expected) in table {
            assert_eq!(address(entry), expected.map(|text| text.parse().unwrap()), "{entry:?}");
        }
    }
}
