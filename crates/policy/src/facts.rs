//! The facts that a listener has read of a request.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use smol_str::SmolStr;
use spile_core::{Cost, PlanName};

use crate::key::ResolvedKey;

/// The facts about a request before it is decided.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) host: &'a str,
    pub(crate) route: Option<&'a str>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) tenant: Option<CallerTenant>,
    pub(crate) principal: Option<&'a str>,
    pub(crate) credential: Credential,
    /// The header whose value is the key under the rule `default`, instead of the rule's own key.
    pub(crate) sent: Option<(&'a HeaderName, &'a HeaderValue)>,
    pub(crate) load: f64,
    /// Whether a permit can be held until the request has ended.
    pub(crate) holds: bool,
    /// Replaces the cost of each rule until the answer has reported its cost.
    pub(crate) estimate: Option<Cost>,
    /// Who pays, and what, if the request is only described.
    pub(crate) assumed: Option<&'a AssumedPayer>,
}

/// Who pays for a request that is only described, and at which cost.
#[derive(Clone, Debug)]
pub(crate) struct AssumedPayer {
    /// Pays under rules that look for a key that the description does not have. `None` if requests without such a key
    /// are described.
    pub(crate) key: Option<ResolvedKey>,
    /// Replaces the cost of each rule.
    pub(crate) cost: Option<Cost>,
}

/// The tenant that sent a request, and its plan: resolved once, by
/// [`Policy::tenant_of_key`](crate::Policy::tenant_of_key) or
/// [`Policy::tenant_of_claim`](crate::Policy::tenant_of_claim).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CallerTenant {
    /// Which tenant it is.
    pub id: SmolStr,
    /// The plan that it holds, or `None` if no plan is known for it.
    pub plan: Option<PlanName>,
}

/// The state of a request's credential. A refused credential is charged to the address.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Credential {
    /// There is no credential, or it is accepted.
    #[default]
    Accepted,
    /// No tenant has it. It may be for the service behind the proxy. It counts as a guess if a rule requires a tenant
    /// or a key.
    Unknown,
    /// It is wrong, and the request is refused.
    Refused,
}

impl CallerTenant {
    /// The tenant of that id on this plan.
    pub fn new(id: &str, plan: Option<PlanName>) -> Self {
        Self { id: SmolStr::new(id), plan }
    }
}

/// The only value of a header. `None` if the header is missing, is not text, or has two different values: a proxy may
/// have added its value to the client's, and the client must not choose.
pub fn single_value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    let text = std::str::from_utf8(first.as_bytes()).ok()?;
    values.all(|value| value == first).then_some(text)
}

impl<'a> Facts<'a> {
    /// A request of this method for this path, which must be [clean](crate::CleanPath) already.
    pub const fn new(method: &'a Method, path: &'a str, headers: &'a HeaderMap) -> Self {
        Self {
            method,
            path,
            headers,
            host: "",
            route: None,
            address: None,
            tenant: None,
            principal: None,
            credential: Credential::Accepted,
            sent: None,
            load: 1.0,
            holds: false,
            estimate: None,
            assumed: None,
        }
    }

    /// The host, in lower case and without a port.
    #[must_use]
    pub const fn host(mut self, host: &'a str) -> Self {
        self.host = host;
        self
    }

    /// The gateway's route.
    #[must_use]
    pub const fn route(mut self, route: &'a str) -> Self {
        self.route = Some(route);
        self
    }

    /// The client's address, according to trusted proxies.
    #[must_use]
    pub const fn address(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// The tenant whose credential the request has.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<Option<CallerTenant>>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// The user that was authenticated, here or by a trusted proxy.
    #[must_use]
    pub const fn principal(mut self, name: Option<&'a str>) -> Self {
        self.principal = name;
        self
    }

    /// Its credential.
    #[must_use]
    pub const fn credential(mut self, credential: Credential) -> Self {
        self.credential = credential;
        self
    }

    /// The factor by which limits are multiplied now, from 0 to 1: lower while an upstream is overloaded.
    #[must_use]
    pub const fn load_factor(mut self, factor: f64) -> Self {
        self.load = factor;
        self
    }

    /// Permits can be held until the request has ended: it passes through here. Without this, a request that needs a permit is
    /// refused, because none could be released.
    #[must_use]
    pub const fn holds_permits(mut self) -> Self {
        self.holds = true;
        self
    }

    /// The tokens that the request is expected to cost, if its answer will report its cost. They are charged in place of
    /// the cost of each rule.
    #[must_use]
    pub const fn estimate(mut self, tokens: Option<Cost>) -> Self {
        self.estimate = tokens;
        self
    }
}
