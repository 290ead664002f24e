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
use crate::script::error_reply::{Rejection, not_run};
use crate::script::request::BatchGroup;
use crate::store::stats::NodeStats;
use crate::topology::cluster::{Cluster, Discovery};

/// The first pause before a request that Redis did not run is sent again; each after it is twice as long.
const RETRY_PAUSE: Duration = Duration::from_millis(3);

/// Redirections that one request follows: one to the new node of its slot, one more to where its key is moving, and
/// as many again if the slot moves meanwhile.
const MAX_REDIRECTIONS: u32 = 5;

/// Those of them that are followed without a pause.
const IMMEDIATE_REDIRECTIONS: u32 = 2;

/// All the nodes of a store.
pub(crate) enum Router {
    /// A standalone server, or the master that sentinels watch.
    Single(ServedNode),
    Cluster {
        cluster: Arc<Cluster>,
        refresh_task: AbortHandle,
    },
}

/// Where a request goes next.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// The node that the last one named, unless it is the one that serves the slot.
    to: Option<Endpoint>,
    pub(crate) group: BatchGroup,
    redirections: u32,
    retries: u32,
}

impl Default for Attempt {
    fn default() -> Self {
        Self { to: None, group: BatchGroup::Any, redirections: 0, retries: 0 }
    }
}

/// Why a request has no reply.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// Its keys are on two nodes while their slot moves. Each can be asked for by itself.
    Split,
    Failed(StoreError),
}

impl From<StoreError> for RequestError {
    fn from(why: StoreError) -> Self {
        Self::Failed(why)
    }
}

impl From<RequestError> for StoreError {
    fn from(why: RequestError) -> Self {
        match why {
            RequestError::Failed(why) => why,
            RequestError::Split => not_run("the slot is moving"),
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
        attempt: &Attempt,
        deadline: Instant,
    ) -> Result<Arc<Node>, StoreError> {
        match (self, &attempt.to) {
            (Self::Single(served), _) => Ok(served.node.clone()),
            (Self::Cluster { cluster, .. }, Some(endpoint)) => Ok(cluster.node_at(endpoint)),
            (Self::Cluster { cluster, .. }, None) => match cluster.node(slot) {
                Some(node) => Ok(node),
                None => wait_for_node(cluster, slot, deadline).await,
            },
        }
    }

    /// Where to try again after a refusal, or why not. Nodes that send a request round in circles are not followed, and
    /// one that cannot take it is asked ever more slowly.
    pub(crate) async fn next_attempt(
        &self,
        refusal: Rejection,
        attempt: Attempt,
    ) -> Result<Attempt, RequestError> {
        let usual = |group| Attempt { to: None, group, ..attempt };
        match refusal {
            Rejection::Failed(why) => return Err(why.into()),
            Rejection::Split => return Err(RequestError::Split),
            Rejection::SendAlone => return Ok(usual(BatchGroup::Alone)),
            Rejection::Moved { .. } | Rejection::Retry => self.request_refresh(),
            Rejection::Ask { .. } => {}
        }
        match refusal {
            Rejection::Moved { to } => attempt.redirected(to, BatchGroup::Any).await,
            Rejection::Ask { to } => attempt.redirected(to, BatchGroup::Asking).await,
            _ => {
                sleep(jittered(RETRY_PAUSE * 2_u32.pow(attempt.retries.min(5)))).await;
                Ok(Attempt { retries: attempt.retries + 1, ..usual(BatchGroup::Alone) })
            }
        }
    }

    /// Says that a node did not do its part, so that its slots may have a new one.
    pub(crate) fn request_refresh(&self) {
        if let Self::Cluster { cluster, .. } = self {
            cluster.request_refresh();
        }
    }

    /// How its nodes stand.
    pub(crate) fn node_stats(&self) -> NodeStats {
        match self {
            Self::Single(served) => NodeStats::of([&*served.node]),
            Self::Cluster { cluster, .. } => cluster.node_stats(),
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
        if let Self::Cluster { refresh_task, .. } = self {
            refresh_task.abort();
        }
    }
}

impl Attempt {
    async fn redirected(self, to: Endpoint, group: BatchGroup) -> Result<Self, RequestError> {
        let redirections = self.redirections + 1;
        if redirections > MAX_REDIRECTIONS {
            let why = format!("redirected {MAX_REDIRECTIONS} times, at last to {to}: the nodes do not agree");
            return Err(not_run(why).into());
        }
        if redirections > IMMEDIATE_REDIRECTIONS {
            sleep(jittered(RETRY_PAUSE)).await;
        }
        Ok(Self { to: Some(to), group, redirections, ..self })
    }
}

fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64())
}

async fn wait_for_node(cluster: &Cluster, slot: u16, deadline: Instant) -> Result<Arc<Node>, StoreError> {
    let mut discovery = cluster.discovery();
    let known = async {
        discovery
            .wait_for(|discovery| *discovery != Discovery::Pending)
            .await
            .is_ok_and(|discovery| *discovery == Discovery::Found)
    };
    if !timeout_at(deadline, known).await.unwrap_or(false) {
        return Err(not_run("no node of the cluster answers"));
    }
    cluster.node(slot).ok_or_else(|| {
        cluster.request_refresh();
        not_run("no node of the cluster serves this slot")
    })
}
