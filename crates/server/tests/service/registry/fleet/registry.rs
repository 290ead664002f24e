//! Plans, rules and tenants that are changed through one instance.

use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};
use spile_testkit::redis::{Flavour, RedisCluster, RedisSentinel, RedisServer};

use super::{Instance, LONG, SOON, becomes, calls};
use crate::support::Process;

fn plan(capacity: u64) -> Value {
    json!({"capacity": capacity, "refill": "1/s"})
}

fn three(store: &str) -> Vec<Instance> {
    (0..3).map(|_| Instance::start(store)).collect()
}

/// Waits until each instance says so, and prints when the last one did.
async fn everywhere(instances: &[Instance], what: &str, so: impl AsyncFn(&Instance) -> bool) -> Duration {
    let mut last = Duration::ZERO;
    for instance in instances {
        last = last.max(becomes(what, SOON, async || so(instance).await).await);
    }
    println!("{what}: on {} instances within {last:?}", instances.len());
    last
}

async fn limit_everywhere(instances: &[Instance], tenant: &str, limit: u64) {
    let what = format!("tenant {tenant} has {limit}");
    everywhere(instances, &what, async |instance| instance.limit_of(tenant).await == Some(limit)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_created_changed_and_deleted_at_one_is_so_at_all_within_a_second() {
    let redis = RedisServer::start();
    let all = three(&redis.url());
    all[0].put("plans/gold", plan(50)).await.is(201).says("/source", "registry");
    all[0].put("tenants/acme", json!({"plan": "gold"})).await.is(201);
    limit_everywhere(&all, "acme", 50).await;
    all[1].put("plans/gold", plan(60)).await.is(200);
    limit_everywhere(&all, "acme", 60).await;
    all[2].put("rules/exports", json!({"plans": ["gold"], "key": ["ip"]})).await.is(201);
    let by_rule = async |instance: &Instance| instance.limit_under("exports", "1.2.3.4").await;
    everywhere(&all, "the rule is there", async |one| by_rule(one).await == Some(60)).await;
    let made = all[0].post("tenants/acme/keys").await.is(201).json();
    let api_key = made["apiKey"].as_str().expect("the key is shown").to_owned();
    everywhere(&all, "the API key is known", async |one| {
        one.ping(&api_key).await.header("x-ratelimit-limit") == Some("60")
    })
    .await;
    all[1].delete("rules/exports").await.is(204);
    everywhere(&all, "the rule is gone", async |one| by_rule(one).await.is_none()).await;
    all[2].delete("tenants/acme").await.is(204);
    limit_everywhere(&all, "acme", 10).await;
    all[0].delete("plans/gold").await.is(204);
    everywhere(&all, "the plan is gone", async |one| one.get("plans/gold").await.status == 404).await;
    all[0].process.until_logged("spile::audit");
    all[0].process.until_logged("name=\"gold\"");
    everywhere(&all, "the version is shown", async |one| {
        one.metrics().await.contains("ratelimit_registry_version 8")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registry_survives_the_restart_of_every_instance_and_holds_from_the_first_request_on() {
    let redis = RedisServer::start();
    let all = three(&redis.url());
    all[0].put("plans/gold", plan(50)).await.is(201);
    all[1].put("tenants/acme", json!({"plan": "gold"})).await.is(201);
    for instance in all {
        instance.process.end_by(Signal::TERM);
    }
    for instance in three(&redis.url()) {
        assert_eq!(instance.limit_of("acme").await, Some(50));
        instance.get("tenants/acme").await.is(200).says("/source", "registry");
        instance.get("store").await.is(200).says("/registry/version", 2).says("/registry/kept", "redis");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_put_at_one_can_be_built_on_at_another_at_once() {
    let redis = RedisServer::start();
    let all = three(&redis.url());
    for round in 0..20 {
        let (writer, next) = (&all[round % 3], &all[(round + 1) % 3]);
        writer.put(&format!("plans/p{round}"), plan(50)).await.is(201);
        next.put(&format!("tenants/t{round}"), json!({"plan": format!("p{round}")})).await.is(201);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_writers_at_several_instances_who_read_the_same_one_wins_and_the_others_are_told() {
    let redis = RedisServer::start();
    let all = three(&redis.url());
    all[0].put("plans/gold", plan(1)).await.is(201);
    for round in 1..=10 {
        everywhere(&all, "all are in step", async |one| {
            one.get("store").await.json().pointer("/registry/version") == Some(&json!(round))
        })
        .await;
        let tag = all[0].get("plans/gold").await.is(200).header("etag").expect("a tag").to_owned();
        let writes = (0_u64..).zip(&all).map(|(index, instance)| {
            let document = plan(100 * round + index + 1);
            let tag = tag.clone();
            async move { instance.put_if("plans/gold", document, &[("if-match", &tag)]).await }
        });
        let answers = join_all(writes).await;
        let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412, 412], "round {round}: {answers:#?}");
        let winner = answers.iter().find(|answer| answer.status == 200).expect("one of them");
        let won = winner.json()["capacity"].clone();
        everywhere(&all, "the winner's plan holds", async |one| {
            one.get("plans/gold").await.json()["capacity"] == won
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_are_made_at_once_through_several_instances_are_all_kept() {
    let redis = RedisServer::start();
    let all = three(&redis.url());
    all[0].put("tenants/acme", json!({"plan": "free"})).await.is(201);
    let writes = (0..30).map(|index| {
        let instance = &all[index % 3];
        async move {
            if index % 2 == 0 {
                instance.put(&format!("tenants/t{index}"), json!({"plan": "pro"})).await.is(201);
            } else {
                // Each adds a key to what it finds.
                instance.post("tenants/acme/keys").await.is(201);
            }
        }
    });
    join_all(writes).await;
    everywhere(&all, "all changes are there", async |one| {
        let acme = one.get("tenants/acme").await.json();
        let tenants = one.get("tenants").await.json();
        acme["apiKeyCount"] == 15 && tenants["tenants"].as_array().is_some_and(|list| list.len() == 16)
    })
    .await;
}

/// A plan is deleted through one instance while another gives it to a tenant: one of both must be refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_never_goes_while_another_instance_puts_it_to_use() {
    let redis = RedisServer::start();
    let all = three(&redis.url());
    for round in 0..10 {
        let (plan_path, tenant_path) = (format!("plans/p{round}"), format!("tenants/t{round}"));
        all[2].put(&plan_path, plan(50)).await.is(201);
        everywhere(&all, "the plan is there", async |one| one.get(&plan_path).await.status == 200).await;
        let tenant = json!({"plan": format!("p{round}")});
        let (deleted, used) = tokio::join!(all[0].delete(&plan_path), all[1].put(&tenant_path, tenant));
        let outcome = (deleted.status.as_u16(), used.status.as_u16());
        assert!(matches!(outcome, (204, 422) | (409, 201)), "{outcome:?}: {deleted:#?} {used:#?}");
    }
    for instance in &all {
        instance.get("store").await.is(200).says("/registry/trouble", Value::Null);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_redis_is_gone_what_runs_stays_and_writes_are_refused_and_then_all_goes_on() {
    let mut redis = RedisServer::builder().line("appendonly yes").line("appendfsync always").start();
    let all = three(&redis.url());
    all[0].put("plans/gold", plan(50)).await.is(201);
    all[0].put("tenants/acme", json!({"plan": "gold"})).await.is(201);
    limit_everywhere(&all, "acme", 50).await;
    redis.kill();
    let refused = all[1].put("plans/gold", plan(60)).await.is(503).carries("retry-after", "1");
    assert!(
        refused.text.contains("out of reach") || refused.text.contains("may or may not"),
        "{}",
        refused.text
    );
    refused.carries("content-type", "application/problem+json");
    for instance in &all {
        instance.get("plans/gold").await.is(200).says("/capacity", 50);
        instance.process.until_logged("what runs stays until it is back");
    }
    redis.launch_again();
    let back = becomes("writes are taken again", LONG, async || {
        all[1].put("plans/gold", plan(70)).await.status == 200
    })
    .await;
    println!("writes are taken again {back:?} after Redis was started");
    limit_everywhere(&all, "acme", 70).await;
    for instance in &all {
        instance.get("store").await.is(200).says("/registry/trouble", Value::Null);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_comes_back_empty_gets_its_registry_back() {
    let mut redis = RedisServer::start();
    let all = three(&redis.url());
    all[0].put("plans/gold", plan(50)).await.is(201);
    all[0].put("tenants/acme", json!({"plan": "gold"})).await.is(201);
    limit_everywhere(&all, "acme", 50).await;
    redis.kill();
    redis.restart();
    becomes("it is put back", LONG, async || {
        redis.command(&["HLEN", "spile:{:registry}:entries"]).int() == 2
    })
    .await;
    becomes("it can be changed", LONG, async || all[2].put("plans/gold", plan(80)).await.status == 200).await;
    limit_everywhere(&all, "acme", 80).await;
    let newcomer = Instance::start(&redis.url());
    assert_eq!(newcomer.limit_of("acme").await, Some(80));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_starts_without_redis_says_so_and_catches_up_when_it_comes() {
    let mut redis = RedisServer::builder().line("appendonly yes").line("appendfsync always").start();
    let first = Instance::start(&redis.url());
    first.put("plans/gold", plan(50)).await.is(201);
    first.put("tenants/acme", json!({"plan": "gold"})).await.is(201);
    drop(first);
    redis.kill();
    let instance = Instance::start(&redis.url());
    instance.get("plans").await.is(200).says("/plans/0/source", "file");
    instance.get("tenants/acme").await.is(404);
    instance.process.until_logged("what the file says stays until it is back");
    redis.launch_again();
    becomes("it has the registry", LONG, async || instance.limit_of("acme").await == Some(50)).await;
}

/// The user may neither publish nor subscribe, so every message is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_every_message_lost_a_change_is_still_everywhere_within_a_second() {
    let redis = RedisServer::builder()
        .line("user deaf on >secret resetchannels ~* +@all -subscribe -publish")
        .start();
    let store = format!("redis://deaf:secret@{}", redis.address());
    let all = three(&store);
    all[0].put("plans/gold", plan(50)).await.is(201);
    all[0].put("tenants/acme", json!({"plan": "gold"})).await.is(201);
    limit_everywhere(&all, "acme", 50).await;
    all[1].process.until_logged("only found by looking");
    assert_eq!(redis.command(&["PUBSUB", "CHANNELS"]).list().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_no_longer_works_is_quarantined_said_and_can_be_put_right_while_what_ran_stays() {
    let redis = RedisServer::start();
    let all = three(&redis.url());
    all[0].put("plans/gold", plan(50)).await.is(201);
    all[0].put("tenants/acme", json!({"plan": "gold"})).await.is(201);
    limit_everywhere(&all, "acme", 50).await;
    let (entries, history) = ("spile:{:registry}:entries", "spile:{:registry}:history");
    for (version, document, reason) in
        [("3", "{", "plans/gold is no JSON"), ("5", r#"{"capacity":0,"refill":"1/s"}"#, "1 to 1000000000")]
    {
        redis.command(&["HSET", entries, "plans/gold", document]);
        redis.command(&["ZADD", history, version, &format!("stamp{version} plans/gold")]);
        for instance in &all {
            becomes("it is said", LONG, async || {
                let store = instance.get("store").await.json();
                store["registry"]["trouble"].as_str().is_some_and(|why| why.contains(reason))
            })
            .await;
            instance.process.until_logged(reason);
            assert_eq!(instance.limit_of("acme").await, Some(50), "what runs stays");
        }
        assert!(all[0].metrics().await.contains("ratelimit_config_reloads_total{result=\"refused\"}"));
        // Everything else can be changed, and reaches the others.
        let other = format!("tenants/other{version}");
        all[1].put(&other, json!({"plan": "pro"})).await.is(201);
        limit_everywhere(&all, &format!("other{version}"), 100).await;
    }
    all[1].put("plans/gold", plan(60)).await.is(200);
    limit_everywhere(&all, "acme", 60).await;
    for instance in &all {
        becomes("all is well", LONG, async || {
            instance.get("store").await.json()["registry"]["trouble"].is_null()
        })
        .await;
    }
}

/// A file of an instance, with these plans beside the built-in ones.
fn file(folder: &std::path::Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("the folder is ours");
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_whose_file_lacks_a_plan_has_everything_of_the_registry_but_what_names_it() {
    let (redis, folder) = (RedisServer::start(), tempfile::tempdir().expect("a folder"));
    let old = file(folder.path(), "old.toml", "[plans]\ngold = { capacity = 50, refill = \"1/s\" }\n");
    let new = file(folder.path(), "new.toml", "");
    let first = Instance::start_with(&redis.url(), &old);
    first.put("tenants/acme", json!({"plan": "gold"})).await.is(201);
    first.put("tenants/beta", json!({"plan": "pro"})).await.is(201);
    first.put("rules/exports", json!({"plans": ["pro"], "key": ["ip"]})).await.is(201);
    first.put("rules/login", json!({"plans": ["gold"], "key": ["ip"]})).await.is(201);

    let second = Instance::start_with(&redis.url(), &new);
    assert_eq!(second.limit_of("beta").await, Some(100));
    assert_eq!(second.limit_under("exports", "1.2.3.4").await, Some(100));
    second
        .get("store")
        .await
        .is(200)
        .says("/registry/version", 4)
        .says("/registry/quarantinedCount", 2)
        .says("/registry/quarantined/0/name", "login")
        .says("/registry/quarantined/1/name", "acme");
    let ready = second.readiness().await.is(200).text;
    assert!(ready.starts_with("ready\n") && ready.contains("2 entries are in quarantine"), "{ready}");
    assert!(!ready.contains("acme"), "no token is asked for here: {ready}");
    let metrics = second.metrics().await;
    assert!(metrics.contains("spile_registry_quarantined{kind=\"tenants\"} 1\n"), "{metrics}");
    second.process.until_logged("entry in quarantine");
    // Changes through either instance reach both, and the one that has the plan is not concerned.
    second.put("tenants/gamma", json!({"plan": "pro"})).await.is(201);
    limit_everywhere(&[first, second], "gamma", 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_comes_back_by_another_instance_brings_its_tenants_back() {
    let (redis, folder) = (RedisServer::start(), tempfile::tempdir().expect("a folder"));
    let old = file(folder.path(), "old.toml", "[plans]\ngold = { capacity = 50, refill = \"1/s\" }\n");
    let new = file(folder.path(), "new.toml", "");
    let (first, second) =
        (Instance::start_with(&redis.url(), &old), Instance::start_with(&redis.url(), &new));
    first.put("tenants/acme", json!({"plan": "gold"})).await.is(201);
    becomes("it is told", LONG, async || {
        second.get("store").await.json()["registry"]["quarantinedCount"] == 1
    })
    .await;
    first.put("plans/gold", plan(70)).await.is(200);
    becomes("it is back", LONG, async || second.limit_of("acme").await == Some(70)).await;
    second.get("store").await.is(200).says("/registry/quarantined", json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_cannot_read_the_registry_is_not_ready_until_it_can() {
    let redis = RedisServer::start();
    redis.command(&["SET", "spile:{:registry}:history", "x"]);
    let instance = Instance::start(&redis.url());
    let waiting = instance.readiness().await.is(503).text;
    assert!(waiting.contains("registry not read yet") && waiting.contains("WRONGTYPE"), "{waiting}");
    redis.command(&["DEL", "spile:{:registry}:history"]);
    becomes("it is ready", LONG, async || instance.readiness().await.status == 200).await;
    redis.command(&["SET", "spile:{:registry}:history", "x"]);
    instance.process.until_logged("refused, what runs stays");
    instance.readiness().await.is(200);
}

/// Deletes something of the registry by other hands, changes another thing at once, and looks what is left.
async fn survives(what: &str, deletion: &[&str]) {
    let redis = RedisServer::start();
    let pair = [Instance::start(&redis.url()), Instance::start(&redis.url())];
    pair[0].put("plans/gold", plan(50)).await.is(201);
    pair[0].put("rules/exports", json!({"plans": ["gold"], "key": ["ip"]})).await.is(201);
    pair[0].put("tenants/acme", json!({"plan": "gold"})).await.is(201);
    pair[0].put("tenants/beta", json!({"plan": "gold"})).await.is(201);
    limit_everywhere(&pair, "beta", 50).await;
    redis.command(deletion);
    pair[1].put("tenants/gamma", json!({"plan": "pro"})).await.is(201);
    becomes(what, LONG, async || {
        let documents = redis.command(&["HLEN", "spile:{:registry}:entries"]).int();
        let names = redis.command(&["ZCARD", "spile:{:registry}:order"]).int();
        (documents, names) == (5, 5)
    })
    .await;
    let newcomer = Instance::start(&redis.url());
    assert_eq!(newcomer.limit_of("acme").await, Some(50), "{what}");
    assert_eq!(newcomer.limit_under("exports", "1.2.3.4").await, Some(50), "{what}");
    for instance in &pair {
        becomes("all are in step", LONG, async || instance.limit_of("gamma").await == Some(100)).await;
        assert_eq!(instance.limit_of("beta").await, Some(50), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_that_are_deleted_in_redis_are_put_back_before_a_change_is_built_on_the_rest() {
    let (entries, order) = ("spile:{:registry}:entries", "spile:{:registry}:order");
    survives("all documents", &["DEL", entries]).await;
    survives("one document", &["HDEL", entries, "tenants/acme"]).await;
    survives("the order", &["DEL", order]).await;
    survives("a name in the order", &["ZREM", order, "plans/gold"]).await;
    survives("documents and order", &["DEL", entries, order]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_that_are_deleted_in_redis_come_back_without_a_change() {
    let redis = RedisServer::start();
    let instance = Instance::start(&redis.url());
    instance.put("plans/gold", plan(50)).await.is(201);
    instance.put("tenants/acme", json!({"plan": "gold"})).await.is(201);
    redis.command(&["HDEL", "spile:{:registry}:entries", "plans/gold"]);
    becomes("it is back", LONG, async || redis.command(&["HLEN", "spile:{:registry}:entries"]).int() == 2)
        .await;
    instance.process.until_logged("put back from memory");
    assert_eq!(instance.limit_of("acme").await, Some(50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_a_wrong_type_is_refused_and_what_runs_stays() {
    let redis = RedisServer::start();
    let instance = Instance::start(&redis.url());
    instance.put("plans/gold", plan(50)).await.is(201);
    redis.command(&["DEL", "spile:{:registry}:history"]);
    redis.command(&["SET", "spile:{:registry}:history", "x"]);
    instance.process.until_logged("WRONGTYPE");
    let refused = instance.put("plans/gold", plan(60)).await.is(503);
    assert!(refused.text.contains("WRONGTYPE"), "{}", refused.text);
    instance.get("plans/gold").await.is(200).says("/capacity", 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_ask_redis_for_nothing_but_decisions() {
    let redis = RedisServer::start();
    let instance = Instance::start(&redis.url());
    instance.put("plans/gold", plan(1_000_000)).await.is(201);
    instance.put("tenants/acme", json!({"plan": "gold"})).await.is(201);
    // What only the registry's scripts call.
    let commands = ["zrevrange", "zrangebyscore", "hget", "zscore", "zadd", "publish"];
    let registry = || commands.map(|command| calls(&redis, command)).iter().sum::<u64>();
    let before = registry();
    assert!(before > 0, "what is counted is what the registry calls");
    let decisions = 1_000;
    for _ in 0..decisions {
        instance.check(json!({"ruleId": "default", "identity": "tenant:acme"})).await.is(200);
    }
    let more = registry() - before;
    println!("{decisions} decisions, {more} commands of the registry");
    // Looking every half second is all there is: two commands each.
    assert!(more < decisions / 10, "{more}");
    assert!(calls(&redis, "hmget") >= 1, "the script decided");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_the_registry_through_a_failover() {
    let mut cluster = RedisCluster::start();
    let all = three(&cluster.url());
    all[0].put("plans/gold", plan(50)).await.is(201);
    all[1].put("tenants/acme", json!({"plan": "gold"})).await.is(201);
    limit_everywhere(&all, "acme", 50).await;
    cluster.wait_until_whole();
    let slot = cluster.slot_of("spile:{:registry}:entries");
    let (master, replica) = (cluster.master_of(slot), cluster.replica_of(slot));
    cluster.node_mut(master).kill();
    cluster.wait_for_master(slot, replica);
    becomes("writes are taken again", LONG, async || all[2].put("plans/gold", plan(70)).await.status == 200)
        .await;
    becomes("all follow", LONG, async || all[0].limit_of("acme").await == Some(70)).await;
    all[0].put("plans/gold", plan(80)).await.is(200);
    limit_everywhere(&all, "acme", 80).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_lead_to_the_registry_through_a_failover() {
    let sentinel = RedisSentinel::start();
    let all = three(&sentinel.url());
    all[0].put("plans/gold", plan(50)).await.is(201);
    all[1].put("tenants/acme", json!({"plan": "gold"})).await.is(201);
    limit_everywhere(&all, "acme", 50).await;
    sentinel.wait_for_replica();
    sentinel.fail_over();
    becomes("writes are taken again", LONG, async || all[2].put("plans/gold", plan(70)).await.status == 200)
        .await;
    becomes("all follow", LONG, async || all[0].limit_of("acme").await == Some(70)).await;
    all[0].put("plans/gold", plan(80)).await.is(200);
    limit_everywhere(&all, "acme", 80).await;
}

#[test]
fn a_registry_file_beside_a_redis_store_is_refused_and_both_are_named() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let path = folder.path().join("spile.toml");
    std::fs::write(&path, "[admin]\nregistry_file = \"registry\"\n").expect("the folder is ours");
    let path = path.display().to_string();
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let output = Process::run_with(arguments, variables);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        stderr
    };
    let ports = ["--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let store = "redis://127.0.0.1:1";
    let by_flag = run(&[&["serve", "--config", &path, "--store", store], &ports[..]].concat(), &[]);
    for words in ["admin.registry_file", "Redis", "store.url"] {
        assert!(by_flag.contains(words), "{words} in {by_flag}");
    }
    let checked = run(&["config", "check", &path], &[("SPILE_STORE__URL", store)]);
    for words in ["spile.toml:2", "`registry` is for the embedded store", store] {
        assert!(checked.contains(words), "{words} in {checked}");
    }
}

/// The guide's line for that user, and what it says to add for the service.
fn acl(user: &str) -> String {
    let guide = include_str!("../../../../../../docs/guide/redis.md");
    let line =
        |start: &str| guide.lines().find(|line| line.starts_with(start)).expect("the guide's ACL line");
    format!("{} {}", line(&format!("user {user} ")), line("&spile:{:registry} "))
}

async fn works_under_the_guides_user(store: &str) -> [Instance; 2] {
    let pair = [Instance::start(store), Instance::start(store)];
    pair[0].put("plans/gold", plan(50)).await.is(201);
    pair[1].put("tenants/acme", json!({"plan": "gold"})).await.is(201);
    limit_everywhere(&pair, "acme", 50).await;
    pair[0].delete("tenants/acme").await.is(204);
    limit_everywhere(&pair, "acme", 10).await;
    pair[1]
        .check(json!({"ruleId": "default", "identity": "somebody"}))
        .await
        .is(200)
        .says("/degraded", false);
    for instance in &pair {
        let log = instance.log();
        assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    }
    pair
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guides_acl_lines_are_enough_on_every_server() {
    for flavour in Flavour::ALL {
        let redis = RedisServer::builder().flavour(flavour).line(acl("spile")).start();
        let store = format!("redis://spile:CHANGE-ME@{}", redis.address());
        let _running = works_under_the_guides_user(&store).await;
        let listening = redis.command(&["PUBSUB", "NUMSUB", "spile:{:registry}"]);
        assert_eq!(listening.list()[1].int(), 2, "{flavour:?}");
        assert_eq!(calls(&redis, "publish"), 3, "{flavour:?}: each change was told");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guides_acl_lines_are_enough_on_a_cluster() {
    let cluster = RedisCluster::start_with(&[&acl("spile-cluster")]);
    works_under_the_guides_user(&cluster.url().replace("://", "://spile-cluster:CHANGE-ME@")).await;
}
