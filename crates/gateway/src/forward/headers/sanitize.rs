//! Removes header fields that must not be forwarded, in either direction.

use bytes::Bytes;
use http::Version;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName,
    HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE, TRAILER,
    VIA,
};

use super::equivalent_names::{has_equivalent_prefix, is_equivalent, is_plain};
use super::forwarded::X_REAL_IP;
use super::hop_by_hop::{HOP_BY_HOP, drop_hop_by_hop};
use super::request_id::X_REQUEST_ID;
use crate::auth::X_API_KEY;

pub(super) const X_TENANT_ID: HeaderName = HeaderName::from_static("x-tenant-id");
pub(super) const X_PLAN: HeaderName = HeaderName::from_static("x-plan");
const X_RATELIMIT_COST: HeaderName = HeaderName::from_static("x-ratelimit-cost");

/// The gateway's name in `Via`.
const PSEUDONYM: &str = "spile";
/// The number of gateways that a request may come through. With more, it is assumed to be looping.
const MAX_HOPS: usize = 8;

/// Fields that only the gateway may set, or that no one may. `Expect` is answered by the gateway, once an upstream
/// takes the body. `Proxy` would set the outbound proxy of CGI programs.
const RESERVED_FIELDS: [HeaderName; 6] =
    [EXPECT, X_TENANT_ID, X_PLAN, X_REAL_IP, X_REQUEST_ID, HeaderName::from_static("proxy")];

/// The prefix of the fields in which proxies describe earlier hops.
const FORWARDED_PREFIX: &str = "x-forwarded";
/// Fields that make some servers serve another path than the one that routes and rules have matched.
const PATH_OVERRIDES: [HeaderName; 2] =
    [HeaderName::from_static("x-original-url"), HeaderName::from_static("x-rewrite-url")];

/// Fields about credentials or framing that do not belong in trailers.
const NOT_IN_TRAILERS: [HeaderName; 6] = [AUTHORIZATION, CONTENT_LENGTH, COOKIE, HOST, TRAILER, X_API_KEY];

/// Fields by which a client would select a part of a body, or an encoding that cannot be read.
const BODY_CHOICES: [HeaderName; 7] =
    [ACCEPT_ENCODING, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE];

/// Removes from a request the fields that clients may not set, and those that are meant for the gateway alone
/// (`is_ours`). Joins cookies for upstreams that speak HTTP/1.1.
pub(crate) fn sanitize_request(
    headers: &mut HeaderMap,
    trusted: bool,
    version: Version,
    is_ours: impl Fn(&HeaderName) -> bool,
) {
    drop_hop_by_hop(headers, |name| is_reserved(name, trusted) || is_ours(name));
    if version == Version::HTTP_2 {
        join_cookies(headers);
    }
}

