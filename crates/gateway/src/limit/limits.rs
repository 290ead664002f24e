//! Asks the limiter about a request, before anything of its body is read.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response};
use smallvec::SmallVec;
use spile_core::{
    ChargeError, Clock, Cost, Decision, FailurePolicy, KeyError, Micros, Plan, Reason, Source, Store,
};
use spile_limiter::{Ask, LimiterError, RateLimiter, StoreFailed};
use spile_observe::trace::{self, Tracer};
use spile_tower::key::{ClientIp, KeyResolver};
use spile_tower::response::{Fields, is_grpc};

use super::due::{Account, Due, Dues, accounts, charges};
use super::rule::Rule;
use super::rulebook::Rules;

/// The limiter, and the rules by which requests are charged.
pub(crate) struct Limits<S> {
    pub(crate) limiter: RateLimiter<S>,
    pub(crate) fields: Fields,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tracer: Option<Tracer>,
}

/// A decision about a request, and what the request was charged. Always boxed: it goes through many hands.
pub(crate) struct Ruling {
    pub(super) decision: Decision,
    pub(super) dues: Dues,
    pub(super) now: Micros,
}

/// What a request owes.
#[derive(Default)]
struct Owed {
    dues: Dues,
    /// Under rules that only watch.
    watched: Dues,
}

/// Why there is no decision about a request.
#[derive(Debug)]
pub(crate) enum Undecided {
    /// A rule is for tenants alone, and the request is of none.
    NoTenant,
    /// The request costs more than the caller's plan ever holds: waiting does not help.
    NeverAllowed,
    /// A rule cannot be applied to anybody.
    Misconfigured,
}

impl From<LimiterError> for Undecided {
    fn from(why: LimiterError) -> Self {
        match why {
            LimiterError::Charge(ChargeError::CostAboveCapacity { .. }) => Self::NeverAllowed,
            _ => Self::Misconfigured,
        }
    }
}

impl<S: Store> Limits<S> {
    /// Decides about a request by these rules, under limits multiplied by `factor`. Those in whom no rule finds a key
    /// count by their address. Nothing where no rule applies.
    pub(crate) async fn decide(
        &self,
        request: &Parts,
        rules: Rules,
        address: &ClientIp,
        factor: f64,
    ) -> Result<Option<Box<Ruling>>, Undecided> {
        let owed = self.owed(rules, request, address)?;
        match self.decide_at_once(owed, factor)? {
            Ok(ruling) => Ok(ruling),
            // Boxed, so that requests whose store answers at once need not carry it around.
            Err(owed) => Ok(Box::pin(self.decide_in_time(owed, factor)).await?),
        }
    }

    /// Writes what the client is to know of the decision.
    pub(crate) fn write(&self, ruling: &Ruling, headers: &mut HeaderMap) {
        self.fields.write(&ruling.decision, ruling.now, headers);
    }

    /// The answer to a request that was refused.
    pub(crate) fn refusal(&self, ruling: &Ruling, request: &Parts) -> Response<Bytes> {
        if is_grpc(&request.headers) {
            self.fields.grpc_refusal(&ruling.decision, ruling.now)
        } else {
            self.fields.refusal(&ruling.decision, ruling.now)
        }
    }

    /// Makes the request cost `tokens` in the end, whatever it was charged at first. Less is given back. More is taken
    /// as far as it is there, for the work is already done.
    pub(crate) async fn settle(&self, ruling: &mut Ruling, tokens: u64) {
        let taken = ruling.decision.reason() == Reason::Ok && ruling.decision.source() != Source::Local;
        for account in accounts(&ruling.dues) {
            // A store that fails now changes nothing about an answer that is already there.
            let _settled = self.settle_one(&account, tokens, taken).await;
        }
        if let Ok(charges) = charges(&ruling.dues, |_| Cost::ZERO, 1.0)
            && ruling.decision.reason() == Reason::Ok
        {
            ruling.decision = self.limiter.look(charges).await;
        }
    }

    async fn settle_one(&self, account: &Account<'_>, tokens: u64, taken: bool) -> Result<(), StoreFailed> {
        let charged = account.charged;
        if tokens > charged {
            let _granted = self.limiter.grant(account.charges(tokens - charged)?).await;
        } else if taken && tokens < charged {
            let _left = self.limiter.give_back(account.charges(charged - tokens)?).await?;
        }
        Ok(())
    }

