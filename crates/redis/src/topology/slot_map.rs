//! Reads `CLUSTER SLOTS`: which node serves which slot.

use std::time::Duration;

use spile_resp::{InvalidReply, Value};
use spile_runtime::Runtime;

use crate::connection::endpoint::Endpoint;
use crate::connection::{Connection, ConnectionError};
use crate::topology::slot::SLOTS;

/// The timeout of `CLUSTER SLOTS`.
const MAP_TIMEOUT: Duration = Duration::from_millis(400);

/// A range of slots and the nodes that serve it, the master first.
pub(crate) struct SlotRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) nodes: Vec<Endpoint>,
}

/// Asks the node of this connection.
pub(crate) async fn read(
    connection: &mut Connection,
    runtime: &Runtime,
) -> Result<Vec<SlotRange>, ConnectionError> {
    let reply = connection.ask(&[b"CLUSTER", b"SLOTS"], MAP_TIMEOUT, runtime).await?;
    Ok(parse(&reply, connection.endpoint()).ok_or(InvalidReply)?)
}

/// Parses the reply of the node `asked`.
fn parse(reply: &Value, asked: &Endpoint) -> Option<Vec<SlotRange>> {
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
