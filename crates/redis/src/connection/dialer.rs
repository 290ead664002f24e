//! Opens connections: resolves the address, waits for a permit, authenticates, and probes that the script runs.

use std::sync::Arc;
use std::time::Duration;

use crate::connection::dial_limiter::DialPriority;
use crate::connection::endpoint::Endpoint;
use crate::connection::{ConnectOptions, Connection, ConnectionError, in_time};
use crate::node::probe::Probe;
use crate::store::context::StoreContext;
use crate::topology::cluster::Cluster;
use crate::topology::sentinel::Sentinels;

/// Opens connections to one kind of node.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) context: Arc<StoreContext>,
    pub(crate) options: ConnectOptions,
    pub(crate) priority: DialPriority,
    /// The timeout of connecting, and separately of the probe.
    pub(crate) timeout: Duration,
}

/// How the address of a node is found.
#[derive(Clone)]
pub(crate) enum NodeAddress {
    /// A fixed address.
    Fixed(Endpoint),
    /// The master that the sentinels report.
    BySentinels(Arc<Sentinels>),
    /// The master of a slot in the cluster's slot map.
    OfSlot(Arc<Cluster>, u16),
}

impl NodeAddress {
    /// The current address.
    pub(crate) async fn resolve(&self) -> Result<Endpoint, ConnectionError> {
        match self {
            Self::Fixed(endpoint) => Ok(endpoint.clone()),
            Self::BySentinels(sentinels) => sentinels.master().await,
            Self::OfSlot(cluster, slot) => cluster.master_of(*slot).await,
        }
    }

    /// Returns the same address, resolved independently of the lookups that decisions share.
    pub(crate) fn apart(&self) -> Self {
        match self {
            Self::BySentinels(sentinels) => Self::BySentinels(Arc::new(sentinels.apart())),
            found => found.clone(),
        }
    }

    /// Whether dialling again may reach another node.
    pub(crate) const fn may_move(&self) -> bool {
        !matches!(self, Self::Fixed(_))
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
        let permit = self.context.limiter.acquire(self.priority).await;
        let mut connection = self.open_now(&endpoint).await?;
        let runtime = &self.context.runtime;
        in_time(runtime, self.timeout, probe.run(&mut connection, runtime)).await?;
        permit.succeeded();
        Ok(connection)
    }

    /// Connects to a node, without a probe.
    pub(crate) async fn open(&self, endpoint: &Endpoint) -> Result<Connection, ConnectionError> {
        let permit = self.context.limiter.acquire(self.priority).await;
        let connection = self.open_now(endpoint).await?;
        permit.succeeded();
        Ok(connection)
    }

    async fn open_now(&self, endpoint: &Endpoint) -> Result<Connection, ConnectionError> {
        let StoreContext { runtime, counters, .. } = &*self.context;
        counters.dials.add(1);
        in_time(runtime, self.timeout, Connection::open(endpoint, &self.options, runtime)).await
    }
}
