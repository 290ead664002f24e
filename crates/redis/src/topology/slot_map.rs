//! Parses `CLUSTER SLOTS`: which node serves which slot.

use std::time::Duration;

use spile_resp::Value;

use crate::connection::endpoint::Endpoint;
use crate::topology::slot::SLOTS;

/// The timeout of `CLUSTER SLOTS`.
pub(crate) const MAP_TIMEOUT: Duration = Duration::from_millis(400);

/// A range of slots and the nodes that serve it, the master first.
pub(crate) struct SlotRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) nodes: Vec<Endpoint>,
}

/// Parses the reply of the node `asked`.
pub(crate) fn parse(reply: &Value, asked: &Endpoint) -> Option<Vec<SlotRange>> {
    reply.as_array()?.iter().map(|range| parse_range(range, asked)).collect()
}

fn parse_range(range: &Value, asked: &Endpoint) -> Option<SlotRange> {
    let [first, last, nodes @ ..] = range.as_array()? else { return None };
    let slot = |value: &Value| u16::try_from(value.as_int()?).ok().filter(|slot| *slot < SLOTS);
    let nodes: Option<Vec<_>> = nodes.iter().map(|node| parse_node(node, asked)).collect();
    let (first, last) = (slot(first)?, slot(last)?);
    (first <= last).then_some(SlotRange { first, last, nodes: nodes? })
}

/// A node that does not know its own address leaves it out. It then has the address that was asked.
fn parse_node(node: &Value, asked: &Endpoint) -> Option<Endpoint> {
    let [host, port, ..] = node.as_array()? else { return None };
    let port = u16::try_from(port.as_int()?).ok()?;
    match (host.as_str().unwrap_or_default(), asked) {
        ("" | "?", Endpoint::Tcp { host, .. }) => Some(Endpoint::tcp(host, port)),
        (host, _) => Some(Endpoint::tcp(host, port)),
    }
}
