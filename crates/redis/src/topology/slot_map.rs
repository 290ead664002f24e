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
    let asked = connection.endpoint();
    let ranges = reply.as_array().ok_or(InvalidReply)?.iter().map(|range| parse_range(range, asked));
    Ok(ranges.collect::<Option<_>>().ok_or(InvalidReply)?)
}

/// Parses a range of the reply of the node `asked`. A node that does not know its own address leaves it out: it is the one that was asked.
fn parse_range(range: &Value, asked: &Endpoint) -> Option<SlotRange> {
    let [first, last, nodes @ ..] = range.as_array()? else { return None };
    let slot = |value: &Value| u16::try_from(value.as_int()?).ok().filter(|slot| *slot < SLOTS);
    let node = |node: &Value| {
        let [host, port, ..] = node.as_array()? else { return None };
        asked.redirected(&format!("{}:{}", host.as_str().unwrap_or_default(), port.as_int()?))
    };
    let (first, last) = (slot(first)?, slot(last)?);
    let nodes = nodes.iter().map(node).collect::<Option<_>>()?;
    (first <= last).then_some(SlotRange { first, last, nodes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_an_address_is_the_one_that_was_asked() {
        let asked = Endpoint::tcp("10.0.0.1", 7000);
        let node = |host| Value::Array(vec![host, Value::Int(7001)]);
        let text = |text: &str| Value::Text(text.into());
        let hosts = [text(""), text("?"), Value::Nil, text("10.0.0.2"), text("fd00::2")];
        let range = [Value::Int(0), Value::Int(9)].into_iter().chain(hosts.map(node)).collect();
        let nodes = parse_range(&Value::Array(range), &asked).map(|range| range.nodes);
        let expected = ["10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "fd00::2"];
        assert_eq!(nodes, Some(expected.map(|host| Endpoint::tcp(host, 7001)).to_vec()));
    }
}
