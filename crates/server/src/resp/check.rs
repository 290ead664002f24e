//! `SPILE.CHECK rule identity [cost]`, `SPILE.PEEK`, `SPILE.CHARGE` and `SPILE.REFUND … [ID id] [AT at]`: the decision API over the
//! Redis protocol.

use spile_core::{Amount, Cost, Decision, Micros, RefundId, SpendTime, StoreError};
use spile_policy::{Chain, Policy};

use super::reply::RespReply;
use crate::decide::Decider;

/// What a command does with the charges of a rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verb {
    Check,
    Peek,
    Refund,
    Charge,
    Acquire,
}

impl Verb {
    /// The arguments of its command.
    const fn arguments(self) -> &'static str {
        match self {
            Self::Check | Self::Peek | Self::Charge => "rule identity [cost]",
            Self::Refund => "rule identity [cost] [ID id] [AT at]",
            Self::Acquire => "rule identity [cost] [HOLDER name]",
        }
    }
}

/// A command about a rule.
#[derive(Debug)]
pub(super) struct Check<'a> {
    verb: Verb,
    rule: &'a str,
    identity: &'a str,
    cost: Option<Cost>,
    id: Option<RefundId<'a>>,
    spent: SpendTime,
}

/// The decision of a command, when it charged, and for a refund whether it was given now, for a late charge the amount beyond every debt.
pub(super) type Checked = (Decision, Option<Micros>, Option<(&'static str, RespReply)>);

impl<'a> Check<'a> {
    /// Reads the arguments after the name of the command.
    pub(super) fn parse(verb: Verb, arguments: &'a [Vec<u8>]) -> Result<Self, RespReply> {
        let (mut arguments, mut id, mut at) = (arguments, None, None);
        // In either order.
        for _ in 0..2 * usize::from(verb == Verb::Refund) {
            if id.is_none() {
                (arguments, id) = split_option("id", arguments);
            }
            if at.is_none() {
                (arguments, at) = split_option("at", arguments);
            }
        }
        let (rule, identity, cost) = match arguments {
            [rule, identity] => (rule, identity, None),
            [rule, identity, cost] => (rule, identity, Some(cost)),
            _ => {
                return Err(RespReply::error(format!("ERR wrong number of arguments: {}", verb.arguments())));
            }
        };
        let cost = cost.map(|cost| {
            let amount = std::str::from_utf8(cost).ok().and_then(|text| text.parse::<Amount>().ok());
            let cost = amount.and_then(|amount| Cost::new(amount).ok());
            let bounds = "a number of tokens from 0 to 1000000000, with at most six decimals";
            cost.ok_or_else(|| RespReply::error(format!("ERR cost is not {bounds}")))
        });
        let id = id.map(|id| {
            RefundId::new(text("id", id)?).map_err(|why| RespReply::error(format!("ERR id: {why}")))
        });
        let at = at.map(|at| {
            let micros = str::from_utf8(at).ok().and_then(|text| text.parse().ok()).map(Micros::new);
            micros.ok_or_else(|| RespReply::error("ERR at is not the `at` of a decision, in microseconds"))
        });
        let spent = at.transpose()?.into();
        let (rule, identity) = (text("rule", rule)?, text("identity", identity)?);
        Ok(Self { spent, verb, rule, identity, cost: cost.transpose()?, id: id.transpose()? })
    }

    pub(super) const fn rule(&self) -> &'a str {
        self.rule
    }

    pub(super) const fn identity(&self) -> &'a str {
        self.identity
    }

    /// The charges. `None` if no limit applies.
    pub(super) fn owed(&self, policy: &Policy) -> Result<Option<Chain>, RespReply> {
        // What has been used may cost more than a limit can hold.
        let cost = self.cost.map(|cost| if self.verb == Verb::Charge { Amount::ZERO } else { cost.amount() });
        let owed = policy.owed_by_identity(self.rule, self.identity, cost);
        let owed = owed.map_err(|wrong| RespReply::error(format!("ERR {}: {wrong}", wrong.field())))?;
        match owed {
            Some(chain) if self.verb == Verb::Check => {
                let chain = chain.without_permit();
                chain.map_err(|wrong| RespReply::error(format!("ERR ruleId: {wrong}")))
            }
            owed => Ok(owed),
        }
    }

    /// Asks the decider.
    pub(super) async fn run(
        &self,
        decider: &Decider,
        chain: Option<&Chain>,
        in_bulk: bool,
    ) -> Result<Checked, StoreError> {
        match (self.verb, in_bulk) {
            // A permit is acquired elsewhere.
            (Verb::Check | Verb::Acquire, false) => Ok(charged(decider.allow_chain(chain).await, None)),
            (Verb::Check | Verb::Acquire, true) => Ok(charged(decider.allow_in_turn(chain).await, None)),
            (Verb::Peek, false) => Ok((decider.peek(chain).await, None, None)),
            (Verb::Peek, true) => Ok((decider.in_turn(chain, decider.peek(chain)).await, None, None)),
            (Verb::Refund, in_bulk) => {
                let refund = decider.refund_once(chain, self.spent, self.id);
                let refunded = if in_bulk { decider.in_turn(chain, refund).await } else { refund.await };
                refunded.map(|(decision, given)| {
                    (decision, None, Some(("refunded", RespReply::Int(given.into()))))
                })
            }
            (Verb::Charge, in_bulk) => {
                let charge = decider.charge(chain, self.cost);
                let done = if in_bulk { decider.in_turn(chain, charge).await } else { charge.await };
                done.map(|done| charged(done.decision, Some(("uncovered", amount(done.uncovered)))))
            }
        }
    }
}