/// Asks for the whole body as it is: removes conditions and ranges, and forbids compression.
pub(crate) fn request_whole_body(headers: &mut HeaderMap) {
    let is_choice =
        |name: &&HeaderName| BODY_CHOICES.iter().any(|own| is_equivalent(name.as_str(), own.as_str()));
    let chosen: Vec<HeaderName> = headers.keys().filter(is_choice).cloned().collect();
    for name in chosen {
        headers.remove(name);
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// Removes from a request's trailers the fields that clients may not set and those that only belong in a header: some
/// upstreams treat trailers as fields of the header.
pub(crate) fn sanitize_trailers(trailers: &mut HeaderMap) {
    let of_headers =
        |name: &HeaderName| NOT_IN_TRAILERS.iter().any(|own| is_equivalent(name.as_str(), own.as_str()));
    drop_hop_by_hop(trailers, |name| is_reserved(name, false) || of_headers(name));
}

/// Removes the fields that the client must not get.
pub(crate) fn sanitize_response(headers: &mut HeaderMap, version: Version) {
    headers.remove(X_RATELIMIT_COST);
    drop_hop_by_hop(headers, |_| false);
    headers.append(VIA, via(version));
}

/// True if the request has passed more gateways than a route without a loop has.
pub(crate) fn is_loop(headers: &HeaderMap) -> bool {
    if !headers.contains_key(VIA) {
        return false;
    }
    let lines = headers.get_all(VIA).iter().filter_map(|line| line.to_str().ok());
    let hops = lines.flat_map(|line| line.split(','));
    hops.filter(|downstream| downstream.split_ascii_whitespace().nth(1) == Some(PSEUDONYM)).count()
        >= MAX_HOPS
}

/// Whether clients may not set the field. Fields in which trusted proxies describe earlier hops are allowed.
fn is_reserved(name: &HeaderName, trusted: bool) -> bool {
    RESERVED_FIELDS.contains(name) || (!trusted && is_proxy_field(name)) || is_lookalike(name.as_str())
}

fn is_proxy_field(name: &HeaderName) -> bool {
    is_forwarded_name(name.as_str()) || *name == FORWARDED || PATH_OVERRIDES.contains(name)
}

/// True if some upstreams treat the name as one that clients may not set.
fn is_lookalike(name: &str) -> bool {
    let is_one_of = |names: &[HeaderName]| names.iter().any(|own| is_equivalent(name, own.as_str()));
    let is_known =
        || [&RESERVED_FIELDS[..], &PATH_OVERRIDES, &HOP_BY_HOP, &[CONTENT_LENGTH]].into_iter().any(is_one_of);
    !is_plain(name) && (is_forwarded_name(name) || is_known())
}

/// Whether the name is `X-Forwarded` or `X-Forwarded-…`, in any equivalent spelling.
fn is_forwarded_name(name: &str) -> bool {
    let ends = |byte: &u8| !byte.is_ascii_alphanumeric();
    has_equivalent_prefix(name, FORWARDED_PREFIX)
        && name.as_bytes().get(FORWARDED_PREFIX.len()).is_none_or(ends)
}

/// Joins the `Cookie` fields that HTTP/2 allows a client to split (RFC 9113, 8.2.3). Servers of HTTP/1.1 read only the
/// first one, or join them with commas.
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
    use crate::auth::{Caller, Downstream};
    use crate::forward::headers::{ForwardingHeaders, RequestId};

    /// Fields as clients send them, including those that they may not set.
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

    /// Fields that clients may not set.
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

    /// One of these names, with each dash replaced by any byte that a name may hold.
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
        let downstream = Downstream { peer, client: peer, trusted, secure: true };
        let id = RequestId::of(&headers, trusted);
        let (caller, version) = (Caller::default(), Version::HTTP_11);
        sanitize_request(&mut headers, trusted, version, |_| false);
        ForwardingHeaders { caller: &caller, downstream: &downstream, authority: "g.test", version, id: &id }
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
            sanitize_request(&mut headers, false, Version::HTTP_2, |_| false);
            let mut trailers = sent;
            sanitize_trailers(&mut trailers);
            let left: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
            assert!(left.len() <= 1, "one line of cookies");
            if let [joined] = &left[..] {
                let parts: Vec<&[u8]> = cookies.iter().map(HeaderValue::as_bytes).collect();
                assert_eq!(joined.as_bytes(), parts.join(&b"; "[..]));
            }
            for name in trailers.keys().chain(headers.keys()).map(HeaderName::as_str) {
                let named = RESERVED.iter().find(|reserved| is_equivalent(name, reserved));
                // `Content-Length` is handled with the body, and the API key by the authenticator.
                let expected = matches!(named, None | Some(&("x-api-key" | "content-length" | "te")));
                assert!(expected, "{name}");
            }
            let again = |fields: &HeaderMap| {
                let (mut header, mut trailers) = (fields.clone(), fields.clone());
                sanitize_request(&mut header, false, Version::HTTP_2, |_| false);
                sanitize_trailers(&mut trailers);
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
            sanitize_request(&mut header, false, Version::HTTP_11, |name| is_equivalent(name.as_str(), "x-api-key"));
            // `Content-Length` is handled with the body.
            header.remove(CONTENT_LENGTH);
            prop_assert!(header.is_empty(), "{:?}", header);
            sanitize_trailers(&mut trailers);
            prop_assert!(trailers.is_empty(), "{:?}", trailers);
        }

        #[test]
        fn what_the_connection_names_goes_in_every_spelling(named in "[a-z]{3}[!#$%&'*+.^_`|~-][a-z0-9]{3}", sent in "[!#$%&'*+.^_`|~-]") {
            let mut headers = one(&format!("{}{sent}{}", &named[..3], &named[4..]));
            headers.insert("connection", HeaderValue::from_str(&format!("close, {}", named.to_uppercase())).unwrap());
            sanitize_request(&mut headers, false, Version::HTTP_11, |_| false);
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
            sanitize_response(&mut headers, Version::HTTP_11);
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
            let claimed = others.split(',').filter(|downstream| downstream.split_ascii_whitespace().nth(1) == Some("spile")).count();
            headers.append(VIA, HeaderValue::from_str(&others).unwrap());
            prop_assert_eq!(is_loop(&headers), own + claimed >= 8);
        }
    }
}
