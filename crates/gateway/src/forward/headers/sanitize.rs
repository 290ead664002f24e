//! The header fields of a request as the upstream gets them, and of its answer as the client does.

use bytes::Bytes;
use http::Version;
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue,
    TRAILER, VIA,
};

use super::equivalent_names::{begins_as, is_plain, reads_as};
use super::forwarded::X_REAL_IP;
use super::hop_by_hop::{OWN, drop_hop_by_hop};
use super::request_id::X_REQUEST_ID;
use crate::auth::X_API_KEY;

pub(super) const X_TENANT_ID: HeaderName = HeaderName::from_static("x-tenant-id");
pub(super) const X_PLAN: HeaderName = HeaderName::from_static("x-plan");
const X_RATELIMIT_COST: HeaderName = HeaderName::from_static("x-ratelimit-cost");

/// What gateways of this kind call themselves in `Via`.
const PSEUDONYM: &str = "spile";
/// Gateways of this kind that a request may come through. More of them are the same ones again.
const MAX_HOPS: usize = 8;

/// Fields that are the gateway's alone to write, or no one's. It asks for the body itself, once an upstream is there to
/// take it, and `Proxy` sets the proxy of CGI programs.
const OURS: [HeaderName; 6] =
    [EXPECT, X_TENANT_ID, X_PLAN, X_REAL_IP, X_REQUEST_ID, HeaderName::from_static("proxy")];

/// What all fields begin with in which proxies speak of the hops before.
const OF_PROXIES: &str = "x-forwarded";
/// Fields by which some servers are told to take another path than the one that was asked for. Rules and routes have
/// matched that one.
const OTHER_PATHS: [HeaderName; 2] =
    [HeaderName::from_static("x-original-url"), HeaderName::from_static("x-rewrite-url")];

/// Fields that say who asks, or what for, and have no business behind a body.
const OF_HEADERS: [HeaderName; 6] = [AUTHORIZATION, CONTENT_LENGTH, COOKIE, HOST, TRAILER, X_API_KEY];

/// Takes out of the client's fields what no upstream is to get from a client, and what is `meant_for_us`, and writes the
/// rest as every upstream reads it.
pub(crate) fn clean(
    headers: &mut HeaderMap,
    trusted: bool,
    version: Version,
    meant_for_us: impl Fn(&HeaderName) -> bool,
) {
    drop_hop_by_hop(headers, |name| is_reserved(name, trusted) || meant_for_us(name));
    if version == Version::HTTP_2 {
        join_cookies(headers);
    }
}

/// Removes from a request's trailers the fields that clients may not set, and those that only mean something in a header:
/// some upstreams treat trailers as fields of the header.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap) {
    let of_headers = |name: &HeaderName| OF_HEADERS.iter().any(|own| reads_as(name.as_str(), own.as_str()));
    drop_hop_by_hop(trailers, |name| is_reserved(name, false) || of_headers(name));
}

/// Makes of the upstream's fields those that the client gets, and takes out what the upstream says that the request
/// cost in the end.
pub(crate) fn for_client(headers: &mut HeaderMap, version: Version) -> Option<u64> {
    let cost = headers.remove(X_RATELIMIT_COST);
    drop_hop_by_hop(headers, |_| false);
    headers.append(VIA, via(version));
    whole(cost?.to_str().ok()?)
}

