//! The service under more load than its Redis decides at once, with the timeout that ships. In a binary of its own, for
//! these tests are about time: no other test runs beside them.

#[path = "../service/support/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "this binary uses a part of it")]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use spile_core::{Clock, SystemClock};
use spile_server::{Config, StoreUrl};
use spile_testkit::redis::RedisServer;
use support::Spile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

static ALONE: Mutex<()> = Mutex::const_new(());

const PLANS: &str = r#"
[listen]
resp = "127.0.0.1:0"
[plans.scarce]
capacity = 5
refill = "5/h"
[plans.eight]
limits = [
  { name = "l0", capacity = 1000, refill = "1000/s" }, { name = "l1", capacity = 1000, refill = "1000/s" },
  { name = "l2", capacity = 1000, refill = "1000/s" }, { name = "l3", capacity = 1000, refill = "1000/s" },
  { name = "l4", capacity = 1000, refill = "1000/s" }, { name = "l5", capacity = 1000, refill = "1000/s" },
  { name = "l6", capacity = 1000, refill = "1000/s" }, { name = "l7", capacity = 1000, refill = "1000/s" },
]
"#;

async fn start(redis: &RedisServer) -> Arc<Spile> {
    let mut config = Config::parse(Path::new("spile.toml"), PLANS.to_owned(), []).expect("it works");
    config.store.url = StoreUrl::Redis(redis.url());
    assert_eq!(config.store.timeout, Duration::from_millis(50), "what ships is what is tested");
    let spile = Spile::start_with(config).await;
    while spile.check(bystander()).await.json()["reason"] != "limited" {}
    Arc::new(spile)
}

fn bystander() -> Value {
    json!({"identity": "bystander", "plans": ["scarce"]})
}

/// Why decisions were made without the store.
async fn without_the_store(spile: &Spile) -> String {
    let metrics = spile.admin("/metrics").await.text;
    let counts = metrics.lines().filter(|line| line.starts_with("ratelimit_failopen_total"));
    counts.filter(|line| !line.ends_with(" 0")).collect::<Vec<_>>().join(", ")
}

/// Asks as somebody whose bucket is empty until `done`, and says how often and how often it was let in.
async fn stand_by(spile: &Spile, mut done: tokio::sync::watch::Receiver<bool>) -> (u32, u32) {
    let (mut asked, mut let_in) = (0, 0);
    while !*done.borrow_and_update() {
        let answer = spile.check(bystander()).await.json();
        asked += 1;
        let_in += u32::from(answer["allowed"] == true);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (asked, let_in)
}

/// How often the load is tried. Clients and server share this process and are not optimized: a machine that stalls for 50 ms
/// makes decisions time out, whatever the server does.
const ATTEMPTS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_batches_at_once_are_answered_from_the_store_and_let_no_drained_caller_in() {
    let _alone = ALONE.lock().await;
    let mut failures = Vec::new();
    for _ in 0..ATTEMPTS {
        match six_batches().await {
            Ok(()) => return,
            Err(why) => failures.push(why),
        }
    }
    panic!("in each of {ATTEMPTS} attempts: {failures:?}");
}

/// Six batches of 1,000 questions at once, beside a caller whose bucket is empty.
async fn six_batches() -> Result<(), String> {
    let redis = RedisServer::start();
    let spile = start(&redis).await;
    let (finish, done) = tokio::sync::watch::channel(false);
    let bystander = tokio::spawn({
        let spile = Arc::clone(&spile);
        async move { stand_by(&spile, done).await }
    });
    let batch = |number: usize| {
        let spile = Arc::clone(&spile);
        tokio::spawn(async move {
            let question = |n: usize| json!({"identity": format!("{number} {n}"), "plans": ["eight"]});
            let answer = spile.batch((0..1_000).map(question).collect()).await;
            let answers = answer.json();
            let answers = answers.as_array().expect("a list");
            assert_eq!(answers.len(), 1_000);
            answers.iter().filter(|answer| answer["reason"] != "ok").count()
        })
    };
    let mut without = 0;
    for batch in (0..6).map(batch).collect::<Vec<_>>() {
        without += batch.await.expect("it is answered");
    }
    finish.send_replace(true);
    let (asked, let_in) = bystander.await.expect("it is answered");
    assert!(asked > 5, "it asked {asked} times");
    match (without, let_in) {
        (0, 0) => Ok(()),
        _ => Err(format!(
            "{without} decided by {}; {let_in} of {asked} let in",
            without_the_store(&spile).await
        )),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelines_are_answered_from_the_store() {
    let _alone = ALONE.lock().await;
    let redis = RedisServer::start();
    let spile = start(&redis).await;
    let pipeline = |number: usize| {
        let address = spile.resp.expect("it listens");
        tokio::spawn(async move {
            let mut connection = TcpStream::connect(address).await.expect("it listens");
            let commands: Vec<String> =
                (0..1_000).map(|n| format!("CL.THROTTLE k{number}-{n} 9 10 60\r\n")).collect();
            connection.write_all(commands.concat().as_bytes()).await.expect("it reads");
            let mut answers = Vec::new();
            while answers.windows(2).filter(|end| end == b"\r\n").count() < 6_000 {
                assert!(connection.read_buf(&mut answers).await.expect("it answers") > 0);
            }
            // What the policy lets in has all its tokens left.
            String::from_utf8_lossy(&answers).matches(":0\r\n:10\r\n:10\r\n").count()
        })
    };
    for pipeline in (0..12).map(pipeline).collect::<Vec<_>>() {
        assert_eq!(pipeline.await.expect("it is answered"), 0, "decided {}", without_the_store(&spile).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_decision_after_a_start_keeps_the_deadline_of_a_store_that_never_answers() {
    let _alone = ALONE.lock().await;
    let mute = TcpListener::bind("127.0.0.1:0").await.expect("port 0 is always free");
    let address = mute.local_addr().expect("it is bound");
    for scheme in ["redis://{}", "redis-sentinel://{}/mymaster", "redis-cluster://{}"] {
        let mut config = Config::default();
        config.store.url = StoreUrl::Redis(scheme.replace("{}", &address.to_string()));
        let clock = SystemClock::new();
        let started = clock.now();
        let spile = Spile::start_with(config).await;
        let answer = spile.check(json!({"ruleId": "default", "identity": "ann"})).await;
        let took = Duration::from_micros(clock.now().since_us(started));
        answer.is(200).says("/reason", "fail_open");
        assert!(took < Duration::from_millis(50 + 50), "{scheme}: {took:?} since the start");
    }
}
