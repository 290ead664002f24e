//! The usual ways to keep limits in Redis: a call per request on a connection of its own, a call per request over one
//! shared connection, and two libraries.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Client, Script};
use spile_testkit::redis::RedisServer;
use tokio::sync::Mutex;
use trypema::redis::{RedisKey, RedisRateLimiterProvider};
use trypema::{RateLimit, RateLimiterBuilder};

use crate::load::{Cost, Load};

fn plain() -> Arc<Script> {
    Arc::new(Script::new(include_str!("plain.lua")))
}

async fn connection(server: &RedisServer) -> MultiplexedConnection {
    let client = Client::open(server.url()).expect("a URL");
    client.get_multiplexed_async_connection().await.expect("Redis is up")
}

async fn ask(script: &Script, connection: &mut MultiplexedConnection, key: String) {
    // Ten thousand tokens at fifty a second, as on our side.
    let mut call = script.key(key);
    call.arg(10_000_000_000_u64).arg(50).arg(1_000_000).arg(400_000);
    let (_allowed, _left): (u8, u64) = call.invoke_async(connection).await.expect("Redis answers");
}

/// (a): every caller has a connection of its own, as from a pool that is large enough.
pub(crate) async fn pooled(server: &RedisServer, load: Load) -> Cost {
    let mut pool = Vec::new();
    for _ in 0..load.callers {
        pool.push(Mutex::new(connection(server).await));
    }
    let (pool, script) = (Arc::new(pool), plain());
    load.run(server, move |caller, key| {
        let (pool, script) = (Arc::clone(&pool), Arc::clone(&script));
        async move { ask(&script, &mut *pool[caller].lock().await, key).await }
    })
    .await
}

/// (b): all callers share one pipelined connection.
pub(crate) async fn multiplexed(server: &RedisServer, load: Load) -> Cost {
    let (connection, script) = (connection(server).await, plain());
    load.run(server, move |_, key| {
        let (mut connection, script) = (connection.clone(), Arc::clone(&script));
        async move { ask(&script, &mut connection, key).await }
    })
    .await
}

/// The crate `trypema`, its deterministic strategy on Redis.
pub(crate) async fn trypema(server: &RedisServer, load: Load) -> Cost {
    let client = Client::open(server.url()).expect("a URL");
    let manager = client.get_connection_manager().await.expect("Redis is up");
    let provider =
        RedisRateLimiterProvider::builder(manager).disable_cleanup().build().expect("sound settings");
    load.run(server, move |_, key| {
        let provider = Arc::clone(&provider);
        async move {
            let rate = RateLimit::per_second(10_000.0).expect("a rate");
            let key = RedisKey::try_from(key.replace(':', "-")).expect("a key");
            provider.absolute().inc(&key, &rate, 1).await.expect("Redis answers");
        }
    })
    .await
}

/// The npm package `rate-limiter-flexible` over `ioredis`. `None` without `npm install` in `bench/redis`.
pub(crate) fn rate_limiter_flexible(server: &RedisServer, load: Load) -> Option<Cost> {
    program(server, load, "node_modules", &["node", "load.js"])
}

/// The Java library `bucket4j` over Lettuce. `None` without `mvn dependency:copy-dependencies` in `bench/redis`.
pub(crate) fn bucket4j(server: &RedisServer, load: Load) -> Option<Cost> {
    program(server, load, "target/dependency", &["java", "-cp", "target/dependency/*", "Bucket4j.java"])
}

/// A program in `bench/redis` that runs the load in a separate process, if the libraries that it needs are installed there.
fn program(server: &RedisServer, load: Load, libraries: &str, command: &[&str]) -> Option<Cost> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("redis");
    if !folder.join(libraries).exists() {
        return None;
    }
    let cpu = server.cpu_seconds();
    let (port, callers) = (server.url().rsplit(':').next()?.to_owned(), load.callers.to_string());
    let arguments = [port, callers, load.decisions.to_string(), load.keys.to_string()];
    let output =
        Command::new(command[0]).args(&command[1..]).args(arguments).current_dir(folder).output().ok()?;
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).ok()?;
    let mut figures = text.split_whitespace().filter_map(|figure| figure.parse::<f64>().ok());
    let (rate, latency_us) = (figures.next()?, figures.next()?);
    Some(Cost { cpu_us: (server.cpu_seconds() - cpu) * 1e6 / load.decisions as f64, rate, latency_us })
}