/// The number; the largest `u64` if it is larger than that. `None` if it is not a whole number.
fn whole(text: &str) -> Option<u64> {
    let digits = text.trim();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// Whether the request has come through gateways of this kind so often that it must be going in circles.
pub(crate) fn goes_in_circles(headers: &HeaderMap) -> bool {
    if !headers.contains_key(VIA) {
        return false;
    }
    let lines = headers.get_all(VIA).iter().filter_map(|line| line.to_str().ok());
    let hops = lines.flat_map(|line| line.split(','));
    hops.filter(|hop| hop.split_ascii_whitespace().nth(1) == Some(PSEUDONYM)).count() >= MAX_HOPS
}

/// Whether a field is the gateway's own to write. What trusted proxies say of the hops before is kept.
fn is_reserved(name: &HeaderName, trusted: bool) -> bool {
    OURS.contains(name) || (!trusted && is_set_by_proxies(name)) || is_misspelt(name.as_str())
}

fn is_set_by_proxies(name: &HeaderName) -> bool {
    is_of_proxies(name.as_str()) || *name == FORWARDED || OTHER_PATHS.contains(name)
}

/// Whether some upstreams take the name for one that means something to the gateway, though it is not the same.
fn is_misspelt(name: &str) -> bool {
    let is_one_of = |names: &[HeaderName]| names.iter().any(|own| reads_as(name, own.as_str()));
    let is_known = || [&OURS[..], &OTHER_PATHS, &OWN, &[CONTENT_LENGTH]].into_iter().any(is_one_of);
    !is_plain(name) && (is_of_proxies(name) || is_known())
}

/// `X-Forwarded` and every `X-Forwarded-…`, however it is spelt.
fn is_of_proxies(name: &str) -> bool {
    let ends = |byte: &u8| !byte.is_ascii_alphanumeric();
    begins_as(name, OF_PROXIES) && name.as_bytes().get(OF_PROXIES.len()).is_none_or(ends)
}

/// Makes one line of the cookies that HTTP/2 lets a client send in several (RFC 9113, 8.2.3): servers of HTTP/1.1 read
/// the first one only, or join them with commas.
fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).iter();
    let (Some(first), Some(second)) = (lines.next(), lines.next()) else { return };
    let mut joined = first.as_bytes().to_vec();
    for line in std::iter::once(second).chain(lines) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(line.as_bytes());
    }
    if let Ok(joined) = HeaderValue::from_maybe_shared(Bytes::from(joined)) {
        headers.insert(COOKIE, joined);
    }
}

