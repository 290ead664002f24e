//! Which node a request goes to: the only one there is, or the one that serves its slot.

use std::sync::Arc;
use std::time::Duration;

use spile_core::StoreError;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::cluster::{Cluster, Found};
use crate::endpoint::Endpoint;
use crate::node::{Node, ServedNode};
use crate::refusal::{Refusal, not_run};
use crate::request::Company;
use crate::stats::Census;

/// The pause before a request that Redis did not run is sent again, where nothing says where else to send it.
const PAUSE: Duration = Duration::from_millis(3);

/// All the nodes of a store.
pub(crate) enum Router {
    /// A standalone server, or the master that sentinels watch.
    Single(ServedNode),
    Cluster {
        cluster: Arc<Cluster>,
        keeper: AbortHandle,
    },
}

/// Where a request goes next.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// To whoever serves its slot.
    Usual(Company),
    /// Where the last node sent it.
    To(Endpoint, Company),
}

impl Router {
    /// Whether a request must keep to one slot.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster { .. })
    }

    /// The node to ask. On a cluster that has not been found yet, waits for it.
    pub(crate) async fn node(
        &self,
        slot: u16,
        way: &Way,
        deadline: Instant,
    ) -> Result<Arc<Node>, StoreError> {
        match (self, way) {
            (Self::Single(served), _) => Ok(served.node.clone()),
            (Self::Cluster { cluster, .. }, Way::To(endpoint, _)) => Ok(cluster.node_at(endpoint)),
            (Self::Cluster { cluster, .. }, Way::Usual(_)) => match cluster.node(slot) {
                Some(node) => Ok(node),
                None => awaited(cluster, slot, deadline).await,
            },
        }
    }

    /// Where to try again after a refusal, or the error that ends it.
    pub(crate) async fn after(&self, refusal: Refusal) -> Result<Way, StoreError> {
        match refusal {
            Refusal::Failed(why) => Err(why),
            Refusal::Moved { to } => {
                self.doubt();
                Ok(Way::To(to, Company::Any))
            }
            Refusal::Ask { to } => Ok(Way::To(to, Company::Asking)),
            Refusal::Again => {
                self.doubt();
                sleep(PAUSE.mul_f64(0.5 + fastrand::f64())).await;
                Ok(Way::Usual(Company::Alone))
            }
        }
    }

    /// Says that a node did not do its part, so that its slots may have a new one.
    pub(crate) fn doubt(&self) {
        if let Self::Cluster { cluster, .. } = self {
            cluster.doubt();
        }
    }

    /// How its nodes stand.
    pub(crate) fn census(&self) -> Census {
        match self {
            Self::Single(served) => Census::of([&*served.node]),
            Self::Cluster { cluster, .. } => cluster.census(),
        }
    }

    /// Why some node cannot be reached, while it cannot.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Self::Single(served) => served.node.trouble(),
            Self::Cluster { cluster, .. } => cluster.trouble(),
        }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if let Self::Cluster { keeper, .. } = self {
            keeper.abort();
        }
    }
}

impl Way {
    pub(crate) fn company(&self) -> Company {
        match self {
            Self::Usual(company) | Self::To(_, company) => *company,
        }
    }
}

async fn awaited(cluster: &Cluster, slot: u16, deadline: Instant) -> Result<Arc<Node>, StoreError> {
    let mut found = cluster.found();
    let known = async {
        found.wait_for(|found| *found != Found::NotYet).await.is_ok_and(|found| *found == Found::Yes)
    };
    if !timeout_at(deadline, known).await.unwrap_or(false) {
        return Err(not_run("no node of the cluster answers"));
    }
    loop {
        if let Some(node) = cluster.node(slot) {
            return Ok(node);
        }
        if Instant::now() + PAUSE >= deadline {
            return Err(not_run("no node of the cluster serves this slot"));
        }
        cluster.doubt();
        sleep(PAUSE).await;
    }
}
