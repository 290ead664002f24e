//! What is said beside decisions: scripts and subscriptions, on every topology.

use std::time::Duration;

use spile_redis::{RedisStore, Script, Session, SessionError, Value};
use spile_testkit::redis::{RedisCluster, RedisSentinel, RedisServer, Takeover};
use spile_testkit::wait;
use tokio::time::timeout;

use crate::common::{PATIENT, patient, shared_cluster};

/// Counts how often it ran.
const COUNT: &str = "return redis.call('INCR', KEYS[1])";
const PUBLISH: &str = "return redis.call('PUBLISH', ARGV[1], 'news')";

async fn count(session: &Session) -> Result<i64, SessionError> {
    count_within(session, PATIENT).await
}

async fn count_within(session: &Session, within: Duration) -> Result<i64, SessionError> {
    let reply = session.run(&Script::new(COUNT), &[session.key("count")], &[], within).await?;
    Ok(reply.as_int().expect("a count"))
}

async fn publish(session: &Session) {
    let reply = session.run(&Script::new(PUBLISH), &[], &[session.channel().as_bytes()], PATIENT).await;
    reply.expect("it is published");
}

/// Runs once Redis lets it.
async fn until_it_counts(session: &Session) -> i64 {
    let counted = timeout(PATIENT * 3, async {
        loop {
            if let Ok(count) = count_within(session, Duration::from_secs(1)).await {
                return count;
            }
            tokio::task::yield_now().await;
        }
    });
    counted.await.expect("Redis is back")
}

#[tokio::test]
async fn a_script_runs_on_keys_of_its_own_and_is_sent_again_where_the_server_has_forgotten_it() {
    let server = RedisServer::start();
    let session = patient(&server.url()).prefix("spile").build().unwrap().session("test");
    assert_eq!(count(&session).await, Ok(1));
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(count(&session).await, Ok(2));
    assert_eq!(server.command(&["GET", "spile:{:test}:count"]).text(), "2");
}

#[tokio::test]
async fn tls_and_unix_sockets_carry_it_too() {
    let server = RedisServer::builder().tls().start();
    let url = format!("{}?ca={}", server.url(), server.certificates().authority_file().display());
    for url in [url, server.unix_url()] {
        count(&patient(&url).build().unwrap().session("test")).await.unwrap();
    }
}

