//! Upstreams: where they are, how they are chosen, and the connections to them.

mod address;
mod attempt_error;
mod connection_pool;
mod connector;
mod endpoint;
pub(crate) mod free_list;
pub(crate) mod header_maps;
mod health;
mod health_checker;
mod http1;
mod http2;
mod load_balancer;
mod resolver;
mod tls;

pub use address::{Upstream, UpstreamError};
pub use health::HealthCheck;
pub use load_balancer::Balance;
pub use tls::{Roots, UpstreamTls, UpstreamTlsError, UpstreamTlsFiles};

pub(crate) use attempt_error::Unanswered;
pub(crate) use connection_pool::{Line, Lines, NewLine, SWEEP_INTERVAL};
pub(crate) use connector::{Dialer, Purpose};
pub(crate) use endpoint::Endpoint;
pub(crate) use endpoint::Outstanding;
pub(crate) use health::{Abandoned, Health};
pub(crate) use health_checker::check_forever;
pub(crate) use http1::{Asked, Http1, Inbound, Upgraded};
pub(crate) use http2::{Http2Body, Http2Stream};
pub(crate) use load_balancer::Pool;
pub(crate) use resolver::{Reached, Resolver};
