//! A gateway that limits everybody by API key or address and forwards to one upstream, on one single-threaded runtime
//! per worker. What `bench/gateway/run` measures.
//!
//! Usage: `limited_proxy LISTEN UPSTREAM WORKERS`

use std::error::Error;
use std::net::{SocketAddr, TcpListener};

use spile_core::{Limit, Plan};
use spile_gateway::{ApiKeyHash, Gateway, InMemoryTenants, Route, Rule};
use spile_limiter::RateLimiter;
use spile_memory::MemoryStore;
use spile_tower::TenantPlan;
use spile_tower::key::{ClientIp, KeyResolver, Tenant, TenantKey};

/// Requests allocate small and free fast: what mimalloc is made for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| arguments.next().ok_or_else(|| format!("{what} is missing"));
    let address: SocketAddr = next("LISTEN")?.parse()?;
    let upstream = next("UPSTREAM")?.parse()?;
    let workers: usize = next("WORKERS")?.parse()?;

    let plans = [
        Plan::new("free", Limit::per_second(1_000_000).burst(1_000_000))?,
        Plan::new("pro", Limit::per_second(10_000_000).burst(10_000_000))?,
    ];
    let limiter = RateLimiter::builder().store(MemoryStore::new()).plans(plans).build();
    let gateway = Gateway::builder(limiter)
        .route(Route::new("/", [upstream])?)
        .tenants(InMemoryTenants::new([(
            Tenant::new("acme").on_plan("pro"),
            vec![ApiKeyHash::of(b"k-acme")],
        )]))
        .rule(Rule::new("default", TenantKey.or(ClientIp::direct()), TenantPlan::or("free")))
        .build()?;

    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    println!("listening on http://{}", listener.local_addr()?);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let (gateway, listener) = (gateway.clone(), listener.try_clone());
            scope.spawn(move || serve(&gateway, listener));
        }
    });
    Ok(())
}

fn serve(gateway: &Gateway<MemoryStore>, listener: std::io::Result<TcpListener>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served = runtime.and_then(|runtime| {
        runtime.block_on(async {
            gateway.serve(tokio::net::TcpListener::from_std(listener?)?, std::future::pending()).await;
            Ok(())
        })
    });
    if let Err(why) = served {
        eprintln!("limited_proxy: {why}");
    }
}
