//! Each way in which Redis is run: TLS, users, databases, sockets, Sentinel and Cluster.

use std::time::Duration;

use spile_calendar::CalendarLimit;
use spile_core::{
    Charge, Charges, Clock, Cost, Inspect, Kept, Key, Limit, LimitName, Micros, NamedLimit, PermitId,
    PermitStep, SpendTime, StoreError, StoreExt, SystemClock,
};
use spile_redis::{RedisBuildError, RedisStore};
use spile_testkit::redis::{Flavour, RedisCluster, RedisSentinel, RedisServer, Takeover};
use spile_testkit::wait;

use crate::common::{charge, charges, patient, shared_cluster};

const LIMIT: &str = "1000, 1/h";

async fn spends(store: &RedisStore) -> bool {
    store.spend(&charges("ann", LIMIT, 1)).await.is_ok_and(|outcome| outcome.allowed)
}

async fn until_it_spends(store: &RedisStore) -> Duration {
    let clock = SystemClock::new();
    let started = clock.now();
    while !spends(store).await {
        assert!(clock.now().since_us(started) < 15_000_000, "{:?}", store.trouble());
        tokio::task::yield_now().await;
    }
    Duration::from_micros(clock.now().since_us(started))
}

#[tokio::test]
async fn tls_with_an_authority_of_ones_own() {
    let server = RedisServer::builder().tls().start();
    let authority = server.certificates().authority_file();
    let by_url = format!("{}?ca={}", server.url(), authority.display());
    assert!(spends(&patient(&by_url).build().unwrap()).await);
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_refused() {
    let server = RedisServer::builder().tls().start();
    let stranger = RedisServer::builder().tls().start();
    let authority = stranger.certificates().authority_file();
    let store = RedisStore::builder(format!("{}?ca={}", server.url(), authority.display())).build().unwrap();
    assert!(!spends(&store).await);
    wait::until_true("the reason", || store.trouble().is_some_and(|why| why.contains("certificate")));
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_it_is_asked_for() {
    let server = RedisServer::builder().tls_for_known_clients().start();
    let files = server.certificates();
    let unknown = format!("{}?ca={}", server.url(), files.authority_file().display());
    let (certificate, key) = (files.client_certificate_file(), files.client_key_file());
    let known = format!("{unknown}&cert={}&key={}", certificate.display(), key.display());
    let known = patient(&known).build().unwrap();
    until_it_spends(&known).await;
    let unknown = RedisStore::builder(unknown).build().unwrap();
    assert!(!spends(&unknown).await);
}

#[tokio::test]
async fn a_file_that_is_missing_is_named_when_the_store_is_built() {
    let built = RedisStore::builder("rediss://127.0.0.1?ca=/nowhere/ca.pem").build();
    let Err(error @ RedisBuildError::Tls(_)) = built else { panic!("{built:?}") };
    assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
}

#[tokio::test]
async fn a_unix_socket_a_password_and_a_database() {
    let server = RedisServer::builder().password("s3cret").start();
    let url = format!("{}?db=3&pass=s3cret", server.unix_url());
    assert!(spends(&patient(&url).build().unwrap()).await);
    assert!(spends(&patient(&format!("{}/5", server.url())).build().unwrap()).await);
    let keyspace = server.command(&["INFO", "keyspace"]);
    assert!(keyspace.text().contains("db3:") && keyspace.text().contains("db5:"), "{keyspace:?}");
    assert!(!keyspace.text().contains("db0:"), "{keyspace:?}");
}

/// Takes, keeps, lists and releases permits, and finds all places taken.
async fn holds_permits(store: &RedisStore) {
    let limit = Limit::concurrent(1).hold(Duration::from_secs(1)).build().unwrap();
    let limit = NamedLimit::new(LimitName::new("jobs").unwrap(), limit);
    let jobs = Charges::one(Key::new("ann").unwrap(), &limit, Cost::ONE).unwrap();
    let id = |number| PermitId::new(Micros::from_secs(1), Duration::ZERO, number, "").unwrap();
    let step = async |number, step| store.permit(&jobs, &id(number), step).await.unwrap().allowed;
    assert!(step(1, PermitStep::Acquire).await && !step(2, PermitStep::Acquire).await);
    assert!(step(1, PermitStep::Renew).await && step(1, PermitStep::Retake).await);
    store.peek(&jobs).await.unwrap();
    assert_eq!(store.holders(&jobs).await.unwrap()[0].len(), 1);
    assert!(step(1, PermitStep::Release(SpendTime::Unknown)).await && step(3, PermitStep::Acquire).await);
    store.reset(&jobs).await.unwrap();
}

/// The guide's line for that user, word for word.
fn acl(user: &str) -> &'static str {
    let guide = include_str!("../../../../../docs/guide/redis.md");
    let start = format!("user {user} ");
    guide.lines().find(|line| line.starts_with(&start)).expect("the guide's ACL line")
}

#[tokio::test]
async fn the_guides_acl_line_allows_all_that_a_store_does_and_nothing_else_is_needed() {
    for flavour in Flavour::ALL {
        let server = RedisServer::builder().flavour(flavour).line(acl("spile")).start();
        let url = format!("redis://spile:CHANGE-ME@{}", server.address());
        let store = patient(&url).prefix("spile").build().unwrap();
        assert!(spends(&store).await, "{flavour:?}: {:?}", store.trouble());
        server.command(&["SCRIPT", "FLUSH"]);
        let asked = charges("ann", LIMIT, 2);
        store.refund(&asked, SpendTime::ThisWindow).await.unwrap();
        assert_eq!(store.spend_up_to(&asked).await.unwrap().granted, 2);
        store.peek(&asked).await.unwrap();
        store.reset(&asked).await.unwrap();
        server.command(&["LPUSH", "spile:{ann}:limit", "x"]);
        assert!(spends(&store).await, "a repair, on {flavour:?}");
        holds_permits(&store).await;
        let outside = patient(&url).prefix("elsewhere").build().unwrap();
        assert!(matches!(outside.spend(&asked).await, Err(StoreError::Unavailable { .. })), "{flavour:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guides_acl_line_for_clusters_is_enough_for_a_cluster() {
    let cluster = RedisCluster::start_with(&[acl("spile-cluster")]);
    let url = cluster.url().replace("://", "://spile-cluster:CHANGE-ME@");
    let store = patient(&url).prefix("spile").build().unwrap();
    until_it_spends(&store).await;
    holds_permits(&store).await;
    cluster.fail_over(cluster.slot_of("spile:{ann}:limit"), Takeover::Graceful);
    until_it_spends(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guides_acl_line_for_sentinels_is_enough_to_follow_a_failover() {
    let mut sentinel = RedisSentinel::start();
    let words: Vec<_> = acl("spile-sentinel").split(' ').skip(1).collect();
    for one in sentinel.sentinels() {
        one.command(&[&["ACL", "SETUSER"], &words[..]].concat());
    }
    let url = sentinel.url_as("spile-sentinel", "CHANGE-ME");
    let store = RedisStore::builder(url).build().unwrap();
    until_it_spends(&store).await;
    sentinel.fail_over();
    assert!(until_it_spends(&store).await < Duration::from_secs(1), "{:?}", store.trouble());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_tells_the_address_alone_is_enough() {
    let mut sentinel = RedisSentinel::start();
    for one in sentinel.sentinels() {
        let rights = ["&+switch-master", "-@all", "+sentinel|get-master-addr-by-name", "+subscribe"];
        one.command(&[&["ACL", "SETUSER", "narrow", "on", ">s3cret"], &rights[..]].concat());
    }
    let store = RedisStore::builder(sentinel.url_as("narrow", "s3cret")).build().unwrap();
    until_it_spends(&store).await;
    sentinel.fail_over();
    assert!(until_it_spends(&store).await < Duration::from_secs(1), "{:?}", store.trouble());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_said_and_a_changed_one_is_picked_up() {
    let server = RedisServer::builder().line("user app on >first ~* +@all").start();
    let url = format!("redis://app:second@{}", server.address());
    let store = RedisStore::builder(url).build().unwrap();
    assert!(!spends(&store).await);
    wait::until_true("the reason", || store.trouble().is_some_and(|why| why.contains("WRONGPASS")));
    server.command(&["ACL", "SETUSER", "app", ">second"]);
    assert!(until_it_spends(&store).await < Duration::from_secs(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_names_the_master_and_a_failover_is_followed() {
    let sentinel = RedisSentinel::start();
    let store = RedisStore::builder(sentinel.url()).build().unwrap();
    until_it_spends(&store).await;
    sentinel.wait_for_replica();
    let left = store.peek(&charges("ann", LIMIT, 0)).await.unwrap().buckets[0].amount();
    sentinel.fail_over();
    assert!(until_it_spends(&store).await < Duration::from_secs(1));
    let after = store.peek(&charges("ann", LIMIT, 0)).await.unwrap().buckets[0].amount();
    assert!(after < left, "the replica had the bucket");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_is_replaced() {
    let mut sentinel = RedisSentinel::start();
    let store = RedisStore::builder(sentinel.url()).build().unwrap();
    until_it_spends(&store).await;
    let master = sentinel.master();
    sentinel.nodes()[master].kill();
    sentinel.wait_for_switch(master);
    assert!(until_it_spends(&store).await < Duration::from_secs(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_failover_is_followed() {
    let cluster = RedisCluster::start();
    let store = RedisStore::builder(cluster.url()).build().unwrap();
    until_it_spends(&store).await;
    let slot = cluster.slot_of("spile:{ann}:limit");
    for how in [Takeover::Graceful, Takeover::Force, Takeover::Alone] {
        cluster.fail_over(slot, how);
        assert!(until_it_spends(&store).await < Duration::from_secs(1), "{how:?}");
        cluster.wait_until_whole();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_cluster_node_is_replaced() {
    let mut cluster = RedisCluster::start();
    let store = RedisStore::builder(cluster.url()).build().unwrap();
    until_it_spends(&store).await;
    let slot = cluster.slot_of("spile:{ann}:limit");
    let (master, replica) = (cluster.master_of(slot), cluster.replica_of(slot));
    cluster.node_mut(master).kill();
    cluster.wait_for_master(slot, replica);
    assert!(until_it_spends(&store).await < Duration::from_secs(1));
}

/// A slot that is on its way, with part of its keys moved: `MOVED`, `ASK` and `TRYAGAIN` are all followed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_is_being_moved_loses_no_decision_and_charges_none_twice() {
    let cluster = RedisCluster::start();
    let store = patient(&cluster.url()).prefix("spile").build().unwrap();
    let chain = Charges::new([charge("ann", "a", LIMIT, 1), charge("ann", "b", LIMIT, 1)]).unwrap();
    assert!(store.spend(&chain).await.unwrap().allowed);
    let slot = cluster.slot_of("spile:{ann}:a");
    let (from, to) = (cluster.master_of(slot), (cluster.master_of(slot) + 1) % 3);
    let ids: Vec<String> =
        cluster.nodes().iter().map(|node| node.command(&["CLUSTER", "MYID"]).text().to_owned()).collect();
    let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[to]);
    let number = slot.to_string();
    target.command(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &ids[from]]);
    source.command(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &ids[to]]);
    let fresh = charges("{ann", LIMIT, 1);
    assert!(store.spend(&fresh).await.unwrap().allowed, "another slot is not disturbed");

    let port = target.port().to_string();
    let migrate = |key: &str| source.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
    migrate("spile:{ann}:a");
    let torn = {
        let (store, chain) = (store.clone(), Charges::new(chain.iter().cloned()).unwrap());
        tokio::spawn(async move { store.spend(&chain).await })
    };
    let alone: Charges<'_> = charge("ann", "a", LIMIT, 1).into();
    assert!(store.spend(&alone).await.unwrap().allowed, "the key that has moved is followed");
    migrate("spile:{ann}:b");
    assert!(torn.await.unwrap().unwrap().allowed, "the torn chain waits until it is whole again");

    for node in [target, source] {
        node.command(&["CLUSTER", "SETSLOT", &number, "NODE", &ids[to]]);
    }
    assert!(store.spend(&chain).await.unwrap().allowed);
    let stands = store.peek(&chain).await.unwrap();
    let left: Vec<u64> = stands.buckets.iter().map(|bucket| bucket.amount().whole_tokens()).collect();
    assert_eq!(left, [996, 997]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_over_several_slots_gives_back_what_it_took_when_a_later_slot_denies() {
    let cluster = shared_cluster();
    let store = patient(&cluster.url()).build().unwrap();
    let names = ["ann", "bob", "eve", "joe", "kim"];
    for scarce in names {
        store.reset(&Charges::new(names.map(|name| charge(name, "wide", LIMIT, 0))).unwrap()).await.unwrap();
        let line = |name: &'static str| {
            if name == scarce { charge(name, "narrow", "1, 1/h", 1) } else { charge(name, "wide", LIMIT, 1) }
        };
        let chain = Charges::new(names.map(line)).unwrap();
        assert!(store.spend(&chain).await.unwrap().allowed);
        let denied = store.spend(&chain).await.unwrap();
        assert!(!denied.allowed);
        let expected = names.map(|name| if name == scarce { 0 } else { 999 });
        let left: Vec<u64> = denied.buckets.iter().map(|bucket| bucket.amount().whole_tokens()).collect();
        assert_eq!(left, expected, "scarce: {scarce}");
        let stands = store.peek(&chain).await.unwrap();
        let stand: Vec<u64> = stands.buckets.iter().map(|bucket| bucket.amount().whole_tokens()).collect();
        assert_eq!(stand, left, "and that is how they stand");
        let wide = Charges::new(names.map(|name| charge(name, "wide", LIMIT, 5))).unwrap();
        assert_eq!(store.spend_up_to(&wide).await.unwrap().granted, 5);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_for_which_buckets_in_several_slots_are_kept_is_reported() {
    let cluster = shared_cluster();
    let store = patient(&cluster.url()).build().unwrap();
    let quota = Limit::quota(1).per_month().build().unwrap();
    let quota = NamedLimit::new(LimitName::new("month").unwrap(), quota);
    let quota = Charge::new(Key::new("joe").unwrap(), quota, Cost::ONE).unwrap();
    let chain = [charge("ann", "limit", "1, 1/h", 1), charge("bob", "limit", "1, 1/h", 1), quota];
    let spent = Charges::new([chain[0].clone(), chain[2].clone()]).unwrap();
    assert!(store.spend(&spent).await.unwrap().allowed);
    let kept = store.kept(&Charges::new(chain).unwrap()).await.unwrap();
    let [Kept::For(rate), Kept::Absent, Kept::For(quota)] = kept[..] else { panic!("{kept:?}") };
    assert!(rate > Duration::from_secs(3_600) && quota > Duration::from_secs(28 * 86_400), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_when_the_store_is_built_is_found_when_it_comes_up() {
    let mut cluster = RedisCluster::start();
    for index in 0..6 {
        cluster.node_mut(index).kill();
    }
    let store = RedisStore::builder(cluster.url()).build().unwrap();
    assert!(!spends(&store).await);
    for index in 0..6 {
        cluster.node_mut(index).restart();
    }
    cluster.wait_until_whole();
    assert!(until_it_spends(&store).await < Duration::from_secs(1));
}
