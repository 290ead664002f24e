//! A gateway that runs until it is dropped.

use std::net::SocketAddr;
use std::sync::Arc;

use spile_core::{FakeClock, Limit, Plan, Store};
use spile_gateway::{Gateway, GatewayBuilder, Route, Upstream};
use spile_limiter::RateLimiter;
use spile_memory::MemoryStore;
use spile_policy::{ApiKeyHash, Policy, Rule, RulePlans, Tenant};
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

    /// Starts the shutdown of the gateway. The handle resolves when it is over.
    pub(crate) fn stop(&mut self) -> JoinHandle<()> {
        drop(self.stop.take());
        self.served.take().expect("a gateway that was not stopped yet")
    }
}

/// A gateway whose settings can be replaced while it runs.
pub(crate) async fn changeable<S: Store + 'static>(builder: GatewayBuilder<S>) -> (Running, Gateway<S>) {
    let gateway = builder.build().expect("a sound gateway");
    (serving(gateway.clone()).await, gateway)
}

/// Serves on a free port.
pub(crate) async fn running<S: Store + 'static>(builder: GatewayBuilder<S>) -> Running {
    serving(builder.build().expect("a sound gateway")).await
}

pub(crate) async fn serving<S: Store + 'static>(gateway: Gateway<S>) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(async move { gateway.serve(listener, async { drop(stopped.await) }).await });
    Running { address, stop: Some(stop), served: Some(served) }
}

/// A limiter with this clock.
pub(crate) fn limiter_on(clock: &FakeClock) -> RateLimiter<MemoryStore<Arc<FakeClock>>> {
    let clock = Arc::new(clock.clone());
    let store = MemoryStore::builder().clock(Arc::clone(&clock)).build();
    RateLimiter::builder().store(store).clock(clock).build()
}

pub(crate) fn plan(name: &str, capacity: u64, per_second: u64) -> Plan {
    Plan::new(name, Limit::per_second(per_second).burst(capacity)).expect("a sound plan")
}

/// Charges tenants under their own plan, and other callers by address under `free`.
pub(crate) fn by_tenant_or_address(id: &str) -> Rule {
    Rule::new(id, RulePlans::tenant_or("free").expect("a sound name"))
}

/// Charges all callers under this plan.
pub(crate) fn under(id: &str, plan: &str) -> Rule {
    Rule::new(id, RulePlans::listed([plan]).expect("a sound name"))
}

/// A tenant that is known by an API key.
pub(crate) fn tenant(id: &str, plan: &str, key: &str) -> Tenant {
    Tenant::new(id, plan.parse().expect("a sound name")).api_key(ApiKeyHash::of(key.as_bytes()))
}

/// A policy with these plans and rules.
pub(crate) fn policy(plans: impl IntoIterator<Item = Plan>, rules: impl IntoIterator<Item = Rule>) -> Policy {
    policy_for(plans, rules, [])
}

/// A policy with these plans, rules and tenants.
pub(crate) fn policy_for(
    plans: impl IntoIterator<Item = Plan>,
    rules: impl IntoIterator<Item = Rule>,
    tenants: impl IntoIterator<Item = Tenant>,
) -> Policy {
    Policy::builder().plans(plans).rules(rules).tenants(tenants).build().expect("a sound policy")
}

/// A gateway without limits, with this one route.
pub(crate) fn open(route: Route) -> GatewayBuilder<MemoryStore<Arc<FakeClock>>> {
    Gateway::builder(limiter_on(&FakeClock::default())).route(route)
}

/// A route that sends everything to this upstream.
pub(crate) fn to(upstream: Upstream) -> Route {
    Route::new("/", [upstream]).expect("a sound route")
}
