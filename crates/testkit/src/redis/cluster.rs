//! Masters over all the slots: three with a replica each, or any number without.

use std::time::Duration;

use super::sentinel::{SYNC_AT_ONCE, in_step, reaches_a_replica, role};
use super::{RedisReply, RedisServer};
use crate::wait;

/// Masters, unless a test asks for more.
const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// How a replica takes over from its master.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Takeover {
    /// The master waits for the replica to catch up, and nothing is lost.
    Graceful,
    /// The replica asks the other masters and not its own.
    Force,
    /// The replica takes over without a vote.
    Alone,
}

/// A running cluster. Nodes 0 to 2 start as masters, and node `n + 3` as the replica of node `n`.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    masters: usize,
}

impl RedisCluster {
    /// Starts six nodes, and returns when each serves and every replica is in step.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a cluster with more lines for each node's `redis.conf`.
    pub fn start_with(lines: &[&str]) -> Self {
        let cluster = Self::started(2 * MASTERS, MASTERS, lines);
        cluster.attach_replicas();
        cluster.wait_until_whole();
        cluster
    }

    /// Starts this many masters without a replica.
    pub fn of_masters(masters: usize) -> Self {
        let cluster = Self::started(masters, masters, &[]);
        cluster.wait_until_whole();
        cluster
    }

    fn started(nodes: usize, masters: usize, lines: &[&str]) -> Self {
        let cluster = Self { nodes: (0..nodes).map(|_| node(lines)).collect(), masters };
        cluster.give_out_slots();
        cluster.introduce();
        cluster
    }

    /// `redis-cluster://…` with every node as a seed.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.nodes.iter().map(RedisServer::address).collect();
        format!("redis-cluster://{}", addresses.join(","))
    }

    /// Every node.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// One node, to kill or to restart.
    pub fn node_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.nodes[index]
    }

    /// The slot that a Redis key belongs to.
    ///
    /// # Panics
    /// Where no node answers.
    pub fn slot_of(&self, key: &str) -> u16 {
        u16::try_from(self.any().command(&["CLUSTER", "KEYSLOT", key]).int()).expect("a slot")
    }

    /// The node that serves a slot, as the nodes that answer see it. While they do not agree, there may be none.
    ///
    /// # Panics
    /// If no node comes to serve it.
    pub fn master_of(&self, slot: u16) -> usize {
        wait::until("a node to serve a slot", wait::PATIENCE, || self.try_master_of(slot)).0
    }

    /// A node that replicates the one that serves a slot, and that answers.
    ///
    /// # Panics
    /// If none comes to do so.
    pub fn replica_of(&self, slot: u16) -> usize {
        wait::until("a slot to have a replica", wait::PATIENCE, || self.try_replica_of(slot)).0
    }

    /// A node that replicates the one that serves a slot, and that answers. `None` if no node does at the moment.
    pub fn try_replica_of(&self, slot: u16) -> Option<usize> {
        let id = node_id(&self.nodes[self.try_master_of(slot)?]);
        let follows = |node: &RedisServer| node.is_awake() && myself(node).contains(&format!("slave {id} "));
        self.nodes.iter().position(follows)
    }

    /// Makes the replica of a slot its master, and waits until that is known everywhere. Returns the new master.
    pub fn fail_over(&self, slot: u16, how: Takeover) -> usize {
        let replica = self.replica_of(slot);
        let words: &[&str] = match how {
            Takeover::Graceful => &["CLUSTER", "FAILOVER"],
            Takeover::Force => &["CLUSTER", "FAILOVER", "FORCE"],
            Takeover::Alone => &["CLUSTER", "FAILOVER", "TAKEOVER"],
        };
        self.nodes[replica].command(words);
        self.wait_for_master(slot, replica);
        replica
    }

    /// Moves a slot and its keys to another master while the cluster serves, as resharding does, and waits until
    /// that is known everywhere.
    pub fn move_slot(&self, slot: u16, to: usize) {
        let (source, target) = (&self.nodes[self.master_of(slot)], &self.nodes[to]);
        let (source_id, target_id) = (node_id(source), node_id(target));
        let number = slot.to_string();
        target.command(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &source_id]);
        source.command(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &target_id]);
        migrate_keys(source, target, &number);
        // The target first: it must own the slot before a node redirects clients to it.
        let masters = [target, source].into_iter().chain(self.awake().filter(|node| role(node) == "master"));
        for node in masters {
            node.command(&["CLUSTER", "SETSLOT", &number, "NODE", &target_id]);
        }
        self.wait_for_master(slot, to);
    }

    /// Waits until every node that answers takes `node` for the master of `slot`.
    pub fn wait_for_master(&self, slot: u16, node: usize) -> Duration {
        let port = self.nodes[node].port();
        wait::until_true("the cluster to agree on a new master", || {
            let agrees = |seer: &RedisServer| served_by(seer, slot) == Some(port);
            role(&self.nodes[node]) == "master" && self.awake().all(agrees)
        })
    }

    /// Waits until every node that answers says that the cluster is well and each replica is in step.
    pub fn wait_until_whole(&self) -> Duration {
        let replicates = |node: &RedisServer| match role(node).as_str() {
            "master" => !has_replicas(node) || reaches_a_replica(node),
            _ => in_step(node),
        };
        wait::until_true("the cluster to be whole", || {
            self.awake().all(|node| is_ok(node) && replicates(node))
        })
    }

    fn give_out_slots(&self) {
        for (index, node) in self.nodes[..self.masters].iter().enumerate() {
            let range = (index * SLOTS / self.masters)..((index + 1) * SLOTS / self.masters);
            let slots: Vec<_> = range.map(|slot| slot.to_string()).collect();
            let words: Vec<_> =
                ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
            node.command(&words);
        }
        for (index, node) in self.nodes.iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
    }

    /// Every node meets every other at once; gossip alone would take seconds.
    fn introduce(&self) {
        for node in &self.nodes {
            for other in self.nodes.iter().filter(|other| other.port() != node.port()) {
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
            }
        }
        wait::until_true("the nodes to know each other", || {
            self.nodes.iter().all(|node| knows(node, self.nodes.len()))
        });
    }

    fn attach_replicas(&self) {
        for (master, replica) in self.nodes.iter().zip(&self.nodes[self.masters..]) {
            let id = node_id(master);
            let attach = || replica.try_command(&["CLUSTER", "REPLICATE", &id]).is_ok();
            wait::until_true("a replica to find its master", attach);
        }
        let seen = |node: &RedisServer| nodes_text(node).matches("slave").count() == self.masters;
        wait::until_true("the replicas to be seen", || self.nodes.iter().all(seen));
    }

    /// The node that serves a slot, as the nodes that answer see it. `None` if no node does at the moment.
    pub fn try_master_of(&self, slot: u16) -> Option<usize> {
        let port = served_by(self.any(), slot)?;
        self.nodes.iter().position(|node| node.port() == port)
    }

    fn any(&self) -> &RedisServer {
        self.awake().next().expect("a node that answers")
    }

    fn awake(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_awake())
    }
}

