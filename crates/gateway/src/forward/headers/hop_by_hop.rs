//! Header fields that are meant for this connection only, and end here.

use foldhash::HashSet;
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use smallvec::SmallVec;

use super::equivalent_names::dashed;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// What is always the connection's own.
pub(super) const OWN: [HeaderName; 9] = [
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

/// Names of fields that are about to go; rarely more than these.
type Names = SmallVec<[HeaderName; 4]>;

/// Drops what the connection names, what is always its own, and `also` what this holds for. That a client can take
/// trailers is passed on, for the gateway passes trailers on.
pub(super) fn drop_hop_by_hop(headers: &mut HeaderMap, also: impl Fn(&HeaderName) -> bool) {
    // Each name is looked at once: asking the map for every name that could be there takes far longer.
    let mut names: Names = headers.keys().filter(|name| OWN.contains(name) || also(name)).cloned().collect();
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

/// Adds the fields that the connection names, in any spelling that an upstream takes for the name.
fn add_named_by_connection(headers: &HeaderMap, names: &mut Names) {
    let is_usual =
        |option: &&str| ["keep-alive", "close", "upgrade"].iter().any(|own| own.eq_ignore_ascii_case(option));
    let others = listed(headers, &CONNECTION).filter(|option| !is_usual(option));
    let options: HashSet<String> = others.map(dashed).collect();
    if !options.is_empty() {
        names.extend(headers.keys().filter(|name| options.contains(&dashed(name.as_str()))).cloned());
    }
}

/// The protocol that the connection is to become, where both fields ask for it.
pub(crate) fn wanted_upgrade(headers: &HeaderMap) -> Option<&HeaderValue> {
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
