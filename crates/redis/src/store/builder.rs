//! Builds a store. Building does not wait for Redis, and succeeds while Redis is down.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize};
use std::time::Duration;

use spile_runtime::Runtime;

use crate::connection::dial_limiter::{DialLimiter, DialPriority};
use crate::connection::dialer::{Dialer, NodeAddress};
use crate::connection::login::{Login, Logins};
use crate::connection::tls::{TlsClient, TlsError};
use crate::connection::url::{RedisUrl, Topology, UrlError};
use crate::connection::{ConnectOptions, RoleCheck};
use crate::node::ServedNode;
use crate::script::key::KeyPrefix;
use crate::store::context::StoreContext;
use crate::store::stats::Counters;
use crate::store::time_source::TimeSource;
use crate::store::{RedisStore, StoreInner};
use crate::topology::Router;
use crate::topology::cluster::Cluster;
use crate::topology::sentinel::{self, Sentinels};

/// The least time after which a silent connection is closed.
const SHORTEST_STALL: Duration = Duration::from_millis(150);

/// The least timeout of a dial. Together with the longest pause between dials it is below a second, within which a recovered node must be
/// found.
const SHORTEST_DIAL: Duration = Duration::from_millis(400);

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

    /// The runtime for deadlines, pauses, tasks, connections and random numbers; tokio by default.
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = runtime;
        self
    }

    /// Builds the store. It connects in the background, and answers with errors until it is connected.
    pub fn build(self) -> Result<RedisStore, RedisBuildError> {
        let url = RedisUrl::parse(&self.url)?;
        let prefix =
            KeyPrefix::new(&self.prefix).ok_or_else(|| RedisBuildError::Prefix(self.prefix.clone()))?;
        let is_timeout = (Duration::from_millis(1)..=Duration::from_secs(60)).contains(&self.timeout);
        let bounds = [
            (is_timeout, RedisBuildError::Timeout(self.timeout)),
            ((1..=64).contains(&self.connections), RedisBuildError::Connections(self.connections)),
            ((1..=256).contains(&self.flights), RedisBuildError::Flights(self.flights)),
            ((1..=1_000_000).contains(&self.max_waiting), RedisBuildError::MaxWaiting(self.max_waiting)),
        ];
        if let Some((_, why)) = bounds.into_iter().find(|(is_within, _)| !is_within) {
            return Err(why);
        }
        let tls = url.tls.as_ref().map(TlsClient::new).transpose()?;
        if self.runtime.spawner().is_none() {
            return Err(RedisBuildError::NoRuntime);
        }
        let context = Arc::new(StoreContext {
            prefix,
            time: self.time,
            timeout: self.timeout,
            stall: (self.timeout * 3).max(SHORTEST_STALL),
            connections: self.connections,
            flights: self.flights,
            max_waiting: self.max_waiting,
            limiter: DialLimiter::new(self.runtime.clone()),
            // A random start, so that a reply to one process never looks like a reply to another.
            sequence: AtomicU64::new(self.runtime.random() >> 16),
            counters: Counters::default(),
            runtime: self.runtime,
        });
        let (topology, database) = (url.topology.clone(), url.database);
        let logins = Logins::new(url);
        let dialer = |login: &Login, database, role, timeout| Dialer {
            context: Arc::clone(&context),
            options: ConnectOptions { login: login.clone(), database, tls: tls.clone(), role },
            priority: DialPriority::Decisions,
            timeout,
        };
        let servers =
            |role| Arc::new(dialer(&logins.servers, database, role, self.timeout.max(SHORTEST_DIAL)));
        let router = match topology {
            Topology::Standalone(endpoint) => {
                let address = NodeAddress::Fixed(endpoint);
                Router::Single(ServedNode::start(&servers(RoleCheck::IfAllowed), address, false))
            }
            Topology::Sentinel { sentinels, master } => {
                let dialer = dialer(&logins.sentinels, 0, RoleCheck::None, sentinel::TIMEOUT);
                let sentinels = Sentinels::new(sentinels, master, dialer);
                let address = NodeAddress::BySentinels(Arc::new(sentinels));
                Router::Single(ServedNode::start(&servers(RoleCheck::Master), address, false))
            }
            Topology::Cluster { seeds } => Router::Cluster(Cluster::start(servers(RoleCheck::None), seeds)),
        };
        Ok(RedisStore::new(StoreInner {
            context,
            router,
            logins,
            ahead_us: AtomicI64::new(0),
            waiting: AtomicUsize::new(0),
        }))
    }
}
