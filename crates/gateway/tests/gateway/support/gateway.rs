//! A gateway that runs until it is dropped.

use std::net::SocketAddr;
use std::sync::Arc;

use spile_core::{FakeClock, Limit, Plan, Store};
use spile_gateway::{Builder, Gateway, Route, Rule, Upstream};
use spile_limiter::RateLimiter;
use spile_memory::MemoryStore;
use spile_tower::TenantPlan;
use spile_tower::key::{ClientIp, KeyResolver, TenantKey};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::client::{Answer, Client};

/// A gateway on a port of its own.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// One request on a connection of its own.
    pub(crate) async fn get(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.client().await.get(path, fields).await
    }

    /// Tells the gateway to stop, and gives what resolves once it has.
    pub(crate) fn stop(&mut self) -> JoinHandle<()> {
        drop(self.stop.take());
        self.served.take().expect("a gateway that was not stopped yet")
    }
}

/// A gateway whose settings can be replaced while it runs.
pub(crate) async fn changeable<S: Store + 'static>(builder: Builder<S>) -> (Running, Gateway<S>) {
    let gateway = builder.build().expect("a sound gateway");
    (serving(gateway.clone()).await, gateway)
}

/// Serves on a free port.
pub(crate) async fn running<S: Store + 'static>(builder: Builder<S>) -> Running {
    serving(builder.build().expect("a sound gateway")).await
}

async fn serving<S: Store + 'static>(gateway: Gateway<S>) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(async move { gateway.serve(listener, async { drop(stopped.await) }).await });
    Running { address, stop: Some(stop), served: Some(served) }
}

/// A limiter of these plans whose buckets live by `clock`.
pub(crate) fn limiter_on(
    clock: &FakeClock,
    plans: impl IntoIterator<Item = Plan>,
) -> RateLimiter<MemoryStore<Arc<FakeClock>>> {
    let clock = Arc::new(clock.clone());
    let store = MemoryStore::builder().clock(Arc::clone(&clock)).build();
    RateLimiter::builder().store(store).plans(plans).clock(clock).build()
}

/// A limiter that never gets in the way.
pub(crate) fn limiter() -> RateLimiter<MemoryStore<Arc<FakeClock>>> {
    limiter_on(&FakeClock::default(), [plan("free", 1_000_000, 1_000_000)])
}

pub(crate) fn plan(name: &str, capacity: u64, per_second: u64) -> Plan {
    Plan::new(name, Limit::per_second(per_second).burst(capacity)).expect("a sound plan")
}

/// Charges tenants under their own plan, and everybody else by address under `free`.
pub(crate) fn by_tenant_or_address(id: &str) -> Rule {
    Rule::new(id, TenantKey.or(ClientIp::direct()), TenantPlan::or("free"))
}

/// A gateway that limits nobody, with this one route.
pub(crate) fn open(route: Route) -> Builder<MemoryStore<Arc<FakeClock>>> {
    Gateway::builder(limiter()).route(route)
}

/// Everything goes to this upstream.
pub(crate) fn to(upstream: Upstream) -> Route {
    Route::new("/", [upstream]).expect("a sound route")
}
