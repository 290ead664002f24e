//! Where buckets live and what happens when they cannot be reached.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use spile_core::{Clock, EitherStore, FailurePolicy, SlewedClock};
use spile_memory::MemoryStore;
use spile_redis::{RedisBuildError, RedisStore, RedisStoreBuilder, TimeSource};

use super::source::{Faults, Location, wrong};
use super::value::{RequestSpan, Span, SpanOrZero, StoreSpan, Text, Written, share, within};
use crate::secret::is_almost_scheme;

/// The schemes that name a Redis.
const REDIS_SCHEMES: [&str; 7] =
    ["redis", "rediss", "unix", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster"];

/// `[store]`: where buckets live, and what happens when they cannot be reached.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// Where buckets live.
    #[serde(with = "Text")]
    pub url: StoreUrl,
    /// The prefix of every Redis key.
    #[serde(deserialize_with = "prefix")]
    pub prefix: String,
    /// How long the store may take to answer.
    #[serde(with = "StoreSpan")]
    pub timeout: Duration,
    /// The policy while the store fails, unless a rule sets another.
    #[serde(with = "Text")]
    pub on_failure: FailurePolicy,
    /// The wait that is reported to callers who are refused because the store failed.
    #[serde(with = "RequestSpan")]
    pub fail_closed_retry_after: Duration,
    /// How long a denial of Redis is cached. Zero disables the cache.
    #[serde(with = "SpanOrZero::<10_000>")]
    pub deny_cache: Duration,
    /// The largest share of a bucket's remaining tokens that one instance may lease.
    #[serde(deserialize_with = "share")]
    pub lease_share: f64,
    /// The number of instances that share each limit while each one decides alone.
    #[serde(deserialize_with = "within::<1, 10_000, _, _>")]
    pub replicas: u32,
    /// Connections to each Redis node.
    #[serde(deserialize_with = "within::<1, 64, _, _>")]
    pub connections: usize,
    /// The most calls in flight on one connection.
    #[serde(deserialize_with = "within::<1, 256, _, _>")]
    pub flights: usize,
    /// The most charges that wait for Redis or are in flight.
    #[serde(deserialize_with = "within::<1, 1_000_000, _, _>")]
    pub queue: usize,
    /// Whose clock decides.
    pub time: TimeOf,
    /// The most buckets in the embedded store, and in the store of the policy `local`. A hundred million take up to 8 GB.
    #[serde(deserialize_with = "within::<1_000, 100_000_000, _, _>")]
    pub max_keys: usize,
    /// The file in which the embedded store's buckets survive a restart. `None` if they do not.
    pub path: Option<PathBuf>,
    /// The interval between saves. A crash loses at most the spends of this time.
    #[serde(with = "Span::<10, 3_600_000>")]
    pub save_every: Duration,
}

/// Whose clock decides.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeOf {
    /// The store's, so that the skew of instances cannot matter.
    #[default]
    Server,
    /// This process's, for services that refuse `TIME` in scripts.
    Client,
}

/// Where buckets live, as it is written in a URL.
#[derive(Clone, Eq, PartialEq)]
#[non_exhaustive]
pub enum StoreUrl {
    /// In this process.
    Memory,
    /// In Redis or Valkey. The URL may hold a password, which is never shown.
    Redis(String),
}

/// The embedded store, on the server's clock.
pub(crate) type Embedded = Arc<MemoryStore<Arc<dyn Clock>>>;

/// An open store, of any kind that a URL names.
pub(crate) type OpenStore = EitherStore<Embedded, RedisStore>;

/// The store, if it is in Redis.
pub(crate) const fn redis_of(store: &OpenStore) -> Option<&RedisStore> {
    match store {
        OpenStore::Embedded(_) => None,
        OpenStore::Shared(redis) => Some(redis),
    }
}

/// The store, if it is embedded.
pub(crate) const fn embedded_of(store: &OpenStore) -> Option<&Embedded> {
    match store {
        OpenStore::Embedded(embedded) => Some(embedded),
        OpenStore::Shared(_) => None,
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: StoreUrl::Memory,
            prefix: "spile".to_owned(),
            timeout: Duration::from_millis(50),
            on_failure: FailurePolicy::default(),
            fail_closed_retry_after: Duration::from_secs(1),
            deny_cache: Duration::from_millis(100),
            lease_share: 0.1,
            replicas: 1,
            connections: 2,
            flights: 16,
            queue: 16_384,
            time: TimeOf::default(),
            max_keys: 1_000_000,
            path: None,
            save_every: Duration::from_secs(10),
        }
    }
}

