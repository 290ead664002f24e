//! Spile's buckets in Redis or Valkey.
//!
//! Every decision is one call of an atomic script, which agrees bit for bit with [`spile_core::decide`].
//! Around it: supervised connections that send concurrent requests together, one deadline for every call, a
//! circuit breaker, and three topologies: standalone, Sentinel and Cluster.
//!
//! The store never charges twice. After a timeout or a broken connection it is unknown whether the script ran, and the
//! error says so ([`StoreError::may_have_run`](spile_core::StoreError::may_have_run)). A request is sent again only if
//! Redis says that it did not run it.
//!
//! This crate must not know about plans, rules, HTTP or failure policies.

mod connection;
mod node;
mod script;
mod session;
mod store;
mod topology;

pub use connection::login::{CredentialsError, names_same_store};
pub use connection::tls::TlsError;
pub use connection::url::{UrlError, without_secrets};
pub use node::write_failures::RedisErrorKind;
#[doc(hidden)]
pub use script::wire_call::{WireAnswer, WireCall};
pub use script::{PORTABLE_SCRIPT, Script};
pub use session::{Session, SessionError, Subscription};
pub use spile_resp::Value;
pub use store::RedisStore;
pub use store::builder::{RedisBuildError, RedisStoreBuilder};
pub use store::examiner::StoreExaminer;
pub use store::stats::Stats;
pub use store::time_source::TimeSource;
