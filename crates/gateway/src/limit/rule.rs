//! A rule: which requests it matches, who pays, under which plans, and how much.

use std::fmt;

use http::Method;
use http::request::Parts;
use spile_core::{Cost, FailurePolicy, PlanRegistry};
use spile_tower::PlanResolver;
use spile_tower::key::KeyResolver;

use crate::path::PathPattern;

/// Which requests are limited, who pays, under which plans, and how much.
///
/// Resolvers find the [`Tenant`](spile_tower::key::Tenant), the [`Principal`](spile_tower::key::Principal), the
/// [`Route`](spile_tower::key::Route) and the peer's address in the request; a gateway behind other proxies resolves by
/// [`ClientIp::behind`](spile_tower::key::ClientIp::behind) them. A request that they find no key in counts by its
/// client's address, so that leaving a header out escapes nothing.
///
/// ```
/// use http::Method;
/// use spile_core::Cost;
/// use spile_gateway::Rule;
/// use spile_tower::TenantPlan;
/// use spile_tower::key::{ClientIp, KeyResolver, TenantKey};
///
/// let writes = Rule::new("writes", TenantKey.or(ClientIp::direct()), TenantPlan::or("free"))
///     .path("/scores/*".parse()?)
///     .methods([Method::POST, Method::PUT, Method::DELETE])
///     .cost(Cost::new(5)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Rule {
    pub(super) id: Box<str>,
    path: Option<PathPattern>,
    methods: Box<[Method]>,
    pub(super) key: Box<dyn KeyResolver>,
    pub(super) plans: Box<dyn PlanResolver>,
    /// Where its plans are looked up; nothing where the limiter's own are meant.
    pub(super) registry: Option<Box<dyn PlanRegistry>>,
    pub(super) cost: Cost,
    pub(super) on_failure: Option<FailurePolicy>,
    pub(super) shadow: bool,
    pub(super) tenants_only: bool,
}

impl Rule {
    /// Charges whom `key` finds one token under every limit of `plans`, for every request.
    pub fn new(id: &str, key: impl KeyResolver + 'static, plans: impl PlanResolver + 'static) -> Self {
        Self {
            id: id.into(),
            path: None,
            methods: Box::default(),
            key: Box::new(key),
            plans: Box::new(plans),
            registry: None,
            cost: Cost::ONE,
            on_failure: None,
            shadow: false,
            tenants_only: false,
        }
    }

    /// Only for these paths.
    #[must_use]
    pub fn path(mut self, path: PathPattern) -> Self {
        self.path = Some(path);
        self
    }

    /// Only for these methods.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// Looks its plans up here, and not with the limiter. A rulebook that is replaced as a whole brings its plans along,
    /// so that no request finds the rules of one moment without their plans.
    #[must_use]
    pub fn registry(mut self, registry: impl PlanRegistry + 'static) -> Self {
        self.registry = Some(Box::new(registry));
        self
    }

    /// Charges this much.
    #[must_use]
    pub const fn cost(mut self, cost: Cost) -> Self {
        self.cost = cost;
        self
    }

    /// Decides so where the store fails, whatever the limiter's own policy is.
    #[must_use]
    pub const fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.on_failure = Some(policy);
        self
    }

    /// Only watches: decides and counts, but never refuses.
    #[must_use]
    pub const fn shadow(mut self, shadow: bool) -> Self {
        self.shadow = shadow;
        self
    }

    /// Refuses with 401 those to whom none of the plans applies. By default they pass unlimited.
    #[must_use]
    pub const fn tenants_only(mut self, tenants_only: bool) -> Self {
        self.tenants_only = tenants_only;
        self
    }

    pub(crate) fn matches(&self, request: &Parts, path: &str) -> bool {
        let method = self.methods.is_empty() || self.methods.contains(&request.method);
        method && self.path.as_ref().is_none_or(|pattern| pattern.matches(path))
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("id", &self.id).field("path", &self.path).finish_non_exhaustive()
    }
}
