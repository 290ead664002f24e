//! What the tests of this crate share.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{Charge, Charges, Cost, FakeClock, Key, Limit, LimitName, NamedLimit};
use spile_redis::{RedisStore, RedisStoreBuilder, TimeSource};
use spile_testkit::redis::RedisCluster;
use spile_testkit::table::axes::ShapeKind;

/// Ample, so that a busy machine fails no test that is not about time.
pub(crate) const PATIENT: Duration = Duration::from_secs(5);

/// A store with keys of its own, told the time by `clock`.
pub(crate) fn store_on(url: &str, clock: FakeClock) -> RedisStore {
    patient(url).time(TimeSource::client(clock)).build().expect("a sound URL")
}

/// A store with keys of its own that waits for as long as a busy machine may take.
pub(crate) fn patient(url: &str) -> RedisStoreBuilder {
    static STORES: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("t{}", STORES.fetch_add(1, Ordering::Relaxed));
    RedisStore::builder(url).prefix(prefix).timeout(PATIENT)
}

/// One cluster for all tests that run at the same time: six servers for each would take minutes.
pub(crate) fn shared_cluster() -> Arc<RedisCluster> {
    static RUNNING: Mutex<Weak<RedisCluster>> = Mutex::new(Weak::new());
    let mut running = RUNNING.lock();
    running.upgrade().unwrap_or_else(|| {
        let started = Arc::new(RedisCluster::start());
        *running = Arc::downgrade(&started);
        started
    })
}

/// A charge by the names of its parts.
pub(crate) fn charge<'a>(key: &'a str, name: &str, limit: &str, cost: u64) -> Charge<'a> {
    let limit: Limit = limit.parse().expect("a sound limit");
    let limit = NamedLimit::new(LimitName::new(name).expect("a sound name"), limit);
    Charge::new(Key::new(key).expect("a sound key"), limit, Cost::new(cost).expect("a sound cost"))
        .expect("a cost that the limit covers")
}

/// A chain of one.
pub(crate) fn charges<'a>(key: &'a str, limit: &str, cost: u64) -> Charges<'a> {
    charge(key, "limit", limit, cost).into()
}

/// Where a store with the usual prefix keeps a bucket: a key, and the fields of its amount and time. Permits have no fields.
pub(crate) type BucketPlace = [String; 3];

/// Where a bucket or a set of permits is.
pub(crate) fn place(key: &str, name: &str, shape: ShapeKind) -> BucketPlace {
    let tag = key.replace('{', "%7B").replace('}', "%7D").replace(':', "%3A");
    let (hash, limit) = match name.split_once('/') {
        Some((plan, limit)) => (plan, format!("{limit}:")),
        None => (name, String::new()),
    };
    let fields = match shape {
        ShapeKind::Rate => ["t", "ts"],
        ShapeKind::Quota => ["u", "ue"],
        ShapeKind::Concurrency => {
            return [format!("spile:{{{tag}}}:permits:{name}"), String::new(), String::new()];
        }
    };
    let [amount, time] = fields.map(|field| format!("{limit}{field}"));
    [format!("spile:{{{tag}}}:{hash}"), amount, time]
}
