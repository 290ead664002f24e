//! Opens connections for lanes: finds out where, waits its turn, introduces itself and checks that the script runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::connection::endpoint::Endpoint;
use crate::connection::pace::{DialPace, Place, Purpose};
use crate::connection::{Connection, ConnectionError, Introduction};
use crate::node::probe::Probe;
use crate::store::stats::Counters;
use crate::topology::sentinel::Sentinels;

/// Opens connections to one kind of node.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) introduction: Introduction,
    pub(crate) pace: Arc<DialPace>,
    pub(crate) purpose: Purpose,
    pub(crate) counters: Arc<Counters>,
    /// How long a node may take to be reached, and then again to run the script.
    pub(crate) patience: Duration,
}

/// Where a node is to be found.
#[derive(Clone)]
pub(crate) enum Whereabouts {
    /// Always at the same address.
    Fixed(Endpoint),
    /// Where the sentinels say that the master is now.
    AskSentinels(Arc<Sentinels>),
}

impl Whereabouts {
    /// Whether dialling again may reach another node.
    pub(crate) const fn may_move(&self) -> bool {
        matches!(self, Self::AskSentinels(_))
    }
}

impl Dialer {
    /// A connection to a node that runs the script. Bounded in time, and spaced.
    pub(crate) async fn dial(
        &self,
        whereabouts: &Whereabouts,
        probe: &Probe,
    ) -> Result<Connection, ConnectionError> {
        let endpoint = match whereabouts {
            Whereabouts::Fixed(endpoint) => endpoint.clone(),
            Whereabouts::AskSentinels(sentinels) => sentinels.master().await?,
        };
        let place = self.turn().await;
        let mut connection = self.open_now(&endpoint).await?;
        let probed = timeout(self.patience, probe.run(&mut connection)).await;
        probed.unwrap_or(Err(ConnectionError::Stalled(self.patience)))?;
        place.succeeded();
        Ok(connection)
    }

    /// A connection that has introduced itself.
    pub(crate) async fn open(&self, endpoint: &Endpoint) -> Result<Connection, ConnectionError> {
        let place = self.turn().await;
        let connection = self.open_now(endpoint).await?;
        place.succeeded();
        Ok(connection)
    }

    async fn turn(&self) -> Place<'_> {
        self.pace.turn(self.purpose).await
    }

    async fn open_now(&self, endpoint: &Endpoint) -> Result<Connection, ConnectionError> {
        self.counters.dials.add(1);
        let opened = timeout(self.patience, Connection::open(endpoint, &self.introduction)).await;
        opened.unwrap_or(Err(ConnectionError::Stalled(self.patience)))
    }
}