pub(super) fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_2 => "2 spile",
        Version::HTTP_10 => "1.0 spile",
        _ => "1.1 spile",
    })
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::*;
    use crate::auth::{Caller, Hop};
    use crate::forward::headers::{Introduction, RequestId};

    /// Fields as clients send them, those that they should not send among them.
    fn fields() -> impl Strategy<Value = HeaderMap> {
        let name = prop_oneof![
            proptest::sample::select(vec![
                "connection",
                "te",
                "upgrade",
                "keep-alive",
                "transfer-encoding",
                "proxy-connection",
                "x-tenant-id",
                "x_tenant_id",
                "x_plan",
                "x-plan",
                "x-forwarded-for",
                "forwarded",
                "x_forwarded_for",
                "via",
                "expect",
                "x-real-ip",
                "x-request-id",
                "http2-settings",
                "x-a",
                "x-b",
                "cookie",
            ])
            .prop_map(str::to_owned),
            "[a-z][a-z0-9_-]{0,12}",
        ];
        let value = prop_oneof![
            proptest::sample::select(vec![
                "x-tenant-id, x-plan",
                "close",
                "x-a, X-B ,,",
                "trailers;q=1, trailers",
                "Via",
                "\"",
                "for=1;;\"",
            ])
            .prop_map(|text| text.as_bytes().to_vec()),
            proptest::collection::vec(prop_oneof![b' '..=b'~', 0x80..=0xff_u8], 0..24),
        ];
        proptest::collection::vec((name, value), 0..16).prop_map(|pairs| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(&value)) {
                    headers.append(name, value);
                }
            }
            headers
        })
    }

    /// Fields that clients may not set, with any sign between the words of the name.
    const RESERVED: [&str; 21] = [
        "x-tenant-id",
        "x-plan",
        "x-real-ip",
        "x-request-id",
        "x-forwarded",
        "x-forwarded-for",
        "x-forwarded-client-cert",
        "x-original-url",
        "x-rewrite-url",
        "content-length",
        "transfer-encoding",
        "proxy",
        "proxy-connection",
        "proxy-authorization",
        "keep-alive",
        "http2-settings",
        "connection",
        "te",
        "upgrade",
        "expect",
        "x-api-key",
    ];

    /// A name of the list whose dashes have become any other bytes that a name can hold.
    fn respelt() -> impl Strategy<Value = String> {
        let byte = proptest::sample::select("!#$%&'*+.^_`|~-".chars().collect::<Vec<_>>());
        (proptest::sample::select(RESERVED.to_vec()), proptest::collection::vec(byte, 4)).prop_map(
            |(name, bytes)| {
                let mut bytes = bytes.into_iter();
                name.chars()
                    .map(|letter| if letter == '-' { bytes.next().unwrap_or('_') } else { letter })
                    .collect()
            },
        )
    }

    fn one(name: &str) -> HeaderMap {
        let name = HeaderName::try_from(name).expect("a name");
        HeaderMap::from_iter([(name, HeaderValue::from_static("claimed"))])
    }

    fn rewritten(mut headers: HeaderMap, trusted: bool) -> HeaderMap {
        let peer = IpAddr::from(Ipv4Addr::new(192, 0, 2, 1));
        let hop = Hop { peer, client: peer, trusted, secure: true };
        let id = RequestId::of(&headers, trusted);
        let (caller, version) = (Caller::default(), Version::HTTP_11);
        clean(&mut headers, trusted, version, |_| false);
        Introduction { caller: &caller, hop: &hop, authority: "g.test", version, id: &id }
            .insert(&mut headers);
        headers
    }

    /// Lines of `name: value`.
    fn read(bytes: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in bytes.split(|&byte| byte == b'\n') {
            let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
            let (name, value) =
                (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(&line[colon + 1..]));
            if let (Ok(name), Ok(value)) = (name, value) {
                headers.append(name, value);
            }
        }
        headers
    }

    #[test]
    fn fuzzed_fields_are_clean_at_once_and_a_cookie_loses_no_part() {
        let words =
            ["cookie:a=1\n", "connection:", "x_tenant_id:a\n", "te:trailers\n", "x-forwarded-for:1\n", "\n"];
        spile_testkit::fuzz::fuzz("fields", &words, |bytes| {
            let sent = read(bytes);
            let cookies: Vec<HeaderValue> = sent.get_all(COOKIE).iter().cloned().collect();
            let mut headers = sent.clone();
            clean(&mut headers, false, Version::HTTP_2, |_| false);
            let mut trailers = sent;
            clean_trailers(&mut trailers);
            let left: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
            assert!(left.len() <= 1, "one line of cookies");
            if let [joined] = &left[..] {
                let parts: Vec<&[u8]> = cookies.iter().map(HeaderValue::as_bytes).collect();
                assert_eq!(joined.as_bytes(), parts.join(&b"; "[..]));
            }
            for name in trailers.keys().chain(headers.keys()).map(HeaderName::as_str) {
                let named = RESERVED.iter().find(|reserved| reads_as(name, reserved));
                // Its length is the body's own affair, and a key is the authenticator's.
                let expected = matches!(named, None | Some(&("x-api-key" | "content-length" | "te")));
                assert!(expected, "{name}");
            }
            let again = |fields: &HeaderMap| {
                let (mut header, mut trailers) = (fields.clone(), fields.clone());
                clean(&mut header, false, Version::HTTP_2, |_| false);
                clean_trailers(&mut trailers);
                [header, trailers]
            };
            assert_eq!((&again(&headers)[0], &again(&trailers)[1]), (&headers, &trailers));
            (headers.len(), trailers.len(), cookies.len())
        });
    }

    proptest! {
        #[test]
        fn no_spelling_of_a_name_gets_a_claim_through(name in respelt()) {
            let (mut header, mut trailers) = (one(&name), one(&name));
            clean(&mut header, false, Version::HTTP_11, |name| reads_as(name.as_str(), "x-api-key"));
            // Its length is the body's own affair, and it is never written from here.
            header.remove(CONTENT_LENGTH);
            prop_assert!(header.is_empty(), "{:?}", header);
            clean_trailers(&mut trailers);
            prop_assert!(trailers.is_empty(), "{:?}", trailers);
        }

        #[test]
        fn what_the_connection_names_goes_in_every_spelling(named in "[a-z]{3}[!#$%&'*+.^_`|~-][a-z0-9]{3}", sent in "[!#$%&'*+.^_`|~-]") {
            let mut headers = one(&format!("{}{sent}{}", &named[..3], &named[4..]));
            headers.insert("connection", HeaderValue::from_str(&format!("close, {}", named.to_uppercase())).unwrap());
            clean(&mut headers, false, Version::HTTP_11, |_| false);
            prop_assert!(headers.is_empty(), "{:?}", headers);
        }

        #[test]
        fn a_name_of_any_bytes_that_is_no_ones_goes_through(name in "q[a-z0-9!#$%&'*+.^_`|~-]{0,20}") {
            prop_assert!(rewritten(one(&name), false).contains_key(&name));
        }

        #[test]
        fn no_field_of_the_connection_and_no_claim_gets_through(headers in fields(), trusted: bool) {
            let rewritten = rewritten(headers, trusted);
            for name in [
                "connection", "keep-alive", "transfer-encoding", "upgrade", "proxy-connection", "http2-settings",
                "expect", "x-tenant-id", "x_tenant_id", "x-plan", "x_plan", "x_forwarded_for",
            ] {
                prop_assert!(!rewritten.contains_key(name), "{}", name);
            }
            prop_assert!(rewritten.get("te").is_none_or(|value| value == "trailers"));
        }

        #[test]
        fn the_gateways_own_word_stands_last_and_once(headers in fields(), trusted: bool) {
            let rewritten = rewritten(headers, trusted);
            let one = |name: &str| {
                let values: Vec<_> = rewritten.get_all(name).iter().collect();
                prop_assert_eq!(values.len(), 1, "{}", name);
                Ok(values[0].to_str().expect("text").to_owned())
            };
            let hops = one("x-forwarded-for")?;
            prop_assert!(hops == "192.0.2.1" || (trusted && hops.ends_with(", 192.0.2.1")));
            prop_assert!(one("forwarded")?.ends_with("for=192.0.2.1;host=\"g.test\";proto=https"));
            prop_assert_eq!(one("x-real-ip")?, "192.0.2.1");
            one("x-request-id")?;
            prop_assert_eq!(rewritten.get_all("via").iter().next_back().unwrap(), "1.1 spile");
        }

        #[test]
        fn fields_that_are_nobodys_business_go_through_as_they_are(value in "[ -~]{0,32}") {
            let value = HeaderValue::from_str(value.trim()).unwrap();
            let headers = HeaderMap::from_iter([(HeaderName::from_static("x-any"), value.clone())]);
            prop_assert_eq!(&rewritten(headers, false)["x-any"], &value);
        }

        #[test]
        fn no_field_of_the_upstreams_connection_and_no_cost_reaches_a_client(headers in fields(), cost in "[ -~]{0,4}|[0-9]{1,24}") {
            let mut headers = headers;
            if let Ok(cost) = HeaderValue::from_str(&cost) {
                headers.append(X_RATELIMIT_COST, cost);
            }
            let reported = for_client(&mut headers, Version::HTTP_11);
            let digits = Some(cost.trim()).filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
            prop_assert_eq!(reported, digits.map(|digits| digits.parse().unwrap_or(u64::MAX)));
            for name in ["connection", "keep-alive", "transfer-encoding", "upgrade", "x-ratelimit-cost"] {
                prop_assert!(!headers.contains_key(name), "{}", name);
            }
            prop_assert_eq!(headers.get_all("via").iter().next_back().unwrap(), "1.1 spile");
        }

        #[test]
        fn only_eight_of_our_own_kind_make_a_circle(own in 0_usize..12, others in "[a-z0-9. ,/()-]{0,40}") {
            let mut headers = HeaderMap::new();
            for _ in 0..own {
                headers.append(VIA, via(Version::HTTP_11));
            }
            let claimed = others.split(',').filter(|hop| hop.split_ascii_whitespace().nth(1) == Some("spile")).count();
            headers.append(VIA, HeaderValue::from_str(&others).unwrap());
            prop_assert_eq!(goes_in_circles(&headers), own + claimed >= 8);
        }
    }
}
