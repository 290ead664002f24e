//! Builds a store. Building does not wait for Redis, and succeeds while Redis is down.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize};
use std::time::Duration;

use spile_runtime::Runtime;

use crate::connection::dial_limiter::{DialLimiter, DialPriority};
use crate::connection::dialer::{Dialer, NodeAddress};
use crate::connection::login::{Login, Logins};
use crate::connection::tls::{TlsClient, TlsError};
use crate::connection::url::{ClientTlsFiles, RedisUrl, Topology, UrlError};
use crate::connection::{ConnectOptions, RoleCheck};
use crate::node::ServedNode;
use crate::node::lane::LaneConfig;
use crate::script::key::KeyPrefix;
use crate::session::NodeFinder;
use crate::store::stats::Counters;
use crate::store::time_source::TimeSource;
use crate::store::{RedisStore, StoreInner};
use crate::topology::cluster::Cluster;
use crate::topology::sentinel::{self, Sentinels};
use crate::topology::{NodeSource, Router};

/// Settings of a [`RedisStore`].
#[derive(Clone)]
#[must_use = "call build()"]
pub struct RedisStoreBuilder {
    url: String,
    prefix: String,
    timeout: Duration,
    time: TimeSource,
    connections: usize,
    flights: usize,
    max_waiting: usize,
    tls: ClientTlsFiles,
    runtime: Runtime,
}

impl fmt::Debug for RedisStoreBuilder {
    /// Leaves out the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("connections", &self.connections)
            .field("flights", &self.flights)
            .field("max_waiting", &self.max_waiting)
            .finish_non_exhaustive()
    }
}

/// Why a store cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisBuildError {
    /// The URL cannot be read.
    #[error("store URL: {0}")]
    Url(#[from] UrlError),
    /// The prefix could be read as a pattern or a hash tag.
    #[error("prefix `{0}` is not 1 to {max} letters, digits, `.`, `_`, `-`, `:` or `/`", max = KeyPrefix::MAX_BYTES)]
    Prefix(String),
    /// The timeout is too short or too long.
    #[error("a timeout of {0:?} is outside 1 ms to 60 s")]
    Timeout(Duration),
    /// The number of connections is out of bounds.
    #[error("{0} connections per node are outside 1 to 64")]
    Connections(usize),
    /// The number of flights is out of bounds.
    #[error("{0} flights per connection are outside 1 to 256")]
    Flights(usize),
    /// The bound on waiting charges is out of bounds.
    #[error("room for {0} waiting charges is outside 1 to 1000000")]
    MaxWaiting(usize),
    /// The certificates cannot be read.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The store's tasks need a tokio runtime.
    #[error("a Redis store must be built within a tokio runtime")]
    NoRuntime,
}

impl RedisStoreBuilder {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            prefix: "spile".into(),
            timeout: Duration::from_millis(50),
            time: TimeSource::Server,
            connections: 2,
            flights: 16,
            max_waiting: 16_384,
            tls: ClientTlsFiles::default(),
            runtime: Runtime::tokio(),
        }
    }

    /// The prefix of every Redis key; `spile` by default.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The longest that any call takes, including queueing and connecting; 50 ms by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whose clock the buckets go by; the Redis server's by default.
    pub fn time(mut self, time: TimeSource) -> Self {
        self.time = time;
        self
    }

    /// Connections per node; two by default, so that a lost packet on one does not stop all requests.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// How many flights (pipelined script calls) may be unanswered on one connection; 16 by default. The longer the
    /// round trip to Redis, the more are needed: with one, a call waits until the previous one is answered.
    pub fn flights(mut self, flights: usize) -> Self {
        self.flights = flights;
        self
    }

    /// How many charges may wait for an answer at once. Beyond that, callers get `StoreError::Overloaded`. 16384 by
    /// default, which is about what Redis decides within the default timeout.
    pub fn max_waiting(mut self, charges: usize) -> Self {
        self.max_waiting = charges;
        self
    }

    /// The certificate authority to trust instead of the system's, as a PEM file. For `rediss` URLs.
    pub fn authority_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls.authority = Some(path.into());
        self
    }

    /// The client certificate and its key, as PEM files. For `rediss` URLs.
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls.client = Some((certificate.into(), key.into()));
        self
    }

    /// The runtime for deadlines, pauses, tasks, connections and random numbers; tokio by default.
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = runtime;
        self
    }

    /// Builds the store. It connects in the background, and answers with errors until it is connected.
    pub fn build(self) -> Result<RedisStore, RedisBuildError> {
        let target = RedisUrl::parse(&self.url)?;
        let prefix =
            KeyPrefix::new(&self.prefix).ok_or_else(|| RedisBuildError::Prefix(self.prefix.clone()))?;
        self.check_bounds()?;
        let tls = target.tls.as_ref().map(|files| TlsClient::new(&self.tls_files(files))).transpose()?;
        if self.runtime.spawner().is_none() {
            return Err(RedisBuildError::NoRuntime);
        }
        let counters = Arc::new(Counters::default());
        let logins = Logins::new(&target);
        let nodes = NodeBuilder {
            target,
            servers: logins.servers.clone(),
            sentinels: logins.sentinels.clone(),
            tls,
            limiter: Arc::new(DialLimiter::new(self.runtime.clone())),
            counters: counters.clone(),
            settings: self.clone(),
        };
        Ok(RedisStore::new(StoreInner {
            router: nodes.router(&prefix),
            // Sessions go to the same nodes as decisions, over separate connections. Both share one dial limiter. Each session has its own
            // `Sentinels`: the newest master is remembered there, and reporting a change to a session must not hide it from the store.
            sessions: Box::new(move || {
                let (nodes, dialer) = nodes.nodes(DialPriority::Background);
                (NodeFinder::new(nodes), Arc::new(dialer))
            }),
            logins,
            prefix,
            timeout: self.timeout,
            time: self.time,
            runtime: self.runtime,
            ahead_us: AtomicI64::new(0),
            most_waiting: self.max_waiting,
            waiting: AtomicUsize::new(0),
            counters,
        }))
    }

    fn check_bounds(&self) -> Result<(), RedisBuildError> {
        let is_timeout = (Duration::from_millis(1)..=Duration::from_secs(60)).contains(&self.timeout);
        let bounds = [
            (is_timeout, RedisBuildError::Timeout(self.timeout)),
            ((1..=64).contains(&self.connections), RedisBuildError::Connections(self.connections)),
            ((1..=256).contains(&self.flights), RedisBuildError::Flights(self.flights)),
            ((1..=1_000_000).contains(&self.max_waiting), RedisBuildError::MaxWaiting(self.max_waiting)),
        ];
        bounds.into_iter().find(|(is_within, _)| !is_within).map_or(Ok(()), |(_, why)| Err(why))
    }

    /// The builder's methods override the URL.
    fn tls_files(&self, url: &ClientTlsFiles) -> ClientTlsFiles {
        ClientTlsFiles {
            authority: self.tls.authority.clone().or_else(|| url.authority.clone()),
            client: self.tls.client.clone().or_else(|| url.client.clone()),
        }
    }
}