fn node(lines: &[&str]) -> RedisServer {
    let cluster = [
        "cluster-enabled yes",
        "cluster-node-timeout 1000",
        "cluster-replica-validity-factor 0",
        SYNC_AT_ONCE,
    ];
    let builder = RedisServer::builder();
    cluster.iter().chain(lines).fold(builder, |builder, line| builder.line(*line)).start()
}

fn node_id(node: &RedisServer) -> String {
    node.command(&["CLUSTER", "MYID"]).text().to_owned()
}

fn nodes_text(node: &RedisServer) -> String {
    node.asked_if_awake(&["CLUSTER", "NODES"]).map(|reply| reply.text().to_owned()).unwrap_or_default()
}

fn myself(node: &RedisServer) -> String {
    nodes_text(node).lines().find(|line| line.contains("myself")).unwrap_or_default().to_owned()
}

fn knows(node: &RedisServer, count: usize) -> bool {
    let text = nodes_text(node);
    text.lines().count() == count && !text.contains("handshake")
}

fn has_replicas(node: &RedisServer) -> bool {
    node.info("replication", "connected_slaves").is_some_and(|count| count != "0")
}

fn is_ok(node: &RedisServer) -> bool {
    let info = node.asked_if_awake(&["CLUSTER", "INFO"]);
    info.is_some_and(|reply| reply.text().contains("cluster_state:ok"))
}

/// Sends every key of a slot over. Keys that callers make meanwhile are made at the target.
fn migrate_keys(source: &RedisServer, target: &RedisServer, slot: &str) {
    let port = target.port().to_string();
    loop {
        let reply = source.command(&["CLUSTER", "GETKEYSINSLOT", slot, "100"]);
        if reply.list().is_empty() {
            return;
        }
        let keys = reply.list().iter().map(RedisReply::text);
        let words: Vec<_> =
            ["MIGRATE", "127.0.0.1", &port, "", "0", "1000", "KEYS"].into_iter().chain(keys).collect();
        source.command(&words);
    }
}

/// The port of the master that `seer` sends callers of a slot to.
fn served_by(seer: &RedisServer, slot: u16) -> Option<u16> {
    let reply = seer.asked_if_awake(&["CLUSTER", "SLOTS"])?;
    let holds = |range: &&RedisReply| {
        let [first, last, ..] = range.list() else { return false };
        (first.int()..=last.int()).contains(&i64::from(slot))
    };
    let range = reply.list().iter().find(holds)?;
    u16::try_from(range.list().get(2)?.list().get(1)?.int()).ok()
}