fn charged(decision: Decision, more: Option<(&'static str, RespReply)>) -> Checked {
    let charged_at = decision.charged_at();
    (decision, charged_at, more)
}

/// What the error says about a command that the store did not answer.
pub(super) fn failure(verb: Verb, why: &StoreError) -> RespReply {
    let done = match (verb, why.may_have_run()) {
        (Verb::Charge, true) => "it may have been charged",
        (Verb::Charge, false) => "nothing was charged",
        (_, true) => "it may have been given back",
        (_, false) => "nothing was given back",
    };
    RespReply::error(format!("UNAVAILABLE rate limiter backend error: {done}"))
}

/// A decision with the field names of the decision API.
pub(super) fn reply((decision, charged_at, more): Checked) -> RespReply {
    let mut members = members(&decision, charged_at);
    members.extend(more);
    RespReply::Map(members)
}

/// The members of a decision.
pub(super) fn members(decision: &Decision, charged_at: Option<Micros>) -> Vec<(&'static str, RespReply)> {
    let ms = |span: std::time::Duration| whole(span.as_nanos().div_ceil(1_000_000));
    let limited_by = decision.limited_by().map_or(RespReply::Nil, |name| RespReply::text(name.as_str()));
    vec![
        ("allowed", RespReply::Int(decision.allowed().into())),
        ("limit", amount(decision.binding().limit().capacity())),
        ("remaining", amount(decision.remaining())),
        ("retryAfterMs", ms(decision.retry_after())),
        ("resetAfterMs", ms(decision.reset_after())),
        ("limitedBy", limited_by),
        ("reason", RespReply::text(decision.reason().as_str())),
        ("degraded", RespReply::Int(decision.degraded().into())),
        ("at", charged_at.map_or(RespReply::Nil, |at| whole(at.get().into()))),
    ]
}

/// Takes the option of this name and its value off the end. Rules and identities may have the same name: they come before it.
pub(super) fn split_option<'a>(name: &str, arguments: &'a [Vec<u8>]) -> (&'a [Vec<u8>], Option<&'a Vec<u8>>) {
    match arguments {
        [before @ .., option, value] if before.len() >= 2 && option.eq_ignore_ascii_case(name.as_bytes()) => {
            (before, Some(value))
        }
        _ => (arguments, None),
    }
}

/// An argument that has to be text.
pub(super) fn text<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, RespReply> {
    std::str::from_utf8(bytes).map_err(|why| RespReply::error(format!("ERR {name} is no UTF-8: {why}")))
}

/// An integer, or text if it is not whole.
fn amount(amount: Amount) -> RespReply {
    match amount.micro() % Amount::MICRO_PER_TOKEN {
        0 => RespReply::Int(amount.micro() / Amount::MICRO_PER_TOKEN),
        _ => RespReply::text(amount.to_string()),
    }
}

fn whole(number: u128) -> RespReply {
    RespReply::Int(i64::try_from(number).unwrap_or(i64::MAX))
}
