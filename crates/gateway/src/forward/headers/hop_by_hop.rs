//! Hop-by-hop header fields, which are meant for one connection and not forwarded (RFC 9110, 7.6.1).

use foldhash::HashSet;
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use smallvec::SmallVec;

use super::equivalent_names::normalized;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Fields that are always hop-by-hop, whether `Connection` names them or not.
pub(super) const HOP_BY_HOP: [HeaderName; 9] = [
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

/// Names of fields to remove. There are rarely more than four.
type FieldNames = SmallVec<[HeaderName; 4]>;

/// Removes hop-by-hop fields, those that `Connection` names, and those for which `also` is true. `TE: trailers` is
/// kept, because the gateway forwards trailers.
pub(super) fn drop_hop_by_hop(headers: &mut HeaderMap, also: impl Fn(&HeaderName) -> bool) {
    // One pass over the map is much faster than a lookup for every name that could be in it.
    let mut names: FieldNames =
        headers.keys().filter(|name| HOP_BY_HOP.contains(name) || also(name)).cloned().collect();
    let takes_trailers = names.contains(&TE) && names_option(headers, &TE, "trailers");
    if names.contains(&CONNECTION) {
        add_named_by_connection(headers, &mut names);
    }
    for name in names {
        headers.remove(name);
    }
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Adds the fields that `Connection` names, in any equivalent spelling.
fn add_named_by_connection(headers: &HeaderMap, names: &mut FieldNames) {
    let is_usual =
        |option: &&str| ["keep-alive", "close", "upgrade"].iter().any(|own| own.eq_ignore_ascii_case(option));
    let others = listed(headers, &CONNECTION).filter(|option| !is_usual(option));
    let options: HashSet<String> = others.map(normalized).collect();
    if !options.is_empty() {
        names.extend(headers.keys().filter(|name| options.contains(&normalized(name.as_str()))).cloned());
    }
}

/// The protocol that the client wants to switch to, if both `Upgrade` and `Connection` ask for it.
pub(crate) fn requested_upgrade(headers: &HeaderMap) -> Option<&HeaderValue> {
    let protocol = headers.get(UPGRADE)?;
    names_option(headers, &CONNECTION, "upgrade").then_some(protocol)
}

fn names_option(headers: &HeaderMap, list: &HeaderName, option: &str) -> bool {
    listed(headers, list).any(|item| item.eq_ignore_ascii_case(option))
}

fn listed<'h>(headers: &'h HeaderMap, list: &HeaderName) -> impl Iterator<Item = &'h str> + use<'h> {
    let lines = headers.get_all(list).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}
