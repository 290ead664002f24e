//! Spile's buckets in Redis or Valkey.
//!
//! Every decision is one atomic script, `spend.lua`, that does what [`spile_core::spend`] and its kin do, bit for bit.
//! Around it: supervised connections that share what callers ask at once, one deadline over everything, a breaker,
//! and three topologies: standalone, Sentinel and Cluster.
//!
//! Nothing is ever charged twice: after a timeout or a broken connection, whether the script ran is unknown, and the
//! error says so ([`StoreError::may_have_run`](spile_core::StoreError::may_have_run)). Only what Redis says that it
//! did not run is sent again.
//!
//! This crate must not know about plans, rules, HTTP or what is done when the store fails.

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
pub use script::Script;
pub use session::{Session, SessionError, Subscription};
pub use spile_resp::Value;
pub use store::RedisStore;
pub use store::builder::{RedisBuildError, RedisStoreBuilder};
pub use store::stats::Stats;
pub use store::time_source::TimeSource;
