//! Cluster: the slot map, kept up to date.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use spile_core::StoreError;
use spile_runtime::{BoxFuture, Runtime, SharedTasks};
use tokio::sync::{Notify, watch};

use crate::connection::dial_limiter::Backoff;
use crate::connection::dialer::{Dialer, NodeAddress};
use crate::connection::endpoint::Endpoint;
use crate::connection::{Connection, ConnectionError, reporting_delay};
use crate::node::{Node, ServedNode};
use crate::script::error_reply::not_run;
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

/// A cluster and its nodes in use.
pub(crate) struct Cluster {
    pub(crate) dialer: Arc<Dialer>,
    seeds: Vec<Endpoint>,
    map: ArcSwap<SlotMap>,
    nodes: Mutex<BTreeMap<Endpoint, Member>>,
    /// How the last read of the map ended. `None` before the first.
    last_read: watch::Sender<Option<Result<(), String>>>,
    refresh_requested: Notify,
    /// The task that keeps the map up to date.
    refresh: SharedTasks,
}

struct Member {
    served: ServedNode,
    /// In how many maps in a row it was missing. Above zero until it is listed or used.
    rounds_unlisted: u8,
}

/// Which node serves which slot.
#[derive(Default)]
struct SlotMap {
    /// Sorted ranges that do not overlap, and their masters.
    ranges: Vec<(SlotRange, Arc<Node>)>,
}

impl SlotMap {
    fn find(&self, slot: u16) -> Option<&(SlotRange, Arc<Node>)> {
        let index = self.ranges.partition_point(|(range, _)| range.last < slot);
        self.ranges.get(index).filter(|(range, _)| range.first <= slot)
    }
}

impl Cluster {
    /// A cluster whose map is read from now on.
    pub(crate) fn start(dialer: Arc<Dialer>, seeds: Vec<Endpoint>) -> Arc<Self> {
        let cluster = Arc::new(Self {
            dialer,
            seeds,
            map: ArcSwap::default(),
            nodes: Mutex::default(),
            last_read: watch::Sender::default(),
            refresh_requested: Notify::new(),
            refresh: SharedTasks::default(),
        });
        cluster.keep_refreshed();
        cluster
    }

    fn runtime(&self) -> &Runtime {
        &self.dialer.context.runtime
    }

    /// The node that serves a slot. Waits until the map has been read for the first time.
    pub(crate) async fn node(&self, slot: u16, deadline: Instant) -> Result<Arc<Node>, StoreError> {
        let known = || self.map.load().find(slot).map(|(_, node)| Arc::clone(node));
        if let Some(node) = known() {
            return Ok(node);
        }
        let mut last_read = self.last_read.subscribe();
        match self.runtime().timeout_at(deadline, last_read.wait_for(Option::is_some)).await {
            Ok(Ok(read)) if *read == Some(Ok(())) => {}
            _ => return Err(not_run("no node of the cluster answers")),
        }
        known().ok_or_else(|| {
            self.request_refresh();
            not_run("no node of the cluster serves this slot")
        })
    }

    /// The address of the node that serves a slot.
    pub(crate) async fn master_of(self: &Arc<Self>, slot: u16) -> Result<Endpoint, ConnectionError> {
        self.keep_refreshed();
        let deadline = self.runtime().now() + self.dialer.timeout;
        self.node(slot, deadline).await.map_err(io::Error::other)?;
        let master = self.map.load().find(slot).and_then(|(range, _)| range.nodes.first().cloned());
        master.ok_or(ConnectionError::Closed)
    }

    /// The node at the address of a redirection.
    pub(crate) fn node_at(&self, endpoint: &Endpoint) -> Arc<Node> {
        let mut nodes = self.nodes.lock();
        let member = self.member(&mut nodes, endpoint);
        // It is in use, even if the map does not list it yet.
        member.rounds_unlisted = 0;
        Arc::clone(&member.served.node)
    }

    /// Asks for a new map, because the current one seems out of date.
    pub(crate) fn request_refresh(&self) {
        self.refresh_requested.notify_one();
    }

    /// Visits the nodes in use.
    pub(crate) fn for_each_node(&self, mut visit: impl FnMut(&Endpoint, &Node)) {
        for (endpoint, member) in &*self.nodes.lock() {
            visit(endpoint, &member.served.node);
        }
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
        self.last_read.borrow().clone().and_then(Result::err).filter(|_| is_unknown)
    }

