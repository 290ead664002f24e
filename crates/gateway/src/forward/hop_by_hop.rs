//! Header fields that are meant for this connection only, and end here.

use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE,
};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

const OWN: [HeaderName; 9] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HTTP2_SETTINGS,
];

/// Drops what the connection names and what is always its own. That a client can take trailers is passed on, for
/// the gateway passes trailers on.
pub(crate) fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let takes_trailers = headers.contains_key(TE) && named(headers, &TE).any(|coding| coding == "trailers");
    if headers.contains_key(CONNECTION) {
        drop_named_by_connection(headers);
    }
    for name in &OWN {
        headers.remove(name);
    }
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// The protocol that the connection is to become, where both fields ask for it.
pub(crate) fn wanted_upgrade(headers: &HeaderMap) -> Option<&HeaderValue> {
    let protocol = headers.get(UPGRADE)?;
    named(headers, &CONNECTION).any(|option| option == "upgrade").then_some(protocol)
}

fn drop_named_by_connection(headers: &mut HeaderMap) {
    let names: Vec<_> =
        named(headers, &CONNECTION).filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok()).collect();
    for name in names {
        headers.remove(name);
    }
}

/// The items of a list, in lower case.
fn named<'h>(headers: &'h HeaderMap, list: &HeaderName) -> impl Iterator<Item = String> + use<'h> {
    let lines = headers.get_all(list).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(|item| item.trim().to_ascii_lowercase())
}
