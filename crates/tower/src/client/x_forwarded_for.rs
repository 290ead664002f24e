//! `X-Forwarded-For`: addresses between commas, each proxy's own at the right end.

use std::net::IpAddr;

use http::HeaderMap;

use super::node;

/// The hops that the header lines name, from the right. A hop that names no address is `None`.
pub(crate) fn hops(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = headers.get_all("x-forwarded-for").iter().rev();
    let entries = lines.flat_map(|line| line.as_bytes().rsplit(|&byte| byte == b','));
    entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty()).map(hop)
}

fn hop(entry: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(entry).ok().and_then(node::address)
}