impl StoreConfig {
    /// Opens the store. The clock is that of the embedded store, and of Redis if `decides_everywhere`. `kept` is the embedded store if
    /// it was restored.
    pub(crate) fn open(
        &self,
        clock: Arc<dyn Clock>,
        decides_everywhere: bool,
        kept: Option<Embedded>,
    ) -> Result<OpenStore, RedisBuildError> {
        let Some(redis) = self.redis() else {
            return Ok(OpenStore::Embedded(kept.unwrap_or_else(|| Arc::new(self.embedded(clock).build()))));
        };
        let time = match self.time {
            _ if decides_everywhere => TimeSource::Client(clock),
            // Instances share these buckets, so the clock of each must keep to the wall clock.
            TimeOf::Client => TimeSource::client(SlewedClock::new()),
            TimeOf::Server => TimeSource::Server,
        };
        Ok(OpenStore::Shared(redis.time(time).build()?))
    }

    /// Builds the Redis store. `None` if it is not in Redis.
    pub(crate) fn redis(&self) -> Option<RedisStoreBuilder> {
        let StoreUrl::Redis(url) = &self.url else { return None };
        Some(
            RedisStore::builder(url.as_str())
                .prefix(self.prefix.as_str())
                .timeout(self.timeout)
                .connections(self.connections)
                .flights(self.flights)
                .max_waiting(self.queue),
        )
    }

    /// Builds the embedded store on this clock.
    pub(crate) fn embedded(&self, clock: Arc<dyn Clock>) -> spile_memory::MemoryStoreBuilder<Arc<dyn Clock>> {
        MemoryStore::builder().clock(clock).max_keys(self.max_keys)
    }

    /// Checks the store's settings without connecting to it.
    pub fn check(&self) -> Result<(), RedisBuildError> {
        let Some(builder) = self.redis() else { return Ok(()) };
        // Building a store requires a runtime, but checks everything else first. A new thread has no runtime, so nothing is started.
        let built = std::thread::scope(|scope| scope.spawn(|| builder.build().map(drop)).join());
        match built {
            Ok(Ok(()) | Err(RedisBuildError::NoRuntime)) => Ok(()),
            Ok(Err(why)) => Err(why),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl StoreConfig {
    /// Checks values that depend on each other. Relative paths start from the folder of the configuration file.
    pub(super) fn finish(mut self, at: &Location<'_>, folder: &Path, faults: &mut Faults) -> Self {
        if let Some(path) = self.path {
            if self.url != StoreUrl::Memory {
                let message = format!(
                    "`{}` is for the embedded store, and buckets live in {}",
                    path.display(),
                    self.url
                );
                faults.add(&at.key("path"), message, "leave it out, or write `url = \"memory:\"`");
            }
            self.path = Some(folder.join(path));
        }
        if let Err(why) = self.check() {
            faults.add(&at.key("url"), why, "a store that can be set up");
        }
        self
    }
}

/// Checks the key prefix even if the file names no Redis, because `--store` may.
fn prefix<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let (prefix, url) = (String::deserialize(from)?, StoreUrl::Redis("redis://127.0.0.1".to_owned()));
    let store = StoreConfig { url, prefix, ..StoreConfig::default() };
    store.check().map_err(|why| wrong(why, "for instance `spile`"))?;
    Ok(store.prefix)
}

impl Written for StoreUrl {
    const RIGHT: &'static str = "for instance `redis://127.0.0.1:6379`";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|why: UnknownStore| why.to_string())
    }
}

impl StoreUrl {
    /// True if instances share it, and keep their registry in it.
    pub(super) const fn is_shared(&self) -> bool {
        matches!(self, Self::Redis(_))
    }

    /// True if they differ only in users and passwords, which can change while the server runs.
    pub(crate) fn names_same_store(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Redis(one), Self::Redis(other)) => spile_redis::names_same_store(one, other),
            (one, other) => one == other,
        }
    }
}

impl FromStr for StoreUrl {
    type Err = UnknownStore;

    fn from_str(text: &str) -> Result<Self, UnknownStore> {
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some((scheme, _)) if REDIS_SCHEMES.contains(&scheme) => Ok(Self::Redis(text.to_owned())),
            // Anything else may be a password in the wrong place.
            Some((scheme, _)) if !scheme.is_empty() && is_almost_scheme(scheme) => {
                Err(UnknownStore(format!("`{scheme}:`")))
            }
            _ => Err(UnknownStore("this".to_owned())),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Redis(url) => f.write_str(&spile_redis::without_secrets(url)),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

/// A URL that names no store.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{0} names no store: write `memory:`, or a URL of redis, rediss, unix, redis-sentinel or redis-cluster"
)]
pub struct UnknownStore(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_never_shown_with_its_password() {
        for url in [
            "redis://user:hunter2@host:6379/1",
            "redis-cluster://:hunter2@a:1,b:2",
            "redis://h?password=hunter2",
        ] {
            let url: StoreUrl = url.parse().expect("it names a Redis");
            assert!(!format!("{url} {url:?}").contains("hunter2"), "{url}");
        }
    }

    #[test]
    fn a_store_is_checked_without_being_reached() {
        let store =
            |url: &str| StoreConfig { url: url.parse().expect("a known scheme"), ..StoreConfig::default() };
        assert!(store("redis://127.0.0.1:1").check().is_ok());
        assert!(store("redis://").check().is_err());
        assert!(store("redis-sentinel://h:26379").check().is_err());
    }
}
