//! How the slots of a cluster are split among its nodes.

use std::rc::Rc;

use crate::redis::{ClusterNode, ClusterView, SLOTS, slot_of};

/// The last slot of a node, and one more.
fn slots_past(node: usize, nodes: usize) -> u16 {
    (usize::from(SLOTS) * (node + 1) / nodes) as u16
}

/// The node that has a key.
pub(crate) fn node_of(key: &str, nodes: usize) -> usize {
    let slot = slot_of(key.as_bytes());
    (0..nodes).find(|node| slot < slots_past(*node, nodes)).unwrap_or(0)
}

/// A view of the cluster in which each node has the slots of the next one.
pub(crate) fn stale(view: &ClusterView) -> ClusterView {
    let mut nodes: Vec<ClusterNode> = view.nodes.to_vec();
    let former: Vec<_> = nodes.iter().map(|node| node.slots.clone()).collect();
    for (node, slots) in nodes.iter_mut().zip(former.into_iter().cycle().skip(1)) {
        node.slots = slots;
    }
    ClusterView { node: view.node, nodes: nodes.into() }
}

/// How a node sees its cluster. `None` if it is alone.
pub(crate) fn view(node: usize, nodes: usize) -> Option<ClusterView> {
    let masters = (0..nodes).map(|node| {
        let first = if node == 0 { 0 } else { slots_past(node - 1, nodes) };
        let slots = vec![(first, slots_past(node, nodes) - 1)];
        ClusterNode { host: format!("node{node}"), port: 6379, slots, replicas: Vec::new() }
    });
    (nodes > 1).then(|| ClusterView { node, nodes: masters.collect::<Rc<[ClusterNode]>>() })
}
