//! Upstreams: where they are, how they are chosen, and the connections to them.

mod address;
mod balance;
mod checker;
mod dial;
mod endpoint;
mod health;
mod http1;
mod http2;
mod lines;
mod resolver;
mod tls;
mod unanswered;

pub use address::{Upstream, UpstreamError};
pub use balance::Balance;
pub use health::HealthCheck;
pub use tls::{Roots, UpstreamTls, UpstreamTlsError, UpstreamTlsFiles};

pub(crate) use balance::Pool;
pub(crate) use checker::check_forever;
pub(crate) use dial::{Dialer, Purpose};
pub(crate) use endpoint::Endpoint;
pub(crate) use endpoint::Outstanding;
pub(crate) use health::{Abandoned, Health};
pub(crate) use http1::{Asked, Http1, Inbound, Upgraded};
pub(crate) use http2::{Http2Body, Http2Stream};
pub(crate) use lines::{Line, Lines, NewLine, SWEEP_INTERVAL};
pub(crate) use resolver::{Reached, Resolver};
pub(crate) use unanswered::Unanswered;