#[tokio::test]
async fn a_failing_script_says_why_and_the_session_goes_on() {
    let server = RedisServer::start();
    let session = patient(&server.url()).prefix("spile").build().unwrap().session("test");
    server.command(&["LPUSH", "spile:{:test}:count", "x"]);
    let Err(SessionError::Refused(why)) = count(&session).await else { panic!("a list counts nothing") };
    assert!(why.contains("WRONGTYPE"), "{why}");
    server.command(&["DEL", "spile:{:test}:count"]);
    assert_eq!(count(&session).await, Ok(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_and_comes_back_is_found_again() {
    let mut server = RedisServer::start();
    let session = patient(&server.url()).build().unwrap().session("test");
    assert_eq!(count(&session).await, Ok(1));
    server.kill();
    assert!(count(&session).await.is_err(), "nobody is there");
    assert!(matches!(count(&session).await, Err(SessionError::Unreachable(_))));
    server.restart();
    assert_eq!(count(&session).await, Ok(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_timeout_it_says_that_the_script_may_have_run_and_no_late_reply_answers_another() {
    let server = RedisServer::start();
    let session = patient(&server.url()).build().unwrap().session("test");
    assert_eq!(count(&session).await, Ok(1));
    server.freeze();
    let why = count_within(&session, Duration::from_millis(50)).await.unwrap_err();
    server.thaw();
    assert!(why.may_have_run(), "{why}");
    assert_eq!(count(&session).await, Ok(3), "the second ran when the server woke up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_hears_messages_and_every_moment_in_which_it_may_have_missed_some() {
    let mut server = RedisServer::start();
    let session = patient(&server.url()).build().unwrap().session("test");
    let subscription = session.subscribe();
    let hears = |what| {
        let heard = timeout(PATIENT, subscription.notified());
        async move { heard.await.unwrap_or_else(|_| panic!("not heard: {what}")) }
    };
    hears("that it listens now").await;
    publish(&session).await;
    hears("a message").await;
    assert!(
        timeout(Duration::from_millis(50), subscription.notified()).await.is_err(),
        "nothing else was said"
    );
    server.kill();
    server.restart();
    hears("that it listens again").await;
    publish(&session).await;
    hears("a message after that").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_follow_the_master_that_sentinels_name() {
    let sentinel = RedisSentinel::start();
    let store = RedisStore::builder(sentinel.url()).build().unwrap();
    let session = store.session("test");
    let subscription = session.subscribe();
    assert_eq!(until_it_counts(&session).await, 1);
    sentinel.wait_for_replica();
    sentinel.fail_over();
    assert_eq!(until_it_counts(&session).await, 2, "the replica had it");
    timeout(PATIENT, subscription.notified()).await.expect("it listens");
    while timeout(Duration::from_millis(200), subscription.notified()).await.is_ok() {}
    publish(&session).await;
    timeout(PATIENT, subscription.notified()).await.expect("it listens at the new master");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_follow_their_slot_through_a_cluster() {
    let cluster = RedisCluster::start();
    let store = RedisStore::builder(cluster.url()).prefix("spile").build().unwrap();
    let session = store.session("test");
    assert_eq!(until_it_counts(&session).await, 1);
    let slot = cluster.slot_of("spile:{:test}:count");
    cluster.move_slot(slot, (cluster.master_of(slot) + 1) % 3);
    assert_eq!(count(&session).await, Ok(2), "the slot has moved");
    cluster.wait_until_whole();
    cluster.fail_over(slot, Takeover::Graceful);
    assert_eq!(until_it_counts(&session).await, 3, "the replica has taken over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_has_moved_ahead_of_its_slot_is_followed() {
    let cluster = RedisCluster::start();
    let store = RedisStore::builder(cluster.url()).prefix("spile").build().unwrap();
    let session = store.session("test");
    assert_eq!(until_it_counts(&session).await, 1);
    let slot = cluster.slot_of("spile:{:test}:count");
    let (from, to) = (cluster.master_of(slot), (cluster.master_of(slot) + 1) % 3);
    let id = |index: usize| cluster.nodes()[index].command(&["CLUSTER", "MYID"]).text().to_owned();
    let (source, target, number) = (&cluster.nodes()[from], &cluster.nodes()[to], slot.to_string());
    target.command(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &id(from)]);
    source.command(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &id(to)]);
    let port = target.port().to_string();
    source.command(&["MIGRATE", "127.0.0.1", &port, "spile:{:test}:count", "0", "5000"]);
    assert_eq!(count(&session).await, Ok(2));
}

/// Of two keys of one slot that is on its way, one has arrived: neither node can run the script.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_whose_keys_are_torn_apart_waits_on_the_connection_it_has() {
    let cluster = RedisCluster::start();
    let store = RedisStore::builder(cluster.url()).prefix("spile").build().unwrap();
    let session = store.session("test");
    let both = [session.key("a"), session.key("b")];
    let script = Script::new("redis.call('SET', KEYS[1], 1) return redis.call('SET', KEYS[2], 1)");
    timeout(PATIENT, async { while session.run(&script, &both, &[], PATIENT).await.is_err() {} })
        .await
        .expect("the cluster is up");
    let slot = cluster.slot_of(&both[0]);
    let (from, to) = (cluster.master_of(slot), (cluster.master_of(slot) + 1) % 3);
    let id = |index: usize| cluster.nodes()[index].command(&["CLUSTER", "MYID"]).text().to_owned();
    let (source, target, number) = (&cluster.nodes()[from], &cluster.nodes()[to], slot.to_string());
    target.command(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &id(from)]);
    source.command(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &id(to)]);
    source.command(&["MIGRATE", "127.0.0.1", &target.port().to_string(), &both[0], "0", "5000"]);
    wait::until_true("two connections to each master", || store.stats().connections == 6);
    let before = store.stats().dials;
    let refused = session.run(&script, &both, &[], Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(&refused, SessionError::Refused(why) if why.starts_with("TRYAGAIN")), "{refused}");
    assert_eq!(store.stats().dials, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_of_a_cluster_passes_messages_on() {
    let cluster = shared_cluster();
    let store = patient(&cluster.url()).build().unwrap();
    let (listener, speaker) = (store.session("test"), store.session("test"));
    let subscription = listener.subscribe();
    timeout(PATIENT, subscription.notified()).await.expect("it listens");
    for node in cluster.nodes().iter().filter(|node| node.command(&["ROLE"]).list()[0].text() == "master") {
        node.command(&["PUBLISH", speaker.channel(), "news"]);
        timeout(PATIENT, subscription.notified()).await.expect("it hears what another node was told");
    }
}

#[tokio::test]
async fn replies_keep_their_shape() {
    let server = RedisServer::start();
    let session = patient(&server.url()).build().unwrap().session("test");
    let script = Script::new("return {1, ARGV[1], {false}}");
    let reply = session.run(&script, &[], &[b"a\r\nb"], PATIENT).await.unwrap();
    let items = vec![Value::Int(1), Value::Text(b"a\r\nb".to_vec()), Value::Array(vec![Value::Nil])];
    assert_eq!(reply, Value::Array(items));
}
