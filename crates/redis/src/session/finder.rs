//! Finds the node that serves a slot, in any topology.

use parking_lot::Mutex;

use crate::connection::dialer::{Dialer, NodeAddress};
use crate::connection::endpoint::Endpoint;
use crate::connection::{Connection, ConnectionError};
use crate::topology::NodeSource;
use crate::topology::slot_map::{self, SlotRange};

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
    pub(crate) fn new(nodes: NodeSource) -> Self {
        match nodes {
            NodeSource::Single(address) => Self::Single(address),
            NodeSource::Cluster(seeds) => {
                Self::Cluster(ClusterView { seeds, known_nodes: Mutex::default(), hint: Mutex::default() })
            }
        }
    }

    /// Connects to the node that serves `slot`.
    pub(super) async fn connect(&self, slot: u16, dialer: &Dialer) -> Result<Connection, ConnectionError> {
        let endpoint = match self {
            Self::Single(address) => address.resolve().await?,
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
        let known = self.known_nodes.lock().clone();
        for candidate in slot_map::candidates(&known, &self.seeds, &dialer.runtime) {
            let read = async { slot_map::read(&mut dialer.open(&candidate).await?, &dialer.runtime).await };
            match read.await {
                Ok(ranges) => match self.apply(&ranges, slot) {
                    Some(endpoint) => return Ok(endpoint),
                    None => last = ConnectionError::Refused(format!("no node serves slot {slot}")),
                },
                Err(why) => last = why,
            }
        }
        Err(last)
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
