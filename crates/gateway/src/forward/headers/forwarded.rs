//! `Forwarded`, `X-Forwarded-*` and `X-Real-IP`, which name the client to upstreams.

use std::fmt::Write;
use std::net::IpAddr;

use arrayvec::ArrayString;
use bytes::Bytes;
use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};

use crate::auth::Downstream;

pub(super) const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(super) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Writes the fields. Those of a trusted proxy are extended; those of other peers have been removed before.
pub(super) fn write_forwarded(headers: &mut HeaderMap, downstream: &Downstream, authority: &str) {
    let own = ForwardedElement::new(downstream, authority);
    if downstream.trusted {
        add_to_forwarded(headers, &own);
        if downstream.client == downstream.peer {
            headers.insert(X_REAL_IP, own.peer);
        } else if let Ok(client) = HeaderValue::from_str(&downstream.client.to_string()) {
            headers.insert(X_REAL_IP, client);
        }
        return;
    }
    headers.insert(X_REAL_IP, own.peer.clone());
    headers.insert(X_FORWARDED_FOR, own.peer);
    headers.insert(X_FORWARDED_PROTO, own.proto);
    if let Some(host) = own.host {
        headers.insert(X_FORWARDED_HOST, host);
    }
    headers.insert(FORWARDED, own.whole);
}

/// `for=203.0.113.7;host="api.example.com";proto=https`, and its parts.
struct ForwardedElement {
    whole: HeaderValue,
    peer: HeaderValue,
    /// `None` if an HTTP/1.0 client sent no host.
    host: Option<HeaderValue>,
    proto: HeaderValue,
}

impl ForwardedElement {
    fn new(downstream: &Downstream, host: &str) -> Self {
        let proto = if downstream.secure { "https" } else { "http" };
        let mut text = String::with_capacity(96);
        text.push_str(if downstream.peer.is_ipv4() { "for=" } else { "for=\"[" });
        let peer_at = text.len();
        text.push_str(&address_text(downstream.peer));
        let peer_to = text.len();
        text.push_str(if downstream.peer.is_ipv4() { "" } else { "]\"" });
        // The host is valid: letters, digits, dots, colons and brackets, so it needs no escaping.
        let host_at = text.len() + ";host=\"".len();
        if !host.is_empty() {
            text.extend([";host=\"", host, "\""]);
        }
        text.extend([";proto=", proto]);
        // All values are slices of one allocation.
        let text = Bytes::from(text);
        let part = |from, to| HeaderValue::from_maybe_shared(text.slice(from..to));
        let blank = || HeaderValue::from_static("");
        Self {
            peer: part(peer_at, peer_to).unwrap_or_else(|_| blank()),
            host: if host.is_empty() { None } else { part(host_at, host_at + host.len()).ok() },
            proto: HeaderValue::from_static(proto),
            whole: part(0, text.len()).unwrap_or_else(|_| blank()),
        }
    }
}

/// The address as text. The longest has 39 bytes.
pub(super) fn address_text(address: IpAddr) -> ArrayString<39> {
    let mut text = ArrayString::new();
    let IpAddr::V4(address) = address else {
        // An address is never longer than the array.
        let _ = write!(text, "{address}");
        return text;
    };
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            text.push('.');
        }
        text.push_str(itoa::Buffer::new().format(octet));
    }
    text
}

fn add_to_forwarded(headers: &mut HeaderMap, own: &ForwardedElement) {
    append(headers, X_FORWARDED_FOR, &own.peer);
    if !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, own.proto.clone());
    }
    if let Some(host) = &own.host
        && !headers.contains_key(X_FORWARDED_HOST)
    {
        headers.insert(X_FORWARDED_HOST, host.clone());
    }
    append(headers, FORWARDED, &own.whole);
}

/// Appends an item to a list that may be spread over several fields. Fields that are not text are dropped.
fn append(headers: &mut HeaderMap, name: HeaderName, item: &HeaderValue) {
    let mut list = Vec::new();
    for line in headers.get_all(&name).iter().filter(|line| line.to_str().is_ok()) {
        list.extend_from_slice(line.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(item.as_bytes());
    if let Ok(list) = HeaderValue::from_maybe_shared(Bytes::from(list)) {
        headers.insert(name, list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_as_the_standard_library_writes_it() {
        for address in
            ["0.0.0.0", "255.255.255.255", "10.1.20.200", "::1", "2001:db8:1111:2222:3333:ff00:1042:8329"]
        {
            assert_eq!(address_text(address.parse().unwrap()).as_str(), address);
        }
    }

    #[test]
    fn an_element_and_its_parts_agree() {
        let peer: IpAddr = "2001:db8::1".parse().unwrap();
        let own = ForwardedElement::new(
            &Downstream { peer, client: peer, trusted: false, secure: true },
            "a.test:8443",
        );
        assert_eq!(own.whole, "for=\"[2001:db8::1]\";host=\"a.test:8443\";proto=https");
        assert_eq!((own.peer, own.proto), ("2001:db8::1".parse().unwrap(), "https".parse().unwrap()));
        assert_eq!(own.host.unwrap(), "a.test:8443");
        let nameless =
            ForwardedElement::new(&Downstream { peer, client: peer, trusted: false, secure: false }, "");
        assert_eq!(nameless.whole, "for=\"[2001:db8::1]\";proto=http");
        assert!(nameless.host.is_none());
    }
}
