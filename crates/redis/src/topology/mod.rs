//! Which node a request goes to: the only one there is, or the one that serves its slot.

pub(crate) mod cluster;
pub(crate) mod sentinel;
pub(crate) mod slot;
pub(crate) mod slot_map;

use std::sync::Arc;
use std::time::Duration;

use spile_core::StoreError;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection::endpoint::Endpoint;
use crate::node::{Node, ServedNode};
use crate::script::error_reply::{Refusal, not_run};
use crate::script::request::BatchGroup;
use crate::store::stats::Census;
use crate::topology::cluster::{Cluster, Found};

/// The first pause before a request that Redis did not run is sent again; each after it is twice as long.
const PAUSE: Duration = Duration::from_millis(3);

/// Redirections that one request follows: one to the new node of its slot, one more to where its key is moving, and
/// as many again if the slot moves meanwhile.
const MOST_REDIRECTIONS: u32 = 5;

/// Those of them that are followed without a pause.
const SWIFT_REDIRECTIONS: u32 = 2;

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
pub(crate) struct Route {
    /// The node that the last one named, unless it is the one that serves the slot.
    to: Option<Endpoint>,
    pub(crate) group: BatchGroup,
    redirections: u32,
    refusals: u32,
}

impl Default for Route {
    fn default() -> Self {
        Self { to: None, group: BatchGroup::Any, redirections: 0, refusals: 0 }
    }
}

/// Why a request has no reply.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// Its keys are on two nodes while their slot moves. Each can be asked for by itself.
    Divided,
    Failed(StoreError),
}

impl From<StoreError> for Unanswered {
    fn from(why: StoreError) -> Self {
        Self::Failed(why)
    }
}

impl From<Unanswered> for StoreError {
    fn from(why: Unanswered) -> Self {
        match why {
            Unanswered::Failed(why) => why,
            Unanswered::Divided => not_run("the slot is moving"),
        }
    }
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
        route: &Route,
        deadline: Instant,
    ) -> Result<Arc<Node>, StoreError> {
        match (self, &route.to) {
            (Self::Single(served), _) => Ok(served.node.clone()),
            (Self::Cluster { cluster, .. }, Some(endpoint)) => Ok(cluster.node_at(endpoint)),
            (Self::Cluster { cluster, .. }, None) => match cluster.node(slot) {
                Some(node) => Ok(node),
                None => awaited(cluster, slot, deadline).await,
            },
        }
    }

    /// Where to try again after a refusal, or why not. Nodes that send a request round in circles are not followed, and
    /// one that cannot take it is asked ever more slowly.
    pub(crate) async fn after(&self, refusal: Refusal, route: Route) -> Result<Route, Unanswered> {
        let usual = |group| Route { to: None, group, ..route };
        match refusal {
            Refusal::Failed(why) => return Err(why.into()),
            Refusal::Divided => return Err(Unanswered::Divided),
            Refusal::Alone => return Ok(usual(BatchGroup::Alone)),
            Refusal::Moved { .. } | Refusal::Again => self.doubt(),
            Refusal::Ask { .. } => {}
        }
        match refusal {
            Refusal::Moved { to } => route.redirected(to, BatchGroup::Any).await,
            Refusal::Ask { to } => route.redirected(to, BatchGroup::Asking).await,
            _ => {
                sleep(jittered(PAUSE * 2_u32.pow(route.refusals.min(5)))).await;
                Ok(Route { refusals: route.refusals + 1, ..usual(BatchGroup::Alone) })
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

impl Route {
    async fn redirected(self, to: Endpoint, group: BatchGroup) -> Result<Self, Unanswered> {
        let redirections = self.redirections + 1;
        if redirections > MOST_REDIRECTIONS {
            let why =
                format!("redirected {MOST_REDIRECTIONS} times, at last to {to}: the nodes do not agree");
            return Err(not_run(why).into());
        }
        if redirections > SWIFT_REDIRECTIONS {
            sleep(jittered(PAUSE)).await;
        }
        Ok(Self { to: Some(to), group, redirections, ..self })
    }
}

fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64())
}

async fn awaited(cluster: &Cluster, slot: u16, deadline: Instant) -> Result<Arc<Node>, StoreError> {
    let mut found = cluster.found();
    let known = async {
        found.wait_for(|found| *found != Found::NotYet).await.is_ok_and(|found| *found == Found::Yes)
    };
    if !timeout_at(deadline, known).await.unwrap_or(false) {
        return Err(not_run("no node of the cluster answers"));
    }
    cluster.node(slot).ok_or_else(|| {
        cluster.doubt();
        not_run("no node of the cluster serves this slot")
    })
}
