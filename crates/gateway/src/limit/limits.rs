//! Asks the limiter about a request, before anything of its body is read.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response};
use spile_core::{Clock, Cost, Decision, FailurePolicy, Micros, Reason, Source, Store};
use spile_limiter::{Ask, LimiterError, RateLimiter, StoreFailed};
use spile_tower::key::{ClientIp, KeyResolver};
use spile_tower::response::{Fields, is_grpc};

use super::due::{Due, Dues, charges};
use super::rule::Rule;

/// The limiter, and the rules by which requests are charged.
pub(crate) struct Limits<S> {
    pub(crate) limiter: RateLimiter<S>,
    /// The first that matches applies, and with it all of the route's own.
    pub(crate) rules: Vec<Rule>,
    pub(crate) address: ClientIp,
    pub(crate) fields: Fields,
    pub(crate) clock: Arc<dyn Clock>,
}

/// A decision about a request, and what the request was charged.
pub(crate) struct Ruling<'r> {
    pub(super) decision: Decision,
    pub(super) dues: Dues<'r>,
    pub(super) now: Micros,
}

impl<S: Store> Limits<S> {
    /// Decides about a request by the first of the gateway's rules that matches, and by the route's own, under limits
    /// multiplied by `factor`. Nothing where no rule applies.
    pub(crate) async fn decide<'r>(
        &'r self,
        request: &Parts,
        path: &str,
        own: &'r [Rule],
        factor: f64,
    ) -> Result<Option<Ruling<'r>>, LimiterError> {
        let first = self.rules.iter().find(|rule| rule.matches(request, path));
        let matching = first.into_iter().chain(own.iter().filter(|rule| rule.matches(request, path)));
        let (mut dues, mut watched) = (Dues::new(), Dues::new());
        for rule in matching {
            let due = self.due(rule, request)?;
            if due.plans.is_empty() {
                continue;
            }
            if rule.shadow { watched.push(due) } else { dues.push(due) }
        }
        let watching = self.watch(watched, factor).await?;
        Ok(if dues.is_empty() { watching } else { Some(self.enforce(dues, factor).await?) })
    }

    /// Writes what the client is to know of the decision.
    pub(crate) fn write(&self, ruling: &Ruling<'_>, headers: &mut HeaderMap) {
        self.fields.write(&ruling.decision, ruling.now, headers);
    }

    /// The answer to a request that was refused.
    pub(crate) fn refusal(&self, ruling: &Ruling<'_>, request: &Parts) -> Response<Bytes> {
        if is_grpc(&request.headers) {
            self.fields.grpc_refusal(&ruling.decision, ruling.now)
        } else {
            self.fields.refusal(&ruling.decision, ruling.now)
        }
    }

    /// Makes the request cost `tokens` in the end, whatever it was charged at first. Less is given back. More is taken
    /// as far as it is there, for the work is already done.
    pub(crate) async fn settle(&self, ruling: &mut Ruling<'_>, tokens: u64) {
        let taken = ruling.decision.reason() == Reason::Ok && ruling.decision.source() != Source::Local;
        for due in &ruling.dues {
            // A store that fails now changes nothing about an answer that is already there.
            let _settled = self.settle_one(due, tokens, taken).await;
        }
        if let Ok(charges) = charges(&ruling.dues, |_| Cost::ZERO, 1.0)
            && ruling.decision.reason() == Reason::Ok
        {
            ruling.decision = self.limiter.look(charges).await;
        }
    }

    async fn settle_one(&self, due: &Due<'_>, tokens: u64, taken: bool) -> Result<(), StoreFailed> {
        let (key, charged) = (due.key.as_str(), u64::from(due.rule.cost.get()));
        let plans = due.plans.iter().map(|plan| plan.name().as_str());
        if tokens > charged {
            let _granted = self.limiter.spend_up_to(key, plans, tokens - charged).await?;
        } else if taken && tokens < charged {
            let _left = self.limiter.refund(key, plans, charged - tokens).await?;
        }
        Ok(())
    }

    fn due<'r>(&self, rule: &'r Rule, request: &Parts) -> Result<Due<'r>, LimiterError> {
        let key = rule.key.resolve(request).or_else(|| self.address.resolve(request));
        let key = key.ok_or(LimiterError::Key(spile_core::KeyError::Empty))?;
        let names = rule.plans.plans(request);
        let plans = names.iter().map(|name| self.limiter.plan(name)).collect::<Result<_, _>>()?;
        Ok(Due { rule, key, plans })
    }

    async fn enforce<'r>(&self, dues: Dues<'r>, factor: f64) -> Result<Ruling<'r>, LimiterError> {
        let mut ask = Ask::from(charges(&dues, |due| due.rule.cost, factor)?);
        if let [due, ..] = &*dues {
            ask = ask.rule(&due.rule.id);
        }
        if let Some(policy) = strictest(&dues) {
            ask = ask.on_failure(policy);
        }
        let decision = self.limiter.decide(ask).await;
        Ok(Ruling { decision, dues, now: self.clock.now() })
    }

    /// Decides about each rule that only watches by itself, so that none of them holds back another's charge.
    async fn watch<'r>(&self, watched: Dues<'r>, factor: f64) -> Result<Option<Ruling<'r>>, LimiterError> {
        let mut last = None;
        for due in watched {
            let id = &due.rule.id;
            let dues = Dues::from_iter([due]);
            let charges = charges(&dues, |due| due.rule.cost, factor)?;
            let decision = self.limiter.decide(Ask::from(charges).rule(id).shadow(true)).await;
            last = Some(Ruling { decision, dues, now: self.clock.now() });
        }
        Ok(last)
    }
}

impl Ruling<'_> {
    pub(crate) const fn allowed(&self) -> bool {
        self.decision.allowed()
    }
}

/// Of several rules that are charged together, the one that guards most closely says what a failure means.
fn strictest(dues: &[Due<'_>]) -> Option<FailurePolicy> {
    let weight = |policy: &FailurePolicy| match policy {
        FailurePolicy::Deny => 2,
        FailurePolicy::Local => 1,
        _ => 0,
    };
    dues.iter().filter_map(|due| due.rule.on_failure).max_by_key(weight)
}
