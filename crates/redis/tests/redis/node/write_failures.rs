//! A Redis that is there and refuses to write: what the store tells of it, and how it notices the end.

use spile_core::StoreExt;
use spile_redis::{RedisErrorKind, RedisStore};
use spile_testkit::redis::{Flavour, RedisServer};
use spile_testkit::wait;

use crate::common::{charges, patient};

const LIMIT: &str = "2, 1/h";

/// How Redis is made to refuse, how to undo it, and what it says then.
const WAYS: [(RedisErrorKind, &[&str], &[&str], &str); 3] = [
    (RedisErrorKind::Oom, &["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"], "OOM"),
    (RedisErrorKind::Acl, &["ACL", "SETUSER", "app", "-hset"], &["ACL", "SETUSER", "app", "+hset"], "script"),
    (
        RedisErrorKind::NoReplicas,
        &["CONFIG", "SET", "min-replicas-to-write", "1"],
        &["CONFIG", "SET", "min-replicas-to-write", "0"],
        "NOREPLICAS",
    ),
];

fn count(store: &RedisStore, kind: RedisErrorKind) -> u64 {
    store.stats().error_replies[kind as usize]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_told_in_redis_own_words_until_redis_writes_again_even_without_traffic() {
    for flavour in Flavour::ALL {
        let server = RedisServer::builder().flavour(flavour).line("user app on >s3cret ~* &* +@all").start();
        for (kind, breaks, heals, word) in WAYS {
            let url = format!("redis://app:s3cret@{}", server.address());
            let store = patient(&url).build().unwrap();
            assert!(store.spend(&charges("drained", LIMIT, 2)).await.unwrap().allowed);
            assert_eq!((store.trouble(), count(&store, kind)), (None, 0));
            server.command(breaks);
            store.spend(&charges("ann", LIMIT, 1)).await.unwrap_err();
            wait::until_true("the reason", || store.trouble().is_some_and(|why| why.contains(word)));
            assert!(count(&store, kind) >= 1, "{flavour:?} {kind:?} {:?}", store.trouble());
            // Nothing is written for it. Redis 6.2 and later let such scripts run without memory, but not without replicas.
            let denied = store.spend(&charges("drained", LIMIT, 1)).await;
            assert!(
                denied.map_or(kind == RedisErrorKind::NoReplicas, |denied| !denied.allowed),
                "{flavour:?} {kind:?}"
            );
            assert!(store.trouble().is_some(), "a denial shows nothing: {flavour:?} {kind:?}");
            server.command(heals);
            wait::until_true("it to write again", || store.trouble().is_none());
            assert_eq!(
                store.spend(&charges("ann", LIMIT, 0)).await.unwrap().buckets[0].amount().whole_tokens(),
                2
            );
        }
        wait::until_true("what was written to find that out to be gone", || {
            server.command(&["KEYS", "*probe*"]).list().is_empty()
        });
    }
}
