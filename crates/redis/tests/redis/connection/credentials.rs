//! Users and passwords that change while the store runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use spile_core::StoreExt;
use spile_redis::{CredentialsError, RedisStore, Script};
use spile_testkit::redis::{RedisSentinel, RedisServer};
use spile_testkit::wait;
use tokio::time::timeout;

use crate::common::{PATIENT, charges, patient};

const LIMIT: &str = "100000, 100/h";
const OLD: &str = "user old on >old ~* &* +@all";
const NEW: &str = "user new on >new ~* &* +@all";

fn url(server: &RedisServer, user: &str) -> String {
    format!("redis://{user}:{user}@{}", server.address())
}

/// The users of all connections but the one that asks.
fn users(server: &RedisServer) -> Vec<String> {
    let clients = server.command(&["CLIENT", "LIST"]);
    let user = |line: &str| line.split(' ').find_map(|field| field.strip_prefix("user=").map(str::to_owned));
    clients.text().lines().filter(|line| !line.contains("cmd=client")).filter_map(user).collect()
}

async fn until_it_spends(store: &RedisStore) {
    let spent = async {
        while store.spend(&charges("ann", LIMIT, 1)).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(wait::PATIENCE, spent).await.unwrap_or_else(|_| panic!("{:?}", store.trouble()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_log_in_anew_without_a_decision_lost() {
    let server = RedisServer::builder().line(OLD).line(NEW).start();
    let store = patient(&url(&server, "old")).build().unwrap();
    let session = store.session("test");
    let subscription = session.subscribe();
    timeout(PATIENT, subscription.notified()).await.expect("it listens");
    let ping = Script::new("return 1");
    session.run(&ping, &[], &[], PATIENT).await.expect("an answer");
    wait::until_true("both connections", || store.stats().connections == 2);
    let stop = Arc::<AtomicBool>::default();
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (store, stop) = (store.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    store.spend(&charges("ann", LIMIT, 1)).await.expect("an answer");
                }
            })
        })
        .collect();
    store.renew_credentials(&url(&server, "new")).unwrap();
    session.run(&ping, &[], &[], PATIENT).await.expect("an answer");
    // Two that decide, a session and its subscription.
    wait::until_true("every connection to be the new user's", || users(&server) == ["new"; 4]);
    server.command(&["ACL", "DELUSER", "old"]);
    for _ in 0..50 {
        store.spend(&charges("bob", LIMIT, 1)).await.expect("an answer");
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("no decision is lost");
    }
    assert_eq!((store.stats().connections_lost, store.warning()), (0, None));
    assert_eq!(users(&server).len(), 4, "no connection was ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_thrown_out_with_the_old_password_comes_back_with_the_new_one() {
    let server = RedisServer::builder().line("user app on >old ~* &* +@all").start();
    let at = |password: &str| format!("redis://app:{password}@{}", server.address());
    let store = RedisStore::builder(at("old")).build().unwrap();
    let session = store.session("test");
    until_it_spends(&store).await;
    server.command(&["ACL", "SETUSER", "app", "resetpass", ">new"]);
    server.command(&["CLIENT", "KILL", "USER", "app"]);
    wait::until_true("the reason", || store.trouble().is_some_and(|why| why.contains("WRONGPASS")));
    store.renew_credentials(&at("new")).unwrap();
    timeout(Duration::from_secs(2), until_it_spends(&store)).await.expect("it is let in");
    session.run(&Script::new("return 1"), &[], &[], PATIENT).await.expect("so is the session");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_redis_does_not_take_yet_are_warned_of_while_decisions_go_on() {
    let server = RedisServer::builder().line(OLD).start();
    let store = patient(&url(&server, "old")).build().unwrap();
    until_it_spends(&store).await;
    store.renew_credentials(&url(&server, "new")).unwrap();
    wait::until_true("the warning", || store.warning().is_some_and(|why| why.contains("WRONGPASS")));
    store.spend(&charges("ann", LIMIT, 1)).await.expect("the connection stands");
    assert_eq!(store.trouble(), None);
    server.command(&["ACL", "SETUSER", "new", "on", ">new", "~*", "+@all"]);
    server.command(&["CLIENT", "KILL", "USER", "old"]);
    until_it_spends(&store).await;
    wait::until_true("the warning to be over", || store.warning().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_are_asked_with_the_new_credentials_too() {
    let mut sentinel = RedisSentinel::start();
    let rights = ["&*", "+@all"];
    for user in ["old", "new"] {
        let words = [&["ACL", "SETUSER", user, "on", ">s3cret"], &rights[..]].concat();
        sentinel.sentinels().iter().for_each(|one| drop(one.command(&words)));
    }
    let store = RedisStore::builder(sentinel.url_as("old", "s3cret")).build().unwrap();
    until_it_spends(&store).await;
    store.renew_credentials(&sentinel.url_as("new", "s3cret")).unwrap();
    sentinel.sentinels().iter().for_each(|one| drop(one.command(&["ACL", "DELUSER", "old"])));
    sentinel.fail_over();
    timeout(Duration::from_secs(2), until_it_spends(&store)).await.expect("the failover is followed");
    wait::until_true("every sentinel to be heard", || store.warning().is_none());
}

#[tokio::test]
async fn a_url_of_another_store_changes_nothing() {
    let server = RedisServer::builder().line(OLD).start();
    let store = patient(&url(&server, "old")).build().unwrap();
    let elsewhere = format!("{}/1", url(&server, "new"));
    assert_eq!(store.renew_credentials(&elsewhere), Err(CredentialsError::OtherStore));
    assert!(matches!(store.renew_credentials("redis://"), Err(CredentialsError::Url(_))));
    assert!(store.spend(&charges("ann", LIMIT, 1)).await.unwrap().allowed);
}
