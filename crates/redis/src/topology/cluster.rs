//! Cluster: the slot map, kept up to date.

use std::collections::{BTreeMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use spile_runtime::{BoxFuture, Runtime, SharedTasks};
use tokio::sync::{Notify, watch};

use crate::connection::dial_limiter::Backoff;
use crate::connection::dialer::NodeAddress;
use crate::connection::endpoint::Endpoint;
use crate::connection::{Connection, ConnectionError};
use crate::node::lane::LaneConfig;
use crate::node::{Node, ServedNode};
use crate::store::stats::NodeStats;
use crate::topology::slot::SLOTS;
use crate::topology::slot_map::{self, SlotRange};

/// How often the map is read while all slots are served, and while some are not.
const REFRESH_EVERY: Duration = Duration::from_secs(5);
const DEGRADED_REFRESH_EVERY: Duration = Duration::from_millis(200);

/// The least time between two reads of the map, however often a refresh is requested.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(50);

/// A node that is missing from this number of maps in a row is dropped. A node may be known by a redirection before it gets
/// its first slot.
const MAX_ROUNDS_UNLISTED: u8 = 3;

/// Why the map is read again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RefreshReason {
    Interval,
    Requested,
}

/// Whether the slot map has been read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Discovery {
    Pending,
    Found,
    /// No seed answers.
    Failed,
}

/// A cluster and its nodes in use.
pub(crate) struct Cluster {
    config: LaneConfig,
    seeds: Vec<Endpoint>,
    map: ArcSwap<SlotMap>,
    nodes: Mutex<BTreeMap<Endpoint, Member>>,
    discovery: watch::Sender<Discovery>,
    refresh_requested: Notify,
    /// The task that keeps the map up to date.
    refresh: SharedTasks,
    /// Why the last read of the map failed. `None` if it succeeded.
    last_error: Mutex<Option<String>>,
}

struct Member {
    served: ServedNode,
    rounds_unlisted: u8,
}

/// Which node serves which slot.
#[derive(Default)]
struct SlotMap {
    /// Sorted ranges that do not overlap.
    ranges: Vec<(u16, u16, Arc<Node>)>,
    /// All nodes including replicas. Any of them can be asked for the next map.
    known_nodes: Vec<Endpoint>,
}

impl SlotMap {
    fn node(&self, slot: u16) -> Option<&Arc<Node>> {
        let index = self.ranges.partition_point(|(_, last, _)| *last < slot);
        self.ranges.get(index).filter(|(first, ..)| *first <= slot).map(|(.., node)| node)
    }
}

impl Cluster {
    pub(crate) fn new(config: LaneConfig, seeds: Vec<Endpoint>) -> Self {
        Self {
            config,
            seeds,
            map: ArcSwap::default(),
            nodes: Mutex::default(),
            discovery: watch::Sender::new(Discovery::Pending),
            refresh_requested: Notify::new(),
            refresh: SharedTasks::default(),
            last_error: Mutex::default(),
        }
    }

    pub(crate) const fn runtime(&self) -> &Runtime {
        &self.config.runtime
    }

    /// The node that serves a slot. `None` if it is unknown.
    pub(crate) fn node(&self, slot: u16) -> Option<Arc<Node>> {
        self.map.load().node(slot).cloned()
    }

    /// The node at the address of a redirection.
    pub(crate) fn node_at(&self, endpoint: &Endpoint) -> Arc<Node> {
        let mut nodes = self.nodes.lock();
        let node = self.member(&mut nodes, endpoint);
        if let Some(member) = nodes.get_mut(endpoint) {
            // It is in use, even if the map does not list it yet.
            member.rounds_unlisted = 0;
        }
        node
    }

    /// For callers that wait for the first map.
    pub(crate) fn discovery(&self) -> watch::Receiver<Discovery> {
        self.discovery.subscribe()
    }

    /// Asks for a new map, because the current one seems out of date.
    pub(crate) fn request_refresh(&self) {
        self.refresh_requested.notify_one();
    }

    /// The current state of the nodes.
    pub(crate) fn node_stats(&self) -> NodeStats {
        NodeStats::of(self.nodes.lock().values().map(|member| &*member.served.node))
    }

    /// Which nodes are lost, and why. `None` while all of them decide.
    pub(crate) fn trouble(&self) -> Option<String> {
        let why = |(endpoint, member): (&Endpoint, &Member)| {
            member.served.node.trouble().map(|why| format!("{endpoint}: {why}"))
        };
        let nodes = self.nodes.lock();
        let lost: Vec<String> = nodes.iter().filter_map(why).collect();
        if !lost.is_empty() {
            return Some(format!("{} of {} nodes: {}", lost.len(), nodes.len(), lost.join("; ")));
        }
        let is_unknown = nodes.values().all(|member| member.served.node.connections() == 0);
        self.last_error.lock().clone().filter(|_| is_unknown)
    }

    /// How many requests each node did not answer in time, since it was first used.
    pub(crate) fn late_by_node(&self) -> Vec<(String, u64)> {
        let nodes = self.nodes.lock();
        nodes.iter().map(|(endpoint, member)| (endpoint.to_string(), member.served.node.late())).collect()
    }

    /// Starts the task that keeps the map up to date on the current runtime, if that of the former one has ended.
    #[inline]
    pub(crate) fn keep_refreshed(self: &Arc<Self>) {
        if self.refresh.have_ended() {
            let task = || -> BoxFuture<()> { Box::pin(Arc::clone(self).refresh_forever()) };
            self.refresh.start(&self.config.runtime, || vec![task()], || ());
        }
    }

