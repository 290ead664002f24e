//! The gateway: authenticate, limit, proxy.
//!
//! A reverse proxy. For each request it finds the route and the caller, asks the policy what the request owes and the
//! limiter whether it is allowed, then streams the request to an upstream and the response back. It is configured by
//! types alone: it must not know how a configuration file is written, nor how a bucket is counted.
//!
//! ```no_run
//! use spile_core::{Limit, Plan};
//! use spile_gateway::{Gateway, Route};
//! use spile_limiter::RateLimiter;
//! use spile_memory::MemoryStore;
//! use spile_policy::{Policy, Rule, RulePlans};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = Policy::builder()
//!     .plans([Plan::new("free", Limit::per_second(1).burst(10))?])
//!     .rules([Rule::new("default", RulePlans::tenant_or("free")?)])
//!     .build()?;
//! let gateway = Gateway::builder(RateLimiter::builder().store(MemoryStore::new()).build())
//!     .route(Route::new("/", ["http://127.0.0.1:9000".parse()?])?)
//!     .policy(policy)
//!     .build()?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8000").await?;
//! gateway.serve(listener, std::future::pending()).await;
//! # Ok(())
//! # }
//! ```

mod access_log;
mod auth;
mod forward;
mod gateway;
mod limit;
mod refusal;
mod route;
mod upstream;

pub use access_log::{AccessLogError, AccessLogFormat, AccessLogSettings};
pub use auth::{JwtKeyFile, JwtVerifier};
pub use gateway::{FoundRoute, Gateway, GatewayBuildError, GatewayBuilder, Settings};
pub use limit::{Adaptive, DetachedBounds, RouteConcurrency};
pub use refusal::{RefusalKind, RefusalPage, RefusalPageError, RefusalPages};
pub use route::{HeaderChangeError, HeaderChanges, RewriteError, Route, RouteFinder, Timeouts};
pub use spile_listener::{Bounds, FileLoadError, Tls, TlsFiles};
pub use spile_tower::cost::{BytesPerToken, CostSource, ErrorCost, Estimate, UnreadCost};
pub use upstream::{
    Balance, HealthCheck, Roots, Upstream, UpstreamError, UpstreamTls, UpstreamTlsError, UpstreamTlsFiles,
};