    /// Starts the task that keeps the map up to date on the current runtime, if that of the former one has ended.
    #[inline]
    pub(crate) fn keep_refreshed(self: &Arc<Self>) {
        if self.refresh.have_ended() {
            let task = || -> BoxFuture<()> { Box::pin(Arc::clone(self).refresh_forever()) };
            self.refresh.start(self.runtime(), || vec![task()], || ());
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
            let started = self.runtime().now();
            // A read that takes longer than callers wait fails those that wait for the first map, so that they fail fast.
            let timeout = self.dialer.context.timeout;
            let late = || {
                let why = ConnectionError::Stalled(timeout).to_string();
                self.last_read.send_modify(|read| _ = read.get_or_insert(Err(why)));
            };
            let read = reporting_delay(self.runtime(), timeout, self.read_map(&mut control), late).await;
            let is_read = read.is_ok();
            self.last_read.send_replace(Some(read.map_err(|why| why.to_string())));
            if is_read {
                backoff = Backoff::default();
                if self.refresh_is_requested(started).await {
                    // The node that gave this map may be cut off from the others, so another node is asked.
                    control = None;
                }
            } else {
                backoff.pause(self.runtime()).await;
            }
        }
    }

    /// Waits until the map has to be read again. Returns whether that was requested.
    async fn refresh_is_requested(&self, started: Instant) -> bool {
        let pause = if self.is_degraded() { DEGRADED_REFRESH_EVERY } else { REFRESH_EVERY };
        tokio::select! {
            // First, so that a request at the end of the interval does not have the map read twice.
            biased;
            () = self.refresh_requested.notified() => {
                self.runtime().sleep_until(started + MIN_REFRESH_INTERVAL).await;
                true
            }
            () = self.runtime().sleep_until(started + pause) => false,
        }
    }

    fn is_degraded(&self) -> bool {
        let map = self.map.load();
        let covered: u32 = map.ranges.iter().map(|(range, _)| u32::from(range.last - range.first) + 1).sum();
        covered < u32::from(SLOTS) || map.ranges.iter().any(|(_, node)| node.breaker.is_open())
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
        for endpoint in self.candidates() {
            let read = async {
                let mut connection = self.dialer.open(&endpoint).await?;
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

    /// The nodes that can be asked for the map, in random order: all of the last one, replicas too, and the seeds.
    fn candidates(&self) -> Vec<Endpoint> {
        let map = self.map.load();
        let known = map.ranges.iter().flat_map(|(range, _)| &range.nodes);
        let mut all: Vec<_> = known.chain(&self.seeds).cloned().collect();
        all.sort_unstable();
        all.dedup();
        self.runtime().shuffle(&mut all);
        all
    }

    async fn read_map_from(&self, connection: &mut Connection) -> Result<(), ConnectionError> {
        let ranges = slot_map::read(connection, self.runtime()).await?;
        if ranges.is_empty() {
            // A node that was reset or never joined has an empty map. Another node may have a full one.
            return Err(ConnectionError::Refused("the node belongs to no cluster".into()));
        }
        self.apply(ranges);
        Ok(())
    }

    fn apply(&self, ranges: Vec<SlotRange>) {
        let mut nodes = self.nodes.lock();
        nodes.values_mut().for_each(|member| member.rounds_unlisted += 1);
        let mut map = SlotMap::default();
        for range in ranges {
            let Some(master) = range.nodes.first() else { continue };
            let member = self.member(&mut nodes, master);
            if std::mem::take(&mut member.rounds_unlisted) > 0 {
                member.served.node.serves(range.first);
            }
            map.ranges.push((range, Arc::clone(&member.served.node)));
        }
        map.ranges.sort_by_key(|(range, _)| range.first);
        nodes.retain(|_, member| member.rounds_unlisted < MAX_ROUNDS_UNLISTED);
        self.map.store(Arc::new(map));
    }

    fn member<'a>(&self, nodes: &'a mut BTreeMap<Endpoint, Member>, endpoint: &Endpoint) -> &'a mut Member {
        let start = || {
            let served = ServedNode::start(&self.dialer, NodeAddress::Fixed(endpoint.clone()), true);
            Member { served, rounds_unlisted: 1 }
        };
        nodes.entry(endpoint.clone()).or_insert_with(start)
    }
}
