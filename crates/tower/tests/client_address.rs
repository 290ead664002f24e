//! Whose address a request counts under, whatever its headers say.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use spile_tower::client::{ClientAddress, Forwarding, Networks, PeerAddr};
use spile_tower::key::{ClientIp, KeyResolver};

const PROXY: &str = "10.0.0.1";

fn proxies() -> Networks {
    Networks::parse(["10.0.0.0/8", "fd00::/8"]).unwrap()
}

fn seen(header: Forwarding, peer: &str, lines: &[&str]) -> String {
    let name = match header {
        Forwarding::Forwarded => "forwarded",
        _ => "x-forwarded-for",
    };
    let mut headers = HeaderMap::new();
    for line in lines {
        let value = HeaderValue::from_bytes(line.as_bytes()).unwrap();
        headers.append(HeaderName::from_static(name), value);
    }
    let address = ClientAddress::reported_in(header, proxies());
    address.seen_by(peer.parse().unwrap(), &headers).to_string()
}

#[test]
fn x_forwarded_for_is_read_from_the_right_up_to_the_first_stranger() {
    let table: &[(&[&str], &str)] = &[
        (&[], PROXY),
        (&["203.0.113.7"], "203.0.113.7"),
        (&["198.51.100.1, 203.0.113.7"], "203.0.113.7"),
        (&["198.51.100.1, 203.0.113.7, 10.0.0.9"], "203.0.113.7"),
        (&["198.51.100.1", "203.0.113.7"], "203.0.113.7"),
        (&["198.51.100.1, 203.0.113.7", "10.0.0.8, 10.0.0.9"], "203.0.113.7"),
        (&["203.0.113.7:5123"], "203.0.113.7"),
        (&["[2001:db8::1]:5123"], "2001:db8::1"),
        (&["2001:db8::1"], "2001:db8::1"),
        (&["203.0.113.7,, ,"], "203.0.113.7"),
        (&[""], PROXY),
        (&["::ffff:203.0.113.7"], "203.0.113.7"),
        (&["203.0.113.7, ::ffff:10.0.0.9"], "203.0.113.7"),
        (&["198.51.100.1, unknown"], PROXY),
        (&["198.51.100.1, _hidden, 10.0.0.9"], "10.0.0.9"),
        (&["198.51.100.1, \u{fc}"], PROXY),
        (&["10.0.0.7, 10.0.0.9"], "10.0.0.7"),
    ];
    for (lines, expected) in table {
        assert_eq!(seen(Forwarding::XForwardedFor, PROXY, lines), *expected, "{lines:?}");
    }
}

#[test]
fn forwarded_is_read_from_the_right_up_to_the_first_stranger() {
    let table: &[(&[&str], &str)] = &[
        (&["for=203.0.113.7"], "203.0.113.7"),
        (&["For=203.0.113.7;proto=https;by=10.0.0.1"], "203.0.113.7"),
        (&["proto=https; for=203.0.113.7"], "203.0.113.7"),
        (&["for=198.51.100.1, for=203.0.113.7, for=10.0.0.9"], "203.0.113.7"),
        (&["for=198.51.100.1", "for=203.0.113.7"], "203.0.113.7"),
        (&["for=\"[2001:db8::1]:4711\""], "2001:db8::1"),
        (&["for=\"[2001:db8::1]\""], "2001:db8::1"),
        (&["for=\"203.0.113.7:4711\""], "203.0.113.7"),
        (&["for=\"203.0.\\113.7\""], "203.0.113.7"),
        (&["for=\"_a,b;for=198.51.100.1\", for=203.0.113.7"], "203.0.113.7"),
        // What the client left open, the proxy's own entry is not swallowed by.
        (&["for=\"198.51.100.1, for=203.0.113.7"], "203.0.113.7"),
        (&["for=198.51.100.1\\, for=203.0.113.7"], "203.0.113.7"),
        (&["for=198.51.100.1, for=unknown"], PROXY),
        (&["for=198.51.100.1, for=_hidden;proto=http"], PROXY),
        (&["for=198.51.100.1, proto=http"], PROXY),
        (&["for=198.51.100.1;for=203.0.113.7"], PROXY),
        (&["203.0.113.7"], PROXY),
        (&["for=\"203.0.113.7"], PROXY),
    ];
    for (lines, expected) in table {
        assert_eq!(seen(Forwarding::Forwarded, PROXY, lines), *expected, "{lines:?}");
    }
}

