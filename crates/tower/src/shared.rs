//! What every clone of a layer and its services share: the limiter, the rules and how to answer.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use smallvec::SmallVec;
use spile_core::{Charges, Clock, Cost, FailurePolicy, Micros, NamedLimit, Store};
use spile_limiter::{Ask, LimiterError, RateLimiter};

use crate::due::{Due, Dues};
use crate::key::{ResolvedKey, Tenant};
use crate::refusal::{Cause, Refusal};
use crate::response::Fields;
use crate::rule::Rule;

pub(crate) type Skip = Box<dyn Fn(&Parts) -> bool + Send + Sync>;
pub(crate) type Respond = Box<dyn Fn(&Refusal<'_>) -> Response<Bytes> + Send + Sync>;

/// What happens to a request in which no resolver finds a key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Keyless {
    /// It is refused with 400. A service that forgot to tell the layer who its peers are notices at once.
    #[default]
    Refuse,
    /// It counts with all others that have no key, under one bucket of each limit.
    Share,
    /// It passes and is not limited.
    Pass,
}

pub(crate) struct Shared<S> {
    pub(crate) limiter: RateLimiter<S>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) name: Option<Box<str>>,
    pub(crate) on_failure: Option<FailurePolicy>,
    pub(crate) shadow: bool,
    pub(crate) keyless: Keyless,
    pub(crate) skips: Vec<Skip>,
    pub(crate) fields: Fields,
    pub(crate) respond: Option<Respond>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Why there is nothing to charge for a request.
pub(crate) enum Undue {
    NoKey,
    Invalid(LimiterError),
}

impl<S: Store> Shared<S> {
    pub(crate) fn skips(&self, request: &Parts) -> bool {
        self.skips.iter().any(|skip| skip(request))
    }

    /// Reads what the request owes under each of the rules; nothing where no plan applies to it.
    pub(crate) fn read(&self, request: &Parts, dues: &mut Dues) -> Result<(), Undue> {
        dues.tenant = request.extensions.get::<Tenant>().map(|tenant| Arc::clone(tenant.shared_id()));
        for rule in &self.rules {
            let key = match (rule.key_of(request), self.keyless) {
                (Some(key), _) => key,
                (None, Keyless::Share) => ResolvedKey::of(&["keyless:"]),
                (None, Keyless::Pass) => continue,
                (None, Keyless::Refuse) => return Err(Undue::NoKey),
            };
            let limits = self.limits(rule, request)?;
            let cost = Cost::new(rule.cost_of(request)).map_err(LimiterError::from)?;
            if !limits.is_empty() {
                dues.list.push(Due { key, limits, cost });
            }
        }
        Ok(())
    }

    fn limits(&self, rule: &Rule, request: &Parts) -> Result<SmallVec<[NamedLimit; 1]>, LimiterError> {
        let mut limits = SmallVec::new();
        for name in rule.plans_of(request).iter() {
            limits.extend(self.limiter.plan(name)?.limits().iter().cloned());
        }
        Ok(limits)
    }

    /// The question as this layer asks it.
    pub(crate) fn ask<'a>(&'a self, charges: Charges<'a>, dues: &'a Dues) -> Ask<'a> {
        let mut ask = Ask::from(charges).shadow(self.shadow);
        if let Some(name) = &self.name {
            ask = ask.rule(name);
        }
        if let Some(tenant) = &dues.tenant {
            ask = ask.tenant(tenant);
        }
        if let Some(policy) = self.on_failure {
            ask = ask.on_failure(policy);
        }
        ask
    }

    /// The answer to a request that does not reach the service.
    pub(crate) fn refuse(&self, cause: Cause<'_>, request: &Parts, now: Micros) -> Response<Bytes> {
        let refusal = Refusal { cause, request, now, fields: self.fields };
        self.respond.as_ref().map_or_else(|| refusal.response(), |respond| respond(&refusal))
    }
}

impl From<LimiterError> for Undue {
    fn from(error: LimiterError) -> Self {
        Self::Invalid(error)
    }
}

impl<S> fmt::Debug for Shared<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("limiter", &self.limiter)
            .field("rules", &self.rules.len())
            .field("shadow", &self.shadow)
            .finish_non_exhaustive()
    }
}
