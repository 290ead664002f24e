//! Spile's store under the same load.

use spile_core::{Charge, Charges, Cost as Tokens, Key, Limit, LimitName, NamedLimit, StoreExt};
use spile_redis::RedisStore;
use spile_testkit::redis::RedisServer;

use crate::load::{Cost, Load};

/// Decisions of `chain` limits each.
pub(crate) async fn spile(server: &RedisServer, load: Load, chain: usize) -> Cost {
    let store = RedisStore::builder(server.url()).timeout(std::time::Duration::from_secs(5)).build();
    let store = store.expect("sound settings");
    // A plan of one limit gives it its own name, and each key a hash of its own.
    let limits: Vec<NamedLimit> = match chain {
        1 => vec![limit("plan")],
        _ => (0..chain).map(|index| limit(&format!("plan/{index}"))).collect(),
    };
    // The first decision waits for the connection; it is not part of the load.
    decide(&store, &limits, "first").await;
    load.run(server, move |_, key| {
        let (store, limits) = (store.clone(), limits.clone());
        async move { decide(&store, &limits, &key).await }
    })
    .await
}

async fn decide(store: &RedisStore, limits: &[NamedLimit], key: &str) {
    let key = Key::new(key).expect("a key");
    let charge = |limit: &NamedLimit| Charge::new(key, limit.clone(), Tokens::ONE).expect("covered");
    let charges = Charges::new(limits.iter().map(charge)).expect("a chain");
    store.spend(&charges).await.expect("Redis answers");
}

fn limit(name: &str) -> NamedLimit {
    let limit = Limit::per_second(50).burst(10_000).build().expect("in bounds");
    NamedLimit::new(LimitName::new(name).expect("a name"), limit)
}
