//! The facts that a listener has read of a request.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use smol_str::SmolStr;
use spile_core::{Cost, PlanName};

use crate::key::ResolvedKey;

/// The facts about a request before it is decided. [`new`](Self::new) makes those that each request has.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its path, which must be [clean](crate::CleanPath) already.
    pub path: &'a str,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// The host, in lower case and without a port.
    pub host: &'a str,
    /// The gateway's route.
    pub route: Option<&'a str>,
    /// The client's address, according to trusted proxies.
    pub address: Option<IpAddr>,
    /// The tenant whose credential the request has.
    pub tenant: Option<CallerTenant>,
    /// The user that was authenticated, here or by a trusted proxy.
    pub principal: Option<&'a str>,
    /// Its credential.
    pub credential: Credential,
    /// The factor by which limits are multiplied now, from 0 to 1: lower while an upstream is overloaded.
    pub load_factor: f64,
    /// Whether permits can be held until the request has ended: it passes through here. Otherwise a request that needs a permit is
    /// refused, because none could be released.
    pub holds_permits: bool,
    /// The tokens that the request is expected to cost, if its answer will report its cost. They are charged in place of
    /// the cost of each rule.
    pub estimate: Option<Cost>,
}

/// Who pays for a request, and at which cost, where that does not follow from its facts.
#[derive(Clone, Debug, Default)]
pub(crate) struct AssumedPayer<'a> {
    /// The header whose value is the key under the rule `default`, instead of the rule's own key.
    pub(crate) sent: Option<(&'a HeaderName, &'a HeaderValue)>,
    /// Pays under rules that look for a key that the request does not have. `None` if such a request is refused.
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
    /// A request of which no more is known. Its path must be [clean](crate::CleanPath) already.
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
            load_factor: 1.0,
            holds_permits: false,
            estimate: None,
        }
    }
}