    /// What the request owes under the rule; nothing where no plan applies to it.
    fn due(&self, rule: Arc<Rule>, request: &Parts, address: &ClientIp) -> Result<Option<Due>, Undecided> {
        let names = rule.plans.plans(request);
        let plans: SmallVec<[Plan; 1]> =
            names.iter().map(|name| self.plan(&rule, name)).collect::<Result<_, _>>()?;
        if plans.is_empty() {
            return if rule.tenants_only { Err(Undecided::NoTenant) } else { Ok(None) };
        }
        let key = rule.key.resolve(request).or_else(|| address.resolve(request));
        let key = key.ok_or(LimiterError::Key(KeyError::Empty))?;
        drop(names);
        Ok(Some(Due { rule, key, plans }))
    }

    fn plan(&self, rule: &Rule, name: &str) -> Result<Plan, LimiterError> {
        match &rule.registry {
            None => self.limiter.plan(name),
            Some(own) => own.plan(name).ok_or_else(|| LimiterError::UnknownPlan(name.to_owned())),
        }
    }

    /// What the request owes under these rules.
    fn owed(&self, rules: Rules, request: &Parts, address: &ClientIp) -> Result<Owed, Undecided> {
        let mut owed = Owed::default();
        for rule in rules {
            let shadow = rule.shadow;
            if let Some(due) = self.due(rule, request, address)? {
                if shadow { owed.watched.push(due) } else { owed.dues.push(due) }
            }
        }
        Ok(owed)
    }

    /// The decision, where the store has it at hand; else what is owed, for nothing has been spent.
    fn decide_at_once(
        &self,
        owed: Owed,
        factor: f64,
    ) -> Result<Result<Option<Box<Ruling>>, Owed>, LimiterError> {
        if !owed.watched.is_empty() || self.tracer.is_some() {
            return Ok(Err(owed));
        }
        if owed.dues.is_empty() {
            return Ok(Ok(None));
        }
        let decided = self.limiter.decide_at_once(&enforcing(&owed.dues, factor)?);
        Ok(match decided {
            Some(decision) => Ok(Some(self.ruling(decision, owed.dues))),
            None => Err(owed),
        })
    }

    async fn decide_in_time(&self, owed: Owed, factor: f64) -> Result<Option<Box<Ruling>>, LimiterError> {
        let Owed { dues, watched } = owed;
        let watching = self.watch(watched, factor).await?;
        if dues.is_empty() {
            return Ok(watching);
        }
        let decision = self.ask(enforcing(&dues, factor)?).await;
        Ok(Some(self.ruling(decision, dues)))
    }

    fn ruling(&self, decision: Decision, dues: Dues) -> Box<Ruling> {
        Box::new(Ruling { decision, dues, now: self.clock.now() })
    }

    async fn ask(&self, ask: Ask<'_>) -> Decision {
        if self.tracer.is_none() {
            return self.limiter.decide(ask).await;
        }
        let noted = async {
            let decision = self.limiter.decide(ask).await;
            trace::note("spile.reason", || decision.reason().as_str().to_owned());
            trace::note("spile.limit", || decision.binding().name().to_string());
            decision
        };
        Box::pin(trace::span("decision", noted)).await
    }

    /// Decides about each rule that only watches by itself, so that none of them holds back another's charge.
    async fn watch(&self, watched: Dues, factor: f64) -> Result<Option<Box<Ruling>>, LimiterError> {
        let mut last = None;
        for due in watched {
            let rule = Arc::clone(&due.rule);
            let dues = Dues::from_iter([due]);
            let charges = charges(&dues, |due| due.rule.cost, factor)?;
            let decision = self.ask(Ask::from(charges).rule(&*rule.id).shadow(true)).await;
            last = Some(self.ruling(decision, dues));
        }
        Ok(last)
    }
}

impl Ruling {
    pub(crate) const fn allowed(&self) -> bool {
        self.decision.allowed()
    }
}

/// What is asked about dues that are charged together.
fn enforcing(dues: &Dues, factor: f64) -> Result<Ask<'_>, LimiterError> {
    let mut ask = Ask::from(charges(dues, |due| due.rule.cost, factor)?);
    if let [due, ..] = &**dues {
        ask = ask.rule(&*due.rule.id);
    }
    if let Some(policy) = strictest(dues) {
        ask = ask.on_failure(policy);
    }
    Ok(ask)
}

/// Of several rules that are charged together, the one that guards most closely says what a failure means.
fn strictest(dues: &[Due]) -> Option<FailurePolicy> {
    let weight = |policy: &FailurePolicy| match policy {
        FailurePolicy::Deny => 2,
        FailurePolicy::Local => 1,
        _ => 0,
    };
    dues.iter().filter_map(|due| due.rule.on_failure).max_by_key(weight)
}
