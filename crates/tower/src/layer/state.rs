//! The state that all clones of a layer and its services share: limiter, rules and settings.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use spile_core::{Clock, FailurePolicy, Micros, Store};
use spile_limiter::{LimiterError, RateLimiter};
use spile_policy::Chain;

use crate::client::peer_of;
use crate::key::{ResolvedKey, Tenant};
use crate::response::{Cause, HeaderFields, RefusedRequest};
use crate::rule::Rule;

pub(crate) type Skip = Box<dyn Fn(&Parts) -> bool + Send + Sync>;
pub(crate) type Respond = Box<dyn Fn(&RefusedRequest<'_>) -> Response<Bytes> + Send + Sync>;

/// The treatment of a request in which no resolver finds a key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Keyless {
    /// It is refused with 401, so that a server that does not provide the client's address is noticed at once.
    #[default]
    Refuse,
    /// All requests without a key share one bucket of each limit.
    Share,
    /// It passes and is not limited.
    Pass,
}

pub(crate) struct LayerState<S> {
    pub(crate) limiter: RateLimiter<S>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) name: Option<Box<str>>,
    pub(crate) on_failure: Option<FailurePolicy>,
    pub(crate) shadow: bool,
    pub(crate) keyless: Keyless,
    pub(crate) skips: Vec<Skip>,
    pub(crate) fields: HeaderFields,
    pub(crate) respond: Option<Respond>,
    pub(crate) clock: Arc<dyn Clock>,
    /// True until the first request, if a rule needs the address of the connection's peer.
    pub(crate) peer_unchecked: AtomicBool,
}

/// Why a request cannot be charged.
pub(crate) enum Unchargeable {
    NoKey,
    Invalid(LimiterError),
}

impl<S: Store> LayerState<S> {
    pub(crate) fn skips(&self, request: &Parts) -> bool {
        self.skips.iter().any(|skip| skip(request))
    }

    /// Complains once, with the first request, if a rule needs the peer's address and the server does not give it.
    #[inline]
    pub(crate) fn check_peer(&self, request: &Parts) {
        if self.peer_unchecked.load(Ordering::Relaxed) {
            self.check_peer_of_first(request);
        }
    }

    #[cold]
    fn check_peer_of_first(&self, request: &Parts) {
        let is_first = self.peer_unchecked.swap(false, Ordering::Relaxed);
        if is_first && peer_of(request).is_none() {
            tracing::error!(
                layer = self.name.as_deref(),
                "the rate limit layer needs the client's address, and requests do not carry it: with axum, serve \
                 `app.into_make_service_with_connect_info::<SocketAddr>()`; with other servers, put a \
                 `spile::client::PeerAddr` into the extensions of each request"
            );
        }
    }

    /// A chain without charges, with the name, mode and failure policy of this layer.
    #[inline]
    pub(crate) fn chain(&self, request: &Parts) -> Chain {
        let tenant = request.extensions.get::<Tenant>().map(Tenant::id);
        Chain::new(self.name.as_deref()).for_tenant(tenant).on_failure(self.on_failure).shadow(self.shadow)
    }

    /// Adds the charges of all rules to `chain`, which stays empty if no plan applies. The chain is filled in place, because it
    /// is large to move.
    #[inline]
    pub(crate) fn owe(&self, request: &Parts, chain: &mut Chain) -> Result<(), Unchargeable> {
        for rule in &self.rules {
            let key = match (rule.key_of(request), self.keyless) {
                (Some(key), _) => key,
                (None, Keyless::Share) => ResolvedKey::of(&["keyless:"]),
                (None, Keyless::Pass) => continue,
                (None, Keyless::Refuse) => return Err(Unchargeable::NoKey),
            };
            let (plans, tokens) = (rule.plans_of(request), rule.cost_of(request));
            plans.iter().try_for_each(|plan| self.limiter.extend_chain(chain, &key, plan, tokens))?;
        }
        match chain.never_passes() {
            None => Ok(()),
            Some(line) => Err(LimiterError::from(line.above_capacity()).into()),
        }
    }

    /// The answer to a request that does not reach the service.
    pub(crate) fn refuse(&self, cause: Cause<'_>, request: &Parts, now: Micros) -> Response<Bytes> {
        let refusal = RefusedRequest { cause, request, now, fields: self.fields };
        self.respond.as_ref().map_or_else(|| refusal.response(), |respond| respond(&refusal))
    }
}

impl From<LimiterError> for Unchargeable {
    fn from(error: LimiterError) -> Self {
        Self::Invalid(error)
    }
}

impl<S> fmt::Debug for LayerState<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerState")
            .field("limiter", &self.limiter)
            .field("rules", &self.rules.len())
            .field("shadow", &self.shadow)
            .finish_non_exhaustive()
    }
}
