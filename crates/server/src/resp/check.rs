//! `SPILE.CHECK rule identity [cost]`, `SPILE.PEEK` and `SPILE.REFUND … [ID id]`: the decision API over the Redis protocol.

use spile_core::{Decision, RefundId, StoreError};
use spile_policy::{Chain, Policy};

use super::reply::RespReply;
use crate::decide::Decider;

/// What a command does with the charges of a rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verb {
    Check,
    Peek,
    Refund,
}

impl Verb {
    /// The arguments of its command.
    const fn arguments(self) -> &'static str {
        match self {
            Self::Check | Self::Peek => "rule identity [cost]",
            Self::Refund => "rule identity [cost] [ID id]",
        }
    }
}

/// A command about a rule.
#[derive(Debug)]
pub(super) struct Check<'a> {
    verb: Verb,
    rule: &'a str,
    identity: &'a str,
    cost: Option<u64>,
    id: Option<RefundId<'a>>,
}

impl<'a> Check<'a> {
    /// Reads the arguments after the name of the command.
    pub(super) fn parse(verb: Verb, arguments: &'a [Vec<u8>]) -> Result<Self, RespReply> {
        let (arguments, id) = match arguments {
            [before @ .., name, id] if verb == Verb::Refund && name.eq_ignore_ascii_case(b"id") => {
                (before, Some(id))
            }
            _ => (arguments, None),
        };
        let (rule, identity, cost) = match arguments {
            [rule, identity] => (rule, identity, None),
            [rule, identity, cost] => (rule, identity, Some(cost)),
            _ => {
                return Err(RespReply::error(format!("ERR wrong number of arguments: {}", verb.arguments())));
            }
        };
        let text = |name: &str, bytes: &'a [u8]| {
            std::str::from_utf8(bytes)
                .map_err(|why| RespReply::error(format!("ERR {name} is no UTF-8: {why}")))
        };
        let cost = cost.map(|cost| {
            let number = std::str::from_utf8(cost).ok().and_then(|text| text.parse().ok());
            number.ok_or_else(|| RespReply::error("ERR cost is no whole number from 0 to 1000000000"))
        });
        let id = id.map(|id| {
            RefundId::new(text("id", id)?).map_err(|why| RespReply::error(format!("ERR id: {why}")))
        });
        let (rule, identity) = (text("rule", rule)?, text("identity", identity)?);
        Ok(Self { verb, rule, identity, cost: cost.transpose()?, id: id.transpose()? })
    }

    /// The charges. `None` if no limit applies.
    pub(super) fn owed(&self, policy: &Policy) -> Result<Option<Chain>, RespReply> {
        let owed = policy.owed_by_identity(self.rule, self.identity, self.cost);
        owed.map_err(|wrong| RespReply::error(format!("ERR {}: {wrong}", wrong.field())))
    }

    /// Asks the decider, and says of a refund whether it was given now.
    pub(super) async fn run(
        &self,
        decider: &Decider,
        chain: Option<&Chain>,
        in_bulk: bool,
    ) -> Result<(Decision, Option<bool>), StoreError> {
        match (self.verb, in_bulk) {
            (Verb::Check, false) => Ok((decider.allow_chain(chain).await, None)),
            (Verb::Check, true) => Ok((decider.allow_in_turn(chain).await, None)),
            (Verb::Peek, false) => Ok((decider.peek(chain).await, None)),
            (Verb::Peek, true) => Ok((decider.in_turn(chain, decider.peek(chain)).await, None)),
            (Verb::Refund, in_bulk) => {
                let refund = decider.refund_once(chain, self.id);
                let refunded = if in_bulk { decider.in_turn(chain, refund).await } else { refund.await };
                refunded.map(|(decision, given)| (decision, Some(given)))
            }
        }
    }
}

/// A decision with the field names of the decision API, and for a refund whether it was given now.
pub(super) fn reply(decision: &Decision, refunded: Option<bool>) -> RespReply {
    let whole = |number: u128| RespReply::Int(i64::try_from(number).unwrap_or(i64::MAX));
    let ms = |span: std::time::Duration| whole(span.as_nanos().div_ceil(1_000_000));
    let limited_by = decision.limited_by().map_or(RespReply::Nil, |name| RespReply::text(name.as_str()));
    let mut parts = vec![
        ("allowed", RespReply::Int(decision.allowed().into())),
        ("limit", whole(decision.binding().limit().capacity().into())),
        ("remaining", whole(decision.remaining().into())),
        ("retryAfterMs", ms(decision.retry_after())),
        ("resetAfterMs", ms(decision.reset_after())),
        ("limitedBy", limited_by),
        ("reason", RespReply::text(decision.reason().as_str())),
        ("degraded", RespReply::Int(decision.degraded().into())),
    ];
    parts.extend(refunded.map(|given| ("refunded", RespReply::Int(given.into()))));
    RespReply::Map(parts)
}