#[test]
fn the_two_headers_are_never_merged() {
    let mut headers = HeaderMap::new();
    headers.insert("x-forwarded-for", HeaderValue::from_static("203.0.113.7"));
    headers.insert("forwarded", HeaderValue::from_static("for=198.51.100.1"));
    let seen = |header| {
        let address = ClientAddress::reported_in(header, proxies());
        address.seen_by(PROXY.parse().unwrap(), &headers).to_string()
    };
    assert_eq!(seen(Forwarding::XForwardedFor), "203.0.113.7");
    assert_eq!(seen(Forwarding::Forwarded), "198.51.100.1");
}

#[test]
fn a_proxy_is_known_by_its_mapped_address_as_well() {
    assert_eq!(seen(Forwarding::XForwardedFor, "::ffff:10.0.0.1", &["203.0.113.7"]), "203.0.113.7");
}

#[test]
fn a_text_that_names_no_network_is_refused_by_name() {
    let error = Networks::parse(["10.0.0.0/8", "10.0.0.0/33"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`10.0.0.0/33` is not a network: write an address and a prefix, as in 10.0.0.0/8"
    );
}

fn headers() -> impl Strategy<Value = Vec<(&'static str, Vec<u8>)>> {
    let name = prop::sample::select(vec![
        "x-forwarded-for",
        "forwarded",
        "x-real-ip",
        "x-client-ip",
        "true-client-ip",
        "cf-connecting-ip",
        "host",
    ]);
    let entry = prop_oneof![
        any::<IpAddr>().prop_map(|ip| ip.to_string()),
        any::<IpAddr>().prop_map(|ip| format!("for=\"{ip}\"")),
        Just("10.0.0.1".to_owned()),
        Just("for=10.0.0.1".to_owned()),
        "[ -~]{0,20}",
    ];
    let line = prop_oneof![
        prop::collection::vec(entry, 0..5).prop_map(|entries| entries.join(", ").into_bytes()),
        prop::collection::vec(0x80u8.., 0..20),
    ];
    prop::collection::vec((name, line), 0..6)
}

fn request(peer: IpAddr, headers: &[(&'static str, Vec<u8>)]) -> http::request::Parts {
    let mut parts = http::Request::new(()).into_parts().0;
    parts.extensions.insert(PeerAddr(SocketAddr::new(peer, 5_123)));
    for (name, value) in headers {
        parts.headers.append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    parts
}

proptest! {
    #[test]
    fn nothing_an_untrusted_peer_sends_changes_its_key(peer: IpAddr, headers in headers()) {
        prop_assume!(!proxies().contain(peer));
        for header in [Forwarding::XForwardedFor, Forwarding::Forwarded] {
            let resolver = ClientIp::reported_in(header, proxies());
            prop_assert_eq!(resolver.resolve(&request(peer, &headers)), Some(resolver.key_of(peer)));
        }
        let direct = ClientIp::direct();
        prop_assert_eq!(direct.resolve(&request(peer, &headers)), Some(direct.key_of(peer)));
    }

    #[test]
    fn nothing_a_client_sends_outweighs_what_the_proxy_adds(client: IpAddr, headers in headers()) {
        prop_assume!(!proxies().contain(client));
        let client = client.to_canonical();
        let quoted = if client.is_ipv6() { format!("\"[{client}]:80\"") } else { client.to_string() };
        let added = [
            (Forwarding::XForwardedFor, "x-forwarded-for", client.to_string()),
            (Forwarding::Forwarded, "forwarded", format!("for={quoted}")),
        ];
        for (header, name, entry) in added {
            let resolver = ClientIp::reported_in(header, proxies());
            let request = request(PROXY.parse().unwrap(), &appended(&headers, name, &entry));
            prop_assert_eq!(resolver.resolve(&request), Some(resolver.key_of(client)));
        }
    }
}

/// The headers after a proxy has added its entry to the last line of that name, as nginx does.
fn appended(
    headers: &[(&'static str, Vec<u8>)],
    name: &'static str,
    entry: &str,
) -> Vec<(&'static str, Vec<u8>)> {
    let mut headers = headers.to_vec();
    match headers.iter_mut().rfind(|(existing, _)| *existing == name) {
        Some((_, line)) => {
            line.extend_from_slice(b", ");
            line.extend_from_slice(entry.as_bytes());
        }
        None => headers.push((name, entry.as_bytes().to_vec())),
    }
    headers
}
