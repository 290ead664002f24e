//! `SPILE.CHECK rule identity [cost]`, `SPILE.PEEK`, `SPILE.CHARGE` and `SPILE.REFUND … [ID id] [AT at]`: the decision API over the
//! Redis protocol.

use std::time::Duration;

use spile_core::{Amount, Cost, Decision, LimitName, Micros, RefundId, SpendTime, StoreError};
use spile_limiter::Ruling;
use spile_policy::{Owed, Policy};

use super::reply::RespReply;
use crate::decide::Decider;

/// The use that a command makes of the charges of a rule.
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

/// The decision of a command, whether it charged, and for a refund whether it was given now, for a late charge the amount beyond every
/// debt.
pub(super) type Checked = (Ruling, bool, Option<(&'static str, RespReply)>);

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

    /// Returns the charges of the command.
    pub(super) fn owed(&self, policy: &Policy) -> Result<Owed, RespReply> {
        // Usage may cost more than a limit can hold.
        let cost = self.cost.map(|cost| if self.verb == Verb::Charge { Amount::ZERO } else { cost.amount() });
        let owed = policy.owed_by_identity(self.rule, self.identity, cost);
        let owed = owed.map_err(|wrong| RespReply::error(format!("ERR {}: {wrong}", wrong.field())))?;
        if self.verb == Verb::Check {
            return owed.without_permit().map_err(|wrong| RespReply::error(format!("ERR ruleId: {wrong}")));
        }
        Ok(owed)
    }

    /// Asks the decider.
    pub(super) async fn run(
        &self,
        decider: &Decider,
        owed: &Owed,
        in_bulk: bool,
    ) -> Result<Checked, StoreError> {
        let buckets = owed.bucket_count();
        match (self.verb, in_bulk) {
            // A permit is acquired elsewhere.
            (Verb::Check | Verb::Acquire, false) => Ok((decider.allow(owed).await, true, None)),
            (Verb::Check | Verb::Acquire, true) => Ok((decider.allow_in_turn(owed).await, true, None)),
            (Verb::Peek, false) => Ok((decider.peek(owed).await, false, None)),
            (Verb::Peek, true) => Ok((decider.in_turn(buckets, decider.peek(owed)).await, false, None)),
            (Verb::Refund, in_bulk) => {
                let refund = decider.refund(owed, self.spent, self.id);
                let refunded = if in_bulk { decider.in_turn(buckets, refund).await } else { refund.await };
                let (ruling, given) = refunded?;
                Ok((ruling, false, Some(("refunded", RespReply::Int(given.into())))))
            }
            (Verb::Charge, in_bulk) => {
                let charge = decider.charge(owed, self.cost);
                let charged = if in_bulk { decider.in_turn(buckets, charge).await } else { charge.await };
                let (ruling, uncovered) = charged?;
                Ok((ruling, true, Some(("uncovered", amount(uncovered)))))
            }
        }
    }
}

/// The error for a command that the store did not answer.
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
pub(super) fn reply((ruling, charged, more): Checked) -> RespReply {
    let mut members = members(&ruling, charged);
    members.extend(more);
    RespReply::Map(members)
}

/// The members of a decision, with the time at which it was `charged` if it was.
pub(super) fn members(ruling: &Ruling, charged: bool) -> Vec<(&'static str, RespReply)> {
    let decision = ruling.enforced.decision();
    let shown = |value: fn(&Decision) -> RespReply| decision.map_or(RespReply::Nil, value);
    let span = |value: fn(&Decision) -> Duration| ms(decision.map_or(Duration::ZERO, value));
    let at = decision.filter(|_| charged).and_then(Decision::charged_at);
    let mut members = vec![
        ("allowed", RespReply::Int(ruling.allowed().into())),
        ("limit", shown(|decision| amount(decision.binding().limit().capacity()))),
        ("remaining", shown(|decision| amount(decision.remaining()))),
        ("retryAfterMs", span(Decision::retry_after)),
        ("resetAfterMs", span(Decision::reset_after)),
        ("limitedBy", name(decision.and_then(Decision::limited_by).map(LimitName::as_str))),
        ("reason", RespReply::text(ruling.reason())),
        ("degraded", RespReply::Int(decision.is_some_and(Decision::degraded).into())),
        ("at", at.map_or(RespReply::Nil, |at| whole(at.get().into()))),
    ];
    let shadow = ruling.shadow.first().map(|watched| {
        RespReply::Map(vec![
            ("ruleId", RespReply::text(&*watched.rule)),
            ("allowed", RespReply::Int(watched.would_allow().into())),
            ("limitedBy", name(watched.limited_by())),
            ("retryAfterMs", ms(watched.retry_after())),
        ])
    });
    members.extend(shadow.map(|shadow| ("shadow", shadow)));
    members
}

fn name(name: Option<&str>) -> RespReply {
    name.map_or(RespReply::Nil, RespReply::text)
}

/// Milliseconds, rounded up: a caller who waits that long is let in.
fn ms(span: Duration) -> RespReply {
    whole(span.as_nanos().div_ceil(1_000_000))
}

/// Removes the option of this name and its value from the end. Rules and identities may have the same name, but come before it.
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
    std::str::from_utf8(bytes).map_err(|why| RespReply::error(format!("ERR {name} is not UTF-8: {why}")))
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
