//! Finds the node that serves a slot, whatever the topology.

use std::collections::HashSet;

use parking_lot::Mutex;
use spile_resp::{InvalidReply, Value};
use tokio::time::timeout;

use crate::connection::dialer::{Dialer, Whereabouts};
use crate::connection::endpoint::Endpoint;
use crate::connection::{Connection, ConnectionError};
use crate::topology::slot_map::{self, SlotRange};

/// Where one slot is served.
pub(crate) enum Finder {
    /// All slots are where this says.
    Anywhere(Whereabouts),
    Cluster(Seen),
}

/// What is known of a cluster.
pub(crate) struct Seen {
    seeds: Vec<Endpoint>,
    /// Every node that the last map named: any of them can be asked for the next.
    named: Mutex<Vec<Endpoint>>,
    /// Where a redirection sent us, to be tried once before the map is read again.
    hint: Mutex<Option<Endpoint>>,
}

impl Finder {
    pub(crate) fn cluster(seeds: Vec<Endpoint>) -> Self {
        Self::Cluster(Seen { seeds, named: Mutex::default(), hint: Mutex::default() })
    }

    /// A connection to the node that serves `slot`, as far as is known.
    pub(super) async fn connect(&self, slot: u16, dialer: &Dialer) -> Result<Connection, ConnectionError> {
        let endpoint = match self {
            Self::Anywhere(Whereabouts::Fixed(endpoint)) => endpoint.clone(),
            Self::Anywhere(Whereabouts::AskSentinels(sentinels)) => sentinels.master().await?,
            Self::Cluster(seen) => seen.endpoint(slot, dialer).await?,
        };
        dialer.open(&endpoint).await
    }

    /// Notes where a node said that the slot is.
    pub(super) fn moved(&self, to: Endpoint) {
        if let Self::Cluster(seen) = self {
            *seen.hint.lock() = Some(to);
        }
    }

    /// Whether connecting again may reach another node.
    pub(super) const fn may_move(&self) -> bool {
        match self {
            Self::Anywhere(whereabouts) => whereabouts.may_move(),
            Self::Cluster(_) => true,
        }
    }
}

impl Seen {
    async fn endpoint(&self, slot: u16, dialer: &Dialer) -> Result<Endpoint, ConnectionError> {
        let hint = self.hint.lock().take();
        if let Some(endpoint) = hint {
            return Ok(endpoint);
        }
        let mut last = ConnectionError::Closed;
        for candidate in self.candidates() {
            match ask_for_map(&candidate, dialer).await {
                Ok(ranges) => match self.adopt(&ranges, slot) {
                    Some(endpoint) => return Ok(endpoint),
                    None => last = ConnectionError::Refused(format!("nobody serves slot {slot}")),
                },
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    fn candidates(&self) -> Vec<Endpoint> {
        let mut seen = HashSet::new();
        let named = self.named.lock();
        let mut all: Vec<_> =
            named.iter().chain(&self.seeds).filter(|endpoint| seen.insert(*endpoint)).cloned().collect();
        fastrand::shuffle(&mut all);
        all
    }

    fn adopt(&self, ranges: &[SlotRange], slot: u16) -> Option<Endpoint> {
        let named: Vec<_> = ranges.iter().flat_map(|range| range.nodes.iter().cloned()).collect();
        if !named.is_empty() {
            *self.named.lock() = named;
        }
        let range = ranges.iter().find(|range| (range.first..=range.last).contains(&slot))?;
        range.nodes.first().cloned()
    }
}

async fn ask_for_map(node: &Endpoint, dialer: &Dialer) -> Result<Vec<SlotRange>, ConnectionError> {
    let mut connection = dialer.open(node).await?;
    let patience = slot_map::PATIENCE;
    let reply = timeout(patience, connection.ask(&[b"CLUSTER", b"SLOTS"])).await;
    match reply.unwrap_or(Err(ConnectionError::Stalled(patience)))? {
        Value::Error(refusal) => Err(ConnectionError::Refused(refusal)),
        reply => Ok(slot_map::read(&reply, connection.endpoint()).ok_or(InvalidReply)?),
    }
}
