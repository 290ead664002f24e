//! Where buckets live and what happens when they cannot be reached.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use spile_core::{Clock, FailurePolicy};
use spile_memory::MemoryStore;
use spile_redis::{RedisBuildError, RedisStore, RedisStoreBuilder};

use super::file::{Faults, Spot, StoreFile};
use super::{bounded, duration, rules};

/// The schemes that name a Redis.
const REDIS_SCHEMES: [&str; 7] =
    ["redis", "rediss", "unix", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster"];

/// How many buckets an embedded store can be told to hold. A hundred million take up to 8 GB.
const MAX_KEYS: RangeInclusive<u64> = 1_000..=100_000_000;

/// The store and its manners.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Where buckets live.
    pub url: StoreUrl,
    /// What every Redis key begins with.
    pub prefix: String,
    /// How long the store may take to answer.
    pub timeout: Duration,
    /// What is decided when the store fails, unless a rule says otherwise.
    pub on_failure: FailurePolicy,
    /// When those who are refused because the store failed may come back.
    pub fail_closed_retry_after: Duration,
    /// How many instances share each limit while every one decides alone.
    pub replicas: u32,
    /// Connections to each Redis node.
    pub connections: usize,
    /// Calls that may be under way on one connection.
    pub flights: usize,
    /// Charges that may wait for Redis or be under way to it.
    pub queue: usize,
    /// Whose clock decides.
    pub time: TimeOf,
    /// The most buckets that the embedded store holds, and the one behind the policy `local`.
    pub max_keys: usize,
    /// Where the embedded store keeps its buckets over a restart; nowhere, unless said.
    pub path: Option<PathBuf>,
    /// How much of what was spent a crash may lose there.
    pub save_every: Duration,
}

/// Whose clock decides.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
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
    /// In Redis or Valkey. May hold a password: shown only without it.
    Redis(String),
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: StoreUrl::Memory,
            prefix: "spile".to_owned(),
            timeout: Duration::from_millis(50),
            on_failure: FailurePolicy::default(),
            fail_closed_retry_after: Duration::from_secs(1),
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
    /// The Redis store to be, where there is one.
    pub(crate) fn redis(&self) -> Option<RedisStoreBuilder> {
        match &self.url {
            StoreUrl::Memory => None,
            StoreUrl::Redis(url) => Some(
                RedisStore::builder(url.as_str())
                    .prefix(self.prefix.as_str())
                    .timeout(self.timeout)
                    .connections(self.connections)
                    .flights(self.flights)
                    .max_waiting(self.queue),
            ),
        }
    }

    /// The embedded store to be, told the time by `clock`.
    pub(crate) fn embedded(&self, clock: Arc<dyn Clock>) -> spile_memory::Builder<Arc<dyn Clock>> {
        MemoryStore::builder().clock(clock).max_keys(self.max_keys)
    }

    /// Checks everything about the store short of reaching it.
    pub fn check(&self) -> Result<(), RedisBuildError> {
        let Some(builder) = self.redis() else { return Ok(()) };
        // A store is built only within a runtime, and checks all else before it asks for one. A fresh thread has
        // none, so that nothing is started.
        let built = std::thread::scope(|scope| scope.spawn(|| builder.build().map(drop)).join());
        match built {
            Ok(Ok(()) | Err(RedisBuildError::NoRuntime)) => Ok(()),
            Ok(Err(why)) => Err(why),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl StoreConfig {
    /// Relative paths start from the folder of the configuration file.
    pub(super) fn read(file: StoreFile, folder: &Path, faults: &mut Faults) -> Self {
        let mut store = Self::default();
        let url_place = file.url.as_ref().map(|url| url.place.clone());
        if let Some(Spot { value, place }) = file.url {
            match value.parse() {
                Ok(url) => store.url = url,
                Err(why) => faults.add(&place, why, "for instance `redis://127.0.0.1:6379`"),
            }
        }
        if let Some(Spot { value, place }) = file.prefix {
            match check_prefix(&value) {
                Ok(()) => store.prefix = value,
                Err(why) => faults.add(&place, why, "for instance `spile`"),
            }
        }
        let mut span =
            |text: Option<Spot<String>>, bounds| text.and_then(|text| duration::check(&text, bounds, faults));
        store.timeout = span(file.timeout, duration::STORE).unwrap_or(store.timeout);
        let wait = span(file.fail_closed_retry_after, duration::REQUEST);
        store.fail_closed_retry_after = wait.unwrap_or(store.fail_closed_retry_after);
        store.save_every = span(file.save_every, duration::SAVING).unwrap_or(store.save_every);
        if let Some(policy) = file.on_failure.and_then(|policy| rules::check_policy(&policy, faults)) {
            store.on_failure = policy;
        }
        if let Some(Spot { value, place }) = file.replicas {
            match u32::try_from(value) {
                Ok(replicas @ 1..=10_000) => store.replicas = replicas,
                _ => faults.add(&place, format_args!("{value} replicas"), "1 to 10000"),
            }
        }
        for (setting, number, bounds) in [
            (&mut store.connections, file.connections, 1..=64),
            (&mut store.flights, file.flights, 1..=256),
            (&mut store.queue, file.queue, 1..=1_000_000),
        ] {
            *setting = bounded::check(number, bounds, faults).map_or(*setting, |number| number as usize);
        }
        if let Some(Spot { value, place }) = file.time {
            match value.as_str() {
                "server" => store.time = TimeOf::Server,
                "client" => store.time = TimeOf::Client,
                _ => faults.add(&place, format_args!("`{value}` is nobody's clock"), "`server` or `client`"),
            }
        }
        if let Some(keys) = bounded::check(file.max_keys, MAX_KEYS, faults) {
            store.max_keys = keys as usize;
        }
        if let Some(Spot { value, place }) = file.path {
            if store.url != StoreUrl::Memory {
                let message =
                    format!("`{value}` is for the embedded store, and buckets live in {}", store.url);
                faults.add(&place, message, "leave it out, or write `url = \"memory:\"`");
            }
            store.path = Some(folder.join(value));
        }
        if let (Some(place), Err(why)) = (url_place, store.check()) {
            faults.add(&place, why, "a store that can be set up");
        }
        store
    }
}

/// Whether keys may begin so, in whichever Redis: `--store` may name one where the file does not.
fn check_prefix(prefix: &str) -> Result<(), RedisBuildError> {
    let url = StoreUrl::Redis("redis://127.0.0.1".to_owned());
    StoreConfig { url, prefix: prefix.to_owned(), ..StoreConfig::default() }.check()
}

impl StoreUrl {
    /// Whether they differ in nothing but users and passwords, which can change while the server runs.
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
            // Anything but letters may be a password in the wrong place.
            Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_lowercase()) => {
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
