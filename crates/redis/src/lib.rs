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

mod breaker;
mod builder;
mod call;
mod cluster;
mod connection;
mod dialer;
mod encoding;
mod endpoint;
mod lane;
mod login;
mod msgpack;
mod node;
mod pace;
mod pipeline;
mod probe;
mod queue;
mod refund_once;
mod refusal;
mod refusals;
mod request;
mod router;
mod script;
mod sentinel;
mod side;
mod slot;
mod slot_map;
mod spread;
mod stats;
mod store;
mod time_source;
mod tls;
mod url;
mod warnings;

pub use builder::{BuildError, RedisStoreBuilder};
pub use login::{CredentialsError, names_same_store};
pub use refusals::RefusalKind;
pub use script::Script;
pub use side::{Session, SessionError, Subscription};
pub use spile_resp::Value;
pub use stats::Stats;
pub use store::RedisStore;
pub use time_source::TimeSource;
pub use tls::TlsError;
pub use url::{UrlError, without_secrets};
