//! The contract that every store keeps, on every server and topology that is promised.

use std::future::{Ready, ready};
use std::sync::Arc;

use spile_core::FakeClock;
use spile_redis::RedisStore;
use spile_testkit::redis::{Flavour, RedisCluster, RedisServer};

use crate::common::{shared_cluster, store_on};

fn on(flavour: Flavour, clock: FakeClock) -> Ready<(RedisStore, RedisServer)> {
    let server = RedisServer::builder().flavour(flavour).start();
    ready((store_on(&server.url(), clock), server))
}

mod redis_7 {
    use super::*;

    fn make(clock: FakeClock) -> Ready<(RedisStore, RedisServer)> {
        on(Flavour::Redis7, clock)
    }

    spile_testkit::store_contract!(make);
}

mod redis_6_2 {
    use super::*;

    fn make(clock: FakeClock) -> Ready<(RedisStore, RedisServer)> {
        on(Flavour::Redis62, clock)
    }

    spile_testkit::store_contract!(make);
}

mod valkey_9 {
    use super::*;

    fn make(clock: FakeClock) -> Ready<(RedisStore, RedisServer)> {
        on(Flavour::Valkey9, clock)
    }

    spile_testkit::store_contract!(make);
}

mod cluster {
    use super::*;

    fn make(clock: FakeClock) -> Ready<(RedisStore, Arc<RedisCluster>)> {
        let cluster = shared_cluster();
        ready((store_on(&cluster.url(), clock), cluster))
    }

    spile_testkit::store_contract!(make);
}
