//! Allowed and denied per minute, summed over all instances.

use rustix::process::Signal;
use serde_json::{Value, json};
use spile_core::SystemClock;
use spile_testkit::redis::RedisServer;

use super::{Instance, LONG, becomes};

/// A rule of the caller's own, of which five pass for each instance's own identity.
async fn ask(instance: &Instance, rule: &str, identity: &str, times: usize) {
    let question = json!({"ruleId": rule, "identity": identity, "capacity": 5, "refillPerSecond": 0.001});
    for _ in 0..times {
        instance.check(question.clone()).await;
    }
}

/// What an instance says that a rule has allowed and denied, over all minutes.
async fn tally(instance: &Instance, rule: &str, scope: &str) -> Option<(u64, u64)> {
    let answer = instance.get(&format!("analytics?by=rule&name={rule}&scope={scope}")).await;
    if answer.status != 200 {
        return None;
    }
    let rows = answer.json();
    let sum = |field: &str| rows.as_array().expect("rows").iter().filter_map(|row| row[field].as_u64()).sum();
    Some((sum("allowed"), sum("denied")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_instance_shows_the_sum_of_all_also_of_those_that_are_gone() {
    let redis = RedisServer::start();
    let mut all: Vec<Instance> = (0..3).map(|_| Instance::start(&redis.url())).collect();
    all[0].put("tenants/acme", json!({"plan": "free"})).await.is(201);
    for (index, instance) in all.iter().enumerate() {
        ask(instance, "exports", &format!("caller {index}"), 7 + index).await;
    }
    for instance in &all {
        let summed = becomes("the sum is whole", LONG, async || {
            tally(instance, "exports", "all").await == Some((15, 9))
        });
        println!("summed over three instances within {:?}", summed.await);
    }
    let alone =
        becomes("one's own", LONG, async || tally(&all[2], "exports", "instance").await == Some((5, 4)));
    alone.await;
    let csv = all[1].get("analytics.csv?by=rule&name=exports").await.is(200).text;
    let counts = csv.lines().skip(1).map(|line| line.split(',').nth(4).expect("a column"));
    assert_eq!(counts.map(|count| count.parse::<u64>().expect("a count")).sum::<u64>(), 9, "{csv}");
    let day = all[2].dashboard("day").await.is(200).says("/scope", "all").json();
    let row = day["rows"].as_array().expect("rows").iter().find(|row| row["name"] == "exports");
    assert_eq!(row.map(|row| row["allowed"].clone()), Some(json!(15)), "{day}");

    // What was counted last comes along when an instance ends.
    let leaver = all.remove(0);
    ask(&leaver, "exports", "caller 0", 6).await;
    leaver.process.end_by(Signal::TERM);
    assert_eq!(tally(&all[0], "exports", "all").await, Some((15, 15)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_redis_is_away_counts_are_kept_and_then_brought_once() {
    let mut redis = RedisServer::builder().line("appendonly yes").line("appendfsync always").start();
    let all = [Instance::start(&redis.url()), Instance::start(&redis.url())];
    for instance in &all {
        ask(instance, "exports", "somebody", 10).await;
    }
    becomes("it is summed", LONG, async || tally(&all[0], "exports", "all").await == Some((5, 15))).await;
    redis.kill();
    let refused = becomes("it says so", LONG, async || tally(&all[0], "exports", "all").await.is_none());
    refused.await;
    let answer = all[0].get("analytics").await.is(503).carries("content-type", "application/problem+json");
    assert!(answer.text.contains("scope=instance"), "{}", answer.text);
    all[0].dashboard("day").await.is(200).says("/scope", "instance");
    for instance in &all {
        // The policy lets them pass, and that is counted.
        ask(instance, "exports", "somebody", 20).await;
    }
    redis.launch_again();
    for instance in &all {
        becomes("all of it is there", LONG, async || {
            tally(instance, "exports", "all").await == Some((45, 15))
        })
        .await;
    }
    // Two more rounds of bringing change nothing.
    ask(&all[0], "later", "somebody", 1).await;
    becomes("a later count is there", LONG, async || tally(&all[1], "later", "all").await == Some((1, 0)))
        .await;
    assert_eq!(tally(&all[0], "exports", "all").await, Some((45, 15)));
    let trouble = all[0].get("store").await.is(200).json()["trouble"].clone();
    assert_eq!(trouble, Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_minutes_of_many_decisions_come_in_few_calls() {
    let redis = RedisServer::start();
    let instance = Instance::start(&redis.url());
    ask(&instance, "exports", "somebody", 500).await;
    becomes("it is summed", LONG, async || tally(&instance, "exports", "all").await == Some((5, 495))).await;
    let brought = super::calls(&redis, "hincrby");
    println!("500 decisions, {brought} increments");
    assert!(brought <= 60, "{brought}");
}

/// Puts minutes of a thousand tenants where instances meet: the last `count` of them.
fn write_minutes(redis: &RedisServer, count: u64) {
    let now = SystemClock::wall_now().get() / 60_000_000 * 60;
    let fields: Vec<String> = (0..1_000).map(|tenant| format!("t:a:tenant-{tenant:06}")).collect();
    for minute in 0..count {
        let key = format!("spile:{{:minutes}}:{}", now - 60 * minute);
        let words = fields.iter().flat_map(|field| [field.as_str(), "1234"]);
        redis.command(&["HSET", &key, "v", "1"].into_iter().chain(words).collect::<Vec<_>>());
    }
}

fn memory_kb(instance: &Instance, which: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", instance.process.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(which)).expect("it has memory");
    line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_of_a_thousand_tenants_is_shown_and_exported_in_little_memory() {
    let redis = RedisServer::start();
    let instance = Instance::start(&redis.url());
    // Asked once before, so that what only the first request needs is not counted.
    instance.dashboard("day").await.is(200);
    write_minutes(&redis, 480);
    let before = memory_kb(&instance, "VmRSS");
    let sum = async || {
        let day = instance.dashboard("day").await.is(200).says("/scope", "all").json();
        let rows = day["rows"].as_array().expect("rows").iter().filter(|row| row["by"] == "tenant");
        rows.filter_map(|row| row["allowed"].as_u64()).sum::<u64>()
    };
    becomes("all of it is shown", LONG, async || sum().await >= 470 * 1_000 * 1_234).await;
    let shown = memory_kb(&instance, "VmHWM").saturating_sub(before);
    println!("the day took {shown} kB more at its peak");
    let read = super::calls(&redis, "hgetall");
    let asked = [instance.dashboard("day"), instance.dashboard("day"), instance.dashboard("day")];
    for answer in futures_util::future::join_all(asked).await {
        answer.is(200);
    }
    assert!(super::calls(&redis, "hgetall") <= read + 5, "what is known is not read again");
    assert!(shown < 20_000, "{shown} kB");
    let csv = instance.get("analytics.csv").await.is(200).text;
    assert!(csv.lines().count() > 470_000, "{}", csv.lines().count());
    let exported = memory_kb(&instance, "VmHWM").saturating_sub(before);
    println!("the export took {exported} kB more at its peak");
    assert!(exported < 60_000, "{exported} kB");
}
