//! A gateway that limits everybody by API key or address and forwards to one upstream, on one single-threaded runtime
//! per worker. What `bench/gateway/run` measures.
//!
//! Usage: `limited_proxy LISTEN UPSTREAM WORKERS [REDIS-URL]`

use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use spile_core::{FailurePolicy, Limit, Plan, Store};
use spile_gateway::{Gateway, Route};
use spile_limiter::RateLimiter;
use spile_memory::MemoryStore;
use spile_policy::{ApiKeyHash, Policy, Rule, RulePlans, Tenant};
use spile_redis::RedisStore;
use tokio::runtime::{Builder, Runtime};

/// Requests allocate small and free fast: what mimalloc is made for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Arguments {
    listen: SocketAddr,
    upstream: String,
    workers: usize,
    redis: Option<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    // The first worker's own: a store over Redis has its connections there.
    let runtime = runtime()?;
    let _entered = runtime.enter();
    match &arguments.redis {
        None => serve(&runtime, &arguments, MemoryStore::new()),
        // Long enough that a busy machine shows as slow, and not as a store that fails.
        Some(url) => {
            let store = RedisStore::builder(url).timeout(Duration::from_secs(2)).build()?;
            serve(&runtime, &arguments, store)
        }
    }
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| arguments.next().ok_or_else(|| format!("{what} is missing"));
    let (listen, upstream) = (next("LISTEN")?.parse()?, next("UPSTREAM")?);
    let workers = next("WORKERS")?.parse()?;
    Ok(Arguments { listen, upstream, workers, redis: arguments.next() })
}

fn serve<S: Store + 'static>(
    runtime: &Runtime,
    arguments: &Arguments,
    store: S,
) -> Result<(), Box<dyn Error>> {
    let gateway = gateway(arguments, store)?;
    let listener = TcpListener::bind(arguments.listen)?;
    listener.set_nonblocking(true)?;
    println!("listening on http://{}", listener.local_addr()?);
    for _ in 1..arguments.workers {
        let (gateway, listener, runtime) = (gateway.clone(), listener.try_clone()?, self::runtime()?);
        std::thread::spawn(move || work(&runtime, &gateway, listener));
    }
    work(runtime, &gateway, listener)?;
    Ok(())
}

fn gateway<S: Store>(arguments: &Arguments, store: S) -> Result<Gateway<S>, Box<dyn Error>> {
    let plans = [
        Plan::new("free", Limit::per_second(1_000_000).burst(1_000_000))?,
        Plan::new("pro", Limit::per_second(10_000_000).burst(10_000_000))?,
    ];
    // A store that fails shows as 503, which the benchmark counts.
    let limiter = RateLimiter::builder()
        .store(store)
        .deadline(Duration::from_secs(2))
        .on_failure(FailurePolicy::Deny)
        .build();
    let policy = Policy::builder()
        .plans(plans)
        .rules([Rule::new("default", RulePlans::tenant_or("free")?)])
        .tenants([Tenant::new("acme", "pro".parse()?).api_key(ApiKeyHash::of(b"k-acme"))])
        .on_failure(FailurePolicy::Deny)
        .build()?;
    let gateway =
        Gateway::builder(limiter).route(Route::new("/", [arguments.upstream.parse()?])?).policy(policy);
    Ok(gateway.build()?)
}

fn runtime() -> std::io::Result<Runtime> {
    // All that one look at the sockets found is mostly done before the next one: looking more often costs more than it
    // finds.
    Builder::new_current_thread().enable_all().event_interval(256).build()
}

fn work<S: Store + 'static>(
    runtime: &Runtime,
    gateway: &Gateway<S>,
    listener: TcpListener,
) -> std::io::Result<()> {
    runtime.block_on(async {
        gateway.serve(tokio::net::TcpListener::from_std(listener)?, std::future::pending()).await;
        Ok(())
    })
}
