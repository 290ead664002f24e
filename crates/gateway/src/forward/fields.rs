//! The header fields of a request as the upstream gets them, and of its answer as the client does.

use std::fmt::Write;
use std::net::IpAddr;

use http::Version;
use http::header::{EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, VIA};

use super::hop::Hop;
use super::hop_by_hop::drop_hop_by_hop;
use super::request_id::RequestId;
use crate::auth::Caller;

const X_TENANT_ID: HeaderName = HeaderName::from_static("x-tenant-id");
const X_PLAN: HeaderName = HeaderName::from_static("x-plan");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_RATELIMIT_COST: HeaderName = HeaderName::from_static("x-ratelimit-cost");

/// Names that upstreams believe because the gateway wrote them. Some upstreams read `_` as `-`, so that both
/// spellings of what a client sends are dropped.
const OURS: [&str; 9] = [
    "x-tenant-id",
    "x-plan",
    "x-real-ip",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-request-id",
    "content-length",
    "transfer-encoding",
];

/// Makes of the client's fields those that the upstream gets.
pub(crate) fn for_upstream(
    headers: &mut HeaderMap,
    hop: &Hop,
    caller: &Caller,
    authority: &str,
    version: Version,
    id: &RequestId,
) {
    drop_hop_by_hop(headers);
    drop_look_alikes(headers);
    // The gateway asks for the body itself, once an upstream is there to take it.
    headers.remove(EXPECT);
    write_caller(headers, caller);
    write_forwarded(headers, hop, authority);
    headers.append(VIA, via(version));
    id.write(headers);
}

/// Makes of the upstream's fields those that the client gets.
pub(crate) fn for_client(headers: &mut HeaderMap, version: Version) {
    drop_hop_by_hop(headers);
    headers.remove(X_RATELIMIT_COST);
    headers.append(VIA, via(version));
}

/// The host that an upstream sees over HTTP/1.
pub(super) fn write_host(headers: &mut HeaderMap, authority: &str) {
    if let Ok(value) = HeaderValue::from_str(authority) {
        headers.insert(HOST, value);
    }
}

fn write_caller(headers: &mut HeaderMap, caller: &Caller) {
    set_or_drop(headers, X_TENANT_ID, caller.tenant.as_ref().map(|tenant| tenant.id()));
    set_or_drop(headers, X_PLAN, caller.tenant.as_ref().and_then(|tenant| tenant.plan()));
}

fn set_or_drop(headers: &mut HeaderMap, name: HeaderName, value: Option<&str>) {
    match value.map(HeaderValue::from_str) {
        Some(Ok(value)) => drop(headers.insert(name, value)),
        _ => drop(headers.remove(name)),
    }
}

fn drop_look_alikes(headers: &mut HeaderMap) {
    let is_look_alike = |name: &HeaderName| {
        name.as_str().contains('_') && OURS.contains(&name.as_str().replace('_', "-").as_str())
    };
    let found: Vec<_> = headers.keys().filter(|name| is_look_alike(name)).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

/// Says for whom the request is forwarded. What a trusted proxy wrote is kept and added to; what anybody else wrote
/// is replaced.
fn write_forwarded(headers: &mut HeaderMap, hop: &Hop, authority: &str) {
    let mut text = String::with_capacity(96);
    let proto = if hop.secure { "https" } else { "http" };
    if !hop.trusted {
        for name in [FORWARDED, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO] {
            headers.remove(name);
        }
    }
    let _ = write!(text, "{}", hop.client);
    set(headers, X_REAL_IP, &text);
    text.clear();
    append(headers, X_FORWARDED_FOR, &mut text, |text| write!(text, "{}", hop.peer));
    if !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(proto));
    }
    if !headers.contains_key(X_FORWARDED_HOST) {
        set(headers, X_FORWARDED_HOST, authority);
    }
    text.clear();
    append(headers, FORWARDED, &mut text, |text| write_element(text, hop.peer, authority, proto));
}

/// Adds to the list that all lines of a field make together. Lines that are no text are dropped: no upstream could
/// tell what they say.
fn append(
    headers: &mut HeaderMap,
    name: HeaderName,
    text: &mut String,
    item: impl FnOnce(&mut String) -> std::fmt::Result,
) {
    for line in headers.get_all(&name).iter().filter_map(|line| line.to_str().ok()) {
        text.push_str(line);
        text.push_str(", ");
    }
    let _ = item(text);
    set(headers, name, text);
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// `for=203.0.113.7;host="api.example.com";proto=https`.
fn write_element(text: &mut String, peer: IpAddr, host: &str, proto: &str) -> std::fmt::Result {
    match peer {
        IpAddr::V4(peer) => write!(text, "for={peer}")?,
        IpAddr::V6(peer) => write!(text, "for=\"[{peer}]\"")?,
    }
    if !host.is_empty() {
        // A host has passed as one: letters, digits, dots, colons and brackets.
        write!(text, ";host=\"{host}\"")?;
    }
    write!(text, ";proto={proto}")
}

fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_2 => "2 spile",
        Version::HTTP_10 => "1.0 spile",
        _ => "1.1 spile",
    })
}
