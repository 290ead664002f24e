//! What every clone of a layer and its services share: the limiter, the rules and how to answer.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use spile_core::{Charges, Clock, Cost, FailurePolicy, Few, Micros, Store};
use spile_limiter::{Ask, LimiterError, RateLimiter};

use crate::key::ResolvedKey;
use crate::owed::Payer;
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

    /// Reads who pays for the request under each of the rules.
    pub(crate) fn payers(&self, request: &Parts) -> Result<Few<Payer>, Undue> {
        let mut payers = Few::new();
        for rule in 0..self.rules.len() {
            if let Some(payer) = self.payer(rule, request)? {
                payers.push(payer);
            }
        }
        Ok(payers)
    }

    fn payer(&self, rule: usize, request: &Parts) -> Result<Option<Payer>, Undue> {
        let key = match (self.rules[rule].key_of(request), self.keyless) {
            (Some(key), _) => key,
            (None, Keyless::Share) => ResolvedKey::of(&["keyless:"]),
            (None, Keyless::Pass) => return Ok(None),
            (None, Keyless::Refuse) => return Err(Undue::NoKey),
        };
        let cost = Cost::new(self.rules[rule].cost_of(request)).map_err(LimiterError::from)?;
        Ok(Some(Payer { key, cost, rule }))
    }

    /// Puts what they pay into `charges`, which stays empty where no plan applies; under how many limits each does.
    pub(crate) fn charge<'k>(
        &self,
        payers: &'k [Payer],
        request: &Parts,
        charges: &mut Option<Charges<'k>>,
    ) -> Result<Few<usize>, LimiterError> {
        let mut limits = Few::new();
        for payer in payers {
            let before = charges.as_ref().map_or(0, |charges| charges.len());
            let plans = self.rules[payer.rule].plans_of(request);
            self.limiter.charge_also(charges, payer.key.as_key()?, plans.iter(), payer.cost)?;
            limits.push(charges.as_ref().map_or(0, |charges| charges.len()) - before);
        }
        Ok(limits)
    }

    /// The question as this layer asks it.
    #[inline]
    pub(crate) fn ask<'a>(&'a self, charges: Charges<'a>, tenant: Option<&'a str>) -> Ask<'a> {
        let mut ask = Ask::from(charges).shadow(self.shadow);
        if let Some(name) = &self.name {
            ask = ask.rule(&**name);
        }
        if let Some(tenant) = tenant {
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
