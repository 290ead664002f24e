//! Opens connections: resolves the address, waits for a permit, authenticates, and probes that the script runs.

use std::sync::Arc;
use std::time::Duration;

use spile_runtime::Runtime;

use crate::connection::dial_limiter::{DialLimiter, DialPriority};
use crate::connection::endpoint::Endpoint;
use crate::connection::{ConnectOptions, Connection, ConnectionError, in_time};
use crate::node::probe::Probe;
use crate::store::stats::Counters;
use crate::topology::sentinel::Sentinels;

/// Opens connections to one kind of node.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) runtime: Runtime,
    pub(crate) options: ConnectOptions,
    pub(crate) limiter: Arc<DialLimiter>,
    pub(crate) priority: DialPriority,
    pub(crate) counters: Arc<Counters>,
    /// The timeout of connecting, and again of the probe.
    pub(crate) timeout: Duration,
}

/// How the address of a node is found.
#[derive(Clone)]
pub(crate) enum NodeAddress {
    /// Always at the same address.
    Fixed(Endpoint),
    /// The master, as the sentinels know it.
    BySentinels(Arc<Sentinels>),
}

impl NodeAddress {
    /// The current address.
    pub(crate) async fn resolve(&self) -> Result<Endpoint, ConnectionError> {
        match self {
            Self::Fixed(endpoint) => Ok(endpoint.clone()),
            Self::BySentinels(sentinels) => sentinels.master().await,
        }
    }

    /// Whether dialling again may reach another node.
    pub(crate) const fn may_move(&self) -> bool {
        matches!(self, Self::BySentinels(_))
    }
}

impl Dialer {
    /// Connects to a node and checks that it runs the script.
    pub(crate) async fn dial(
        &self,
        address: &NodeAddress,
        probe: &Probe,
    ) -> Result<Connection, ConnectionError> {
        let endpoint = address.resolve().await?;
        let permit = self.limiter.acquire(self.priority).await;
        let mut connection = self.open_now(&endpoint).await?;
        in_time(&self.runtime, self.timeout, probe.run(&mut connection, &self.runtime)).await?;
        permit.succeeded();
        Ok(connection)
    }

    /// Connects to a node, without a probe.
    pub(crate) async fn open(&self, endpoint: &Endpoint) -> Result<Connection, ConnectionError> {
        let permit = self.limiter.acquire(self.priority).await;
        let connection = self.open_now(endpoint).await?;
        permit.succeeded();
        Ok(connection)
    }

    async fn open_now(&self, endpoint: &Endpoint) -> Result<Connection, ConnectionError> {
        self.counters.dials.add(1);
        in_time(&self.runtime, self.timeout, Connection::open(endpoint, &self.options, &self.runtime)).await
    }
}
