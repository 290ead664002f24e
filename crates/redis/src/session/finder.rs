//! Finds the node that serves a slot, in any topology.

use std::collections::HashSet;

use parking_lot::Mutex;
use spile_resp::{InvalidReply, Value};
use spile_runtime::Runtime;

use crate::connection::dialer::{Dialer, NodeAddress};
use crate::connection::endpoint::Endpoint;
use crate::connection::{Connection, ConnectionError};
use crate::topology::slot_map::{self, MAP_TIMEOUT, SlotRange};

/// Finds the node that serves a slot.
pub(crate) enum NodeFinder {
    /// Outside a cluster: one node serves all slots.
    Single(NodeAddress),
    Cluster(ClusterView),
}

/// The known nodes of a cluster.
pub(crate) struct ClusterView {
    seeds: Vec<Endpoint>,
    /// All nodes of the last map. Any of them can be asked for the next one.
    known_nodes: Mutex<Vec<Endpoint>>,
    /// The target of the last redirection, tried once before the map is read again.
    hint: Mutex<Option<Endpoint>>,
}

impl NodeFinder {
    pub(crate) fn cluster(seeds: Vec<Endpoint>) -> Self {
        Self::Cluster(ClusterView { seeds, known_nodes: Mutex::default(), hint: Mutex::default() })
    }

    /// Connects to the node that serves `slot`.
    pub(super) async fn connect(&self, slot: u16, dialer: &Dialer) -> Result<Connection, ConnectionError> {
        let endpoint = match self {
            Self::Single(NodeAddress::Fixed(endpoint)) => endpoint.clone(),
            Self::Single(NodeAddress::BySentinels(sentinels)) => sentinels.master().await?,
            Self::Cluster(seen) => seen.endpoint(slot, dialer).await?,
        };
        dialer.open(&endpoint).await
    }

    /// Notes the target of a redirection.
    pub(super) fn moved(&self, to: Endpoint) {
        if let Self::Cluster(seen) = self {
            *seen.hint.lock() = Some(to);
        }
    }

    /// Whether connecting again may reach another node.
    pub(super) const fn may_move(&self) -> bool {
        match self {
            Self::Single(address) => address.may_move(),
            Self::Cluster(_) => true,
        }
    }
}

impl ClusterView {
    async fn endpoint(&self, slot: u16, dialer: &Dialer) -> Result<Endpoint, ConnectionError> {
        let hint = self.hint.lock().take();
        if let Some(endpoint) = hint {
            return Ok(endpoint);
        }
        let mut last = ConnectionError::Closed;
        for candidate in self.candidates(&dialer.runtime) {
            match ask_for_map(&candidate, dialer).await {
                Ok(ranges) => match self.apply(&ranges, slot) {
                    Some(endpoint) => return Ok(endpoint),
                    None => last = ConnectionError::Refused(format!("no node serves slot {slot}")),
                },
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    fn candidates(&self, runtime: &Runtime) -> Vec<Endpoint> {
        let mut seen = HashSet::new();
        let known_nodes = self.known_nodes.lock();
        let mut all: Vec<_> = known_nodes
            .iter()
            .chain(&self.seeds)
            .filter(|endpoint| seen.insert(*endpoint))
            .cloned()
            .collect();
        runtime.shuffle(&mut all);
        all
    }

    fn apply(&self, ranges: &[SlotRange], slot: u16) -> Option<Endpoint> {
        let known_nodes: Vec<_> = ranges.iter().flat_map(|range| range.nodes.iter().cloned()).collect();
        if !known_nodes.is_empty() {
            *self.known_nodes.lock() = known_nodes;
        }
        let range = ranges.iter().find(|range| (range.first..=range.last).contains(&slot))?;
        range.nodes.first().cloned()
    }
}

async fn ask_for_map(node: &Endpoint, dialer: &Dialer) -> Result<Vec<SlotRange>, ConnectionError> {
    let mut connection = dialer.open(node).await?;
    let reply = dialer.runtime.timeout(MAP_TIMEOUT, connection.command(&[b"CLUSTER", b"SLOTS"])).await;
    match reply.unwrap_or(Err(ConnectionError::Stalled(MAP_TIMEOUT)))? {
        Value::Error(refusal) => Err(ConnectionError::Refused(refusal)),
        reply => Ok(slot_map::parse(&reply, connection.endpoint()).ok_or(InvalidReply)?),
    }
}
