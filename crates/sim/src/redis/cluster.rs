//! The part of a cluster that one node sees.

use std::rc::Rc;

use super::reply::{ErrorText, Reply};

/// The number of slots of a cluster.
pub const SLOTS: u16 = 16_384;

/// How one node sees its cluster. Nodes may see it differently while it changes.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// The position in `nodes` of the node that has this view.
    pub node: usize,
    /// All masters.
    pub nodes: Rc<[ClusterNode]>,
}

/// A master of a cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterNode {
    /// The host that clients are redirected to.
    pub host: String,
    /// The port that clients are redirected to.
    pub port: u16,
    /// The first and the last slot of each range that it serves.
    pub slots: Vec<(u16, u16)>,
    /// The hosts and ports of its replicas.
    pub replicas: Vec<(String, u16)>,
}

impl ClusterView {
    /// Checks that this node serves the slot of these keys.
    pub(super) fn check<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Result<(), ErrorText> {
        let mut slots = keys.into_iter().map(slot_of);
        let Some(slot) = slots.next() else { return Ok(()) };
        if slots.any(|other| other != slot) {
            return Err("CROSSSLOT Keys in request don't hash to the same slot".into());
        }
        match self.nodes.iter().position(|node| node.serves(slot)) {
            Some(owner) if owner == self.node => Ok(()),
            Some(owner) => {
                let ClusterNode { host, port, .. } = &self.nodes[owner];
                Err(format!("MOVED {slot} {host}:{port}").into())
            }
            None => Err("CLUSTERDOWN Hash slot not served".into()),
        }
    }

    /// The reply to `CLUSTER SLOTS`.
    pub(super) fn slots(&self) -> Reply {
        let mut ranges: Vec<(u16, u16, usize)> = Vec::new();
        for (position, node) in self.nodes.iter().enumerate() {
            ranges.extend(node.slots.iter().map(|(first, last)| (*first, *last, position)));
        }
        ranges.sort_unstable();
        let range = |(first, last, position): (u16, u16, usize)| {
            let node = &self.nodes[position];
            let mut reply = vec![Reply::Int(first.into()), Reply::Int(last.into())];
            let replicas = node.replicas.iter().map(|(host, port)| (host, *port));
            for (number, (host, port)) in std::iter::once((&node.host, node.port)).chain(replicas).enumerate()
            {
                let id = format!("{:040x}", (position << 16) + number);
                reply.push(Reply::Array(vec![
                    Reply::bulk(host.as_bytes()),
                    Reply::Int(port.into()),
                    Reply::bulk(id),
                ]));
            }
            Reply::Array(reply)
        };
        Reply::Array(ranges.into_iter().map(range).collect())
    }
}

impl ClusterNode {
    fn serves(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

/// The slot of a key: of its hash tag if it has one, otherwise of the whole key.
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|byte| *byte == b'{')?;
        let inside = &key[open + 1..];
        let close = inside.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &inside[..close])
    };
    // CRC-16/XMODEM.
    let crc = tag().unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_ne!(slot_of(b"foo{}{bar}"), slot_of(b"bar"));
    }
}