/// Builds the nodes and the sessions of a store.
struct NodeBuilder {
    settings: RedisStoreBuilder,
    target: RedisUrl,
    servers: Login,
    sentinels: Login,
    tls: Option<TlsClient>,
    limiter: Arc<DialLimiter>,
    counters: Arc<Counters>,
}

impl NodeBuilder {
    fn router(&self, prefix: &KeyPrefix) -> Router {
        match self.nodes(DialPriority::Decisions) {
            (NodeSource::Single(address), dialer) => {
                Router::Single(ServedNode::start(self.lanes(address, dialer, None)))
            }
            (NodeSource::Cluster(seeds), dialer) => {
                // Each node gets its own address when it is found. The first seed is a placeholder.
                let anywhere = NodeAddress::Fixed(seeds[0].clone());
                let cluster = Cluster::new(self.lanes(anywhere, dialer, Some(prefix.clone())), seeds);
                let cluster = Arc::new(cluster);
                cluster.keep_refreshed();
                Router::Cluster(cluster)
            }
        }
    }

    /// Where the nodes are, and how to dial them.
    fn nodes(&self, priority: DialPriority) -> (NodeSource, Dialer) {
        let (nodes, role) = match self.target.topology.clone() {
            Topology::Standalone(endpoint) => {
                (NodeSource::Single(NodeAddress::Fixed(endpoint)), RoleCheck::IfAllowed)
            }
            Topology::Sentinel { sentinels, master, .. } => {
                let mut dialer = self.dialer(0, RoleCheck::None, priority);
                (dialer.timeout, dialer.options.login) = (sentinel::TIMEOUT, self.sentinels.clone());
                let sentinels = Arc::new(Sentinels::new(sentinels, master, dialer));
                (NodeSource::Single(NodeAddress::BySentinels(sentinels)), RoleCheck::Master)
            }
            Topology::Cluster { seeds } => (NodeSource::Cluster(seeds), RoleCheck::None),
        };
        (nodes, self.dialer(self.target.database, role, priority))
    }

    fn dialer(&self, database: u32, role: RoleCheck, priority: DialPriority) -> Dialer {
        let login = self.servers.clone();
        let options = ConnectOptions { login, database, tls: self.tls.clone(), role };
        // Together with the longest pause between dials this is below a second, within which a recovered node must be
        // found.
        let timeout = self.settings.timeout.max(Duration::from_millis(400));
        Dialer {
            runtime: self.settings.runtime.clone(),
            options,
            limiter: self.limiter.clone(),
            priority,
            counters: self.counters.clone(),
            timeout,
        }
    }

    fn lanes(&self, address: NodeAddress, dialer: Dialer, cluster_prefix: Option<KeyPrefix>) -> LaneConfig {
        const SHORTEST_STALL: Duration = Duration::from_millis(150);
        LaneConfig {
            runtime: self.settings.runtime.clone(),
            address,
            dialer: Arc::new(dialer),
            time: self.settings.time.clone(),
            timeout: self.settings.timeout,
            stall: (self.settings.timeout * 3).max(SHORTEST_STALL),
            connections: self.settings.connections,
            flights: self.settings.flights,
            most_waiting: self.settings.max_waiting,
            cluster_prefix,
            // A random start, so that a reply to one process never looks like a reply to another.
            sequence: Arc::new(AtomicU64::new(self.settings.runtime.random() >> 16)),
            counters: self.counters.clone(),
        }
    }
}