    /// Ends that task.
    pub(crate) fn stop(&self) {
        self.refresh.stop();
    }

    /// Keeps the map up to date. Never returns.
    async fn refresh_forever(self: Arc<Self>) {
        let mut control = None;
        let mut backoff = Backoff::default();
        loop {
            let started = self.config.runtime.now();
            let read = self.read_map_reporting_delay(&mut control).await;
            *self.last_error.lock() = read.as_ref().err().map(ToString::to_string);
            if read.is_ok() {
                self.discovery.send_replace(Discovery::Found);
                backoff = Backoff::default();
                if self.next_refresh(started).await == RefreshReason::Requested {
                    // The node that gave this map may be cut off from the others, so another node is asked.
                    control = None;
                }
            } else {
                self.fail_discovery();
                backoff.pause(&self.config.runtime).await;
            }
        }
    }

    /// Reads the map. A read that takes longer than callers wait fails those that wait for the first map, so that they
    /// fail fast.
    async fn read_map_reporting_delay(
        &self,
        control: &mut Option<Connection>,
    ) -> Result<(), ConnectionError> {
        let mut read = pin!(self.read_map(control));
        if let Ok(read) = self.config.runtime.timeout(self.config.timeout, &mut read).await {
            return read;
        }
        self.fail_discovery();
        read.await
    }

    /// Notes that no node answers, unless the map was read before.
    fn fail_discovery(&self) {
        self.discovery.send_if_modified(|discovery| {
            let first_failure = *discovery == Discovery::Pending;
            if first_failure {
                *discovery = Discovery::Failed;
            }
            first_failure
        });
    }

    async fn next_refresh(&self, started: Instant) -> RefreshReason {
        let pause = if self.is_degraded() { DEGRADED_REFRESH_EVERY } else { REFRESH_EVERY };
        tokio::select! {
            // First, so that a request at the end of the interval does not have the map read twice.
            biased;
            () = self.refresh_requested.notified() => {
                self.config.runtime.sleep_until(started + MIN_REFRESH_INTERVAL).await;
                RefreshReason::Requested
            }
            () = self.config.runtime.sleep_until(started + pause) => RefreshReason::Interval,
        }
    }

    fn is_degraded(&self) -> bool {
        let map = self.map.load();
        let covered: u32 = map.ranges.iter().map(|(first, last, _)| u32::from(last - first) + 1).sum();
        covered < u32::from(SLOTS) || map.ranges.iter().any(|(.., node)| node.breaker.is_open())
    }

    /// Asks over the open connection, or else all known nodes one after the other.
    async fn read_map(&self, control: &mut Option<Connection>) -> Result<(), ConnectionError> {
        if let Some(mut connection) = control.take().filter(|control| !control.is_outdated())
            && self.read_map_from(&mut connection).await.is_ok()
        {
            *control = Some(connection);
            return Ok(());
        }
        let mut last = ConnectionError::Closed;
        let known = self.map.load_full();
        for endpoint in slot_map::candidates(&known.known_nodes, &self.seeds, self.runtime()) {
            let read = async {
                let mut connection = self.config.dialer.open(&endpoint).await?;
                self.read_map_from(&mut connection).await?;
                Ok(connection)
            };
            match read.await {
                Ok(connection) => {
                    *control = Some(connection);
                    return Ok(());
                }
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    async fn read_map_from(&self, connection: &mut Connection) -> Result<(), ConnectionError> {
        let ranges = slot_map::read(connection, self.runtime()).await?;
        if ranges.is_empty() {
            // A node that was reset or never joined has an empty map. Another node may have a full one.
            return Err(ConnectionError::Refused("the node belongs to no cluster".into()));
        }
        self.apply(&ranges);
        Ok(())
    }

    fn apply(&self, ranges: &[SlotRange]) {
        let mut nodes = self.nodes.lock();
        let masters: HashSet<&Endpoint> = ranges.iter().filter_map(|range| range.nodes.first()).collect();
        let mut map = SlotMap::default();
        for range in ranges {
            if let Some(master) = range.nodes.first() {
                let node = self.member(&mut nodes, master);
                let is_new = !map.ranges.iter().any(|(.., known)| Arc::ptr_eq(known, &node));
                if let Some(prefix) = self.config.cluster_prefix.as_ref().filter(|_| is_new) {
                    node.serves(range.first, prefix);
                }
                map.ranges.push((range.first, range.last, node));
            }
            map.known_nodes.extend(range.nodes.iter().cloned());
        }
        map.ranges.sort_by_key(|(first, ..)| *first);
        nodes.retain(|endpoint, member| {
            let unnamed = !masters.contains(endpoint);
            member.rounds_unlisted = if unnamed { member.rounds_unlisted + 1 } else { 0 };
            member.rounds_unlisted < MAX_ROUNDS_UNLISTED
        });
        self.map.store(Arc::new(map));
    }

    fn member(&self, nodes: &mut BTreeMap<Endpoint, Member>, endpoint: &Endpoint) -> Arc<Node> {
        let start = || {
            let config = LaneConfig { address: NodeAddress::Fixed(endpoint.clone()), ..self.config.clone() };
            Member { served: ServedNode::start(config), rounds_unlisted: 0 }
        };
        nodes.entry(endpoint.clone()).or_insert_with(start).served.node.clone()
    }
}
