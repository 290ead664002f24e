//! Upstreams: addresses, load balancing, health, and connections.

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

pub(crate) use attempt_error::AttemptError;
pub(crate) use connection_pool::{ConnectionPool, NewConnection, ReadyConnection, SWEEP_INTERVAL};
pub(crate) use connector::{ConnectPurpose, Connector};
pub(crate) use endpoint::{InFlightRequest, UpstreamEndpoint};
pub(crate) use health::AbandonedRequest;
pub(crate) use health_checker::check_forever;
pub(crate) use http1::{Http1Body, Http1Connection, Http1Request, UpgradedUpstream, write_field};
pub(crate) use http2::{Http2Body, Http2Stream};
pub(crate) use load_balancer::LoadBalancer;
pub(crate) use resolver::{ConnectedAddress, Resolver};
