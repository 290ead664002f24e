//! Plans, rules and tenants, and what a request owes under them.
//!
//! A [`Policy`] contains everything in force at one moment. It is immutable and replaced as a whole. A listener (the
//! HTTP API, the gateway, Envoy's service, the Redis protocol) turns bytes into [`Facts`], asks the policy what the
//! request owes, and passes the resulting [`Owed`] to the limiter. No other code matches rules, finds keys, chooses a
//! failure policy or creates charges, so that the same facts give the same decision at every listener.
//!
//! This crate does no I/O. It must not know where buckets live, nor how a request arrived.
//!
//! ```
//! use http::{HeaderMap, Method};
//! use spile_core::{Limit, Plan};
//! use spile_policy::{Enforced, Facts, Policy, Rule, RulePlans};
//!
//! let policy = Policy::builder()
//!     .plans([Plan::new("free", Limit::per_second(1).burst(10))?])
//!     .rules([Rule::new("default", RulePlans::tenant_or("free")?)])
//!     .build()?;
//!
//! let headers = HeaderMap::new();
//! let address = Some([203, 0, 113, 7].into());
//! let facts = Facts { address, ..Facts::new(&Method::GET, "/scores", &headers) };
//! let owed = policy.owed(&facts);
//! let Enforced::Charged(chain) = owed.enforced else { panic!("every request falls under the rule `default`") };
//! assert_eq!(chain.charges()[0].key().as_str(), "ip:203.0.113.7");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod descriptor;
mod facts;
mod key;
mod owed;
mod path;
mod policy;
mod rule;
mod tenant;

pub use descriptor::{
    Descriptor, DescriptorLimit, DescriptorMatch, DescriptorMatchError, DescriptorOwed, DescriptorsOwed,
    EntryPattern, Hits,
};
pub use facts::{CallerTenant, Credential, Facts, single_value};
pub use key::{KeyList, KeyListError, ResolvedKey, identity};
pub use owed::{BucketCharge, Chain, Enforced, Owed, PolicyRefusal};
pub use path::{AmbiguousPath, CleanPath, PathPattern, PatternError};
pub use policy::{AskError, DEFAULT_RULE, Policy, PolicyBuilder, PolicyError, RESERVED_PLANS, THROTTLE};
pub use rule::{
    DescriptorOptions, HostError, HostPattern, Matcher, Rule, RulePlans, canonical_host, is_misspelt,
};
pub use tenant::{ApiKeyHash, ApiKeyHashError, OverrideError, Tenant};
