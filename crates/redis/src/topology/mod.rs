//! Routes requests to nodes: to the only node, or to the one that serves the slot.

pub(crate) mod cluster;
pub(crate) mod sentinel;
pub(crate) mod slot;
mod slot_map;

use std::sync::Arc;
use std::time::{Duration, Instant};

use spile_core::StoreError;
use spile_runtime::Runtime;

use crate::connection::dial_limiter::DialPriority;
use crate::connection::dialer::{Dialer, NodeAddress};
use crate::connection::endpoint::Endpoint;
use crate::node::{Node, ServedNode};
use crate::script::error_reply::{Rejection, not_run};
use crate::script::request::BatchGroup;
use crate::topology::cluster::Cluster;

/// The pause before the first retry of a request that Redis did not run. It doubles with each retry.
const RETRY_PAUSE: Duration = Duration::from_millis(3);

/// The most redirections of one request: one to the new node of its slot, one to where its key is moving, and the same
/// again if the slot moves meanwhile.
const MAX_REDIRECTIONS: u32 = 5;

/// How many redirections are followed without a pause.
const IMMEDIATE_REDIRECTIONS: u32 = 2;

/// All nodes of a store.
pub(crate) enum Router {
    /// A standalone server, or the master behind Sentinel.
    Single(ServedNode),
    Cluster(Arc<Cluster>),
}

/// The next attempt of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeAttempt {
    /// The target of the last redirection. `None` for the node that serves the slot.
    to: Option<Endpoint>,
    pub(crate) group: BatchGroup,
    redirections: u32,
    retries: u32,
}

impl Router {
    /// Whether all keys of a request must be in one slot.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// The node for the next attempt. Waits until the cluster's slot map has been read for the first time.
    pub(crate) async fn node(
        &self,
        slot: u16,
        attempt: &NodeAttempt,
        deadline: Instant,
    ) -> Result<Arc<Node>, StoreError> {
        let cluster = match self {
            Self::Single(served) => return Ok(served.node.clone()),
            Self::Cluster(cluster) => cluster,
        };
        cluster.keep_refreshed();
        match &attempt.to {
            Some(endpoint) => Ok(cluster.node_at(endpoint)),
            None => cluster.node(slot, deadline).await,
        }
    }

    /// The next attempt after a rejection. Fails if the same request must not be sent again. Redirections are bounded, and retries are
    /// paused for longer each time.
    pub(crate) async fn next_attempt(
        &self,
        refusal: Rejection,
        attempt: NodeAttempt,
        runtime: &Runtime,
    ) -> Result<NodeAttempt, Rejection> {
        let usual = |group| NodeAttempt { to: None, group, ..attempt };
        if matches!(refusal, Rejection::Moved { .. } | Rejection::Retry) {
            self.request_refresh();
        }
        match refusal {
            Rejection::Failed(_) | Rejection::Split | Rejection::OutsideWindows { .. } => Err(refusal),
            Rejection::SendAlone => Ok(usual(BatchGroup::Alone)),
            Rejection::Moved { to } => attempt.redirected(to, BatchGroup::Any, runtime).await,
            Rejection::Ask { to } => attempt.redirected(to, BatchGroup::Asking, runtime).await,
            Rejection::Retry => {
                let pause = RETRY_PAUSE * 2_u32.pow(attempt.retries.min(5));
                runtime.sleep(jittered(pause, runtime)).await;
                // In a cluster, a redirection must be about this request only.
                let group = if self.is_cluster() { BatchGroup::Alone } else { BatchGroup::Any };
                Ok(NodeAttempt { retries: attempt.retries + 1, ..usual(group) })
            }
        }
    }

    /// Asks for a new slot map, because a node failed or has lost slots.
    pub(crate) fn request_refresh(&self) {
        if let Self::Cluster(cluster) = self {
            cluster.request_refresh();
        }
    }

    /// Visits the nodes in use. Only members of a cluster have an address here.
    pub(crate) fn for_each_node(&self, mut visit: impl FnMut(Option<&Endpoint>, &Node)) {
        match self {
            Self::Single(served) => visit(None, &served.node),
            Self::Cluster(cluster) => cluster.for_each_node(|endpoint, node| visit(Some(endpoint), node)),
        }
    }

    /// The address of the node that serves a slot, and the dialer to reach it beside decisions.
    pub(crate) fn beside_decisions(&self, slot: u16) -> (NodeAddress, Dialer) {
        let (address, dialer) = match self {
            Self::Single(served) => (served.node.address.apart(), &served.node.dialer),
            Self::Cluster(cluster) => (NodeAddress::OfSlot(Arc::clone(cluster), slot), &cluster.dialer),
        };
        (address, Dialer { priority: DialPriority::Background, ..Dialer::clone(dialer) })
    }

    /// Why a node cannot be reached or refuses to write. `None` if all decide.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Self::Single(served) => served.node.trouble(),
            Self::Cluster(cluster) => cluster.trouble(),
        }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if let Self::Cluster(cluster) = self {
            cluster.stop();
        }
    }
}

impl NodeAttempt {
    async fn redirected(self, to: Endpoint, group: BatchGroup, runtime: &Runtime) -> Result<Self, Rejection> {
        let redirections = self.redirections + 1;
        if redirections > MAX_REDIRECTIONS {
            let why = format!("redirected {MAX_REDIRECTIONS} times, at last to {to}: the nodes do not agree");
            return Err(not_run(why).into());
        }
        if redirections > IMMEDIATE_REDIRECTIONS {
            runtime.sleep(jittered(RETRY_PAUSE, runtime)).await;
        }
        Ok(Self { to: Some(to), group, redirections, ..self })
    }
}

fn jittered(pause: Duration, runtime: &Runtime) -> Duration {
    pause.mul_f64(0.5 + runtime.random_share())
}
