//! Plans, rules and tenants, and what a request owes under them.
//!
//! [`Policy`] is everything in force at one moment. It is built once, never changes, and is replaced whole. A door (an
//! HTTP API, a gateway, Envoy's service, the Redis protocol) turns bytes into [`Facts`], asks the policy what is owed,
//! and hands the [`Chain`] that it gets to the limiter. No other place matches rules, finds keys, chooses a failure
//! policy or makes charges of a request, so the same facts give the same decision at every door.
//!
//! This crate does no I/O. It must not know where buckets live, nor how a request arrived.
//!
//! ```
//! use http::{HeaderMap, Method};
//! use spile_core::{Limit, Plan};
//! use spile_policy::{Facts, Policy, Rule, RulePlans};
//!
//! let policy = Policy::builder()
//!     .plans([Plan::new("free", Limit::per_second(1).burst(10))?])
//!     .rules([Rule::new("default", RulePlans::tenant_or("free")?)])
//!     .build()?;
//!
//! let headers = HeaderMap::new();
//! let facts = Facts::new(&Method::GET, "/scores", &headers).address([203, 0, 113, 7].into());
//! let owed = policy.owed(&facts);
//! let chain = owed.enforced.expect("every request falls under the rule `default`");
//! assert_eq!(chain.charges()[0].key().as_str(), "ip:203.0.113.7");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod chain;
mod descriptor;
mod descriptors;
mod facts;
mod host;
mod identity;
mod key;
mod matcher;
mod method;
mod owed;
mod path;
mod policy;
mod questions;
mod refusal;
mod rule;
mod tenant;

pub use builder::{Builder, PolicyError};
pub use chain::{Chain, Line, Part};
pub use descriptor::{DescriptorMatch, DescriptorMatchError, EntryPattern};
pub use descriptors::{Descriptor, DescriptorOwed, DescriptorsOwed, Hits, OwnLimit};
pub use facts::{CallerTenant, Credential, Facts, only_value};
pub use host::{HostError, HostPattern, canonical as canonical_host};
pub use identity::identity;
pub use key::{KeyList, KeyListError, ResolvedKey};
pub use matcher::Matcher;
pub use method::is_misspelt;
pub use owed::Owed;
pub use path::{CleanPath, PathPattern, PatternError, Unclear};
pub use policy::{DEFAULT_RULE, Policy, RESERVED_PLANS, TENANT_KEY, THROTTLE};
pub use questions::Wrong;
pub use refusal::Refusal;
pub use rule::{Rule, RulePlans};
pub use tenant::{ApiKeyHash, BadApiKeyHash, OverrideError, Tenant};
