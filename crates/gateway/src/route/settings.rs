//! A route as it is set up.

use crate::auth::Caller;
use crate::host::{HostError, HostPattern};
use crate::limit::Rule;
use crate::path::{PathPattern, PatternError};
use crate::refusal::Refusal;
use crate::route::Timeouts;
use crate::upstream::{Balance, Upstream};

/// Bytes of a request's body that a route takes unless told otherwise.
const MAX_BODY: u64 = 64 * 1024 * 1024;

/// Which requests go to which upstreams, and how.
///
/// ```
/// use spile_gateway::Route;
///
/// let scores = Route::new("/scores", ["http://127.0.0.1:9000".parse()?])?.require_auth(true);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Route {
    pub(crate) name: Box<str>,
    pub(crate) path: PathPattern,
    pub(crate) hosts: Vec<HostPattern>,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) balance: Balance,
    pub(crate) timeouts: Timeouts,
    pub(crate) retries: u8,
    pub(crate) require_auth: bool,
    pub(crate) limits: Vec<Rule>,
    pub(crate) max_body: u64,
}

impl Route {
    /// Sends requests for this path and all below it to these upstreams.
    pub fn new(path: &str, upstreams: impl IntoIterator<Item = Upstream>) -> Result<Self, PatternError> {
        Ok(Self {
            name: path.into(),
            path: PathPattern::prefix(path)?,
            hosts: Vec::new(),
            upstreams: upstreams.into_iter().collect(),
            balance: Balance::default(),
            timeouts: Timeouts::default(),
            retries: 1,
            require_auth: false,
            limits: Vec::new(),
            max_body: MAX_BODY,
        })
    }

    /// Goes by this name in metrics and in keys of per-route limits; the path by default.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Answers for this host too. A route without any answers for all.
    pub fn host(mut self, host: &str) -> Result<Self, HostError> {
        self.hosts.push(host.parse()?);
        Ok(self)
    }

    /// Spreads requests over the upstreams so.
    #[must_use]
    pub const fn balance(mut self, balance: Balance) -> Self {
        self.balance = balance;
        self
    }

    /// Waits this long for the upstreams.
    #[must_use]
    pub const fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Tries again this often where that is safe: nothing of the request was sent, or it is idempotent and has no
    /// body. Once by default, and never more than one request in five.
    #[must_use]
    pub const fn retries(mut self, retries: u8) -> Self {
        self.retries = retries;
        self
    }

    /// Whether requests without a valid credential are refused with 401.
    #[must_use]
    pub const fn require_auth(mut self, required: bool) -> Self {
        self.require_auth = required;
        self
    }

    /// Charges by this rule too, together with the gateway's own: all of them allow, or none is charged.
    #[must_use]
    pub fn limit(mut self, rule: Rule) -> Self {
        self.limits.push(rule);
        self
    }

    /// Takes bodies of up to this many bytes. 64 MiB by default.
    #[must_use]
    pub const fn max_body(mut self, bytes: u64) -> Self {
        self.max_body = bytes;
        self
    }

    /// Whether this caller may use the route.
    pub(crate) fn let_in(&self, caller: &Caller) -> Result<(), Refusal> {
        if self.require_auth && caller.is_anonymous() {
            return Err(Refusal::Unauthenticated(
                "a credential is required: send X-API-Key or a bearer token",
            ));
        }
        Ok(())
    }
}
