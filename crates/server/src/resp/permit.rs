//! `SPILE.ACQUIRE rule identity [cost] [HOLDER name]`, `SPILE.RENEW permit` and `SPILE.RELEASE permit`: permits of a concurrency.

use std::time::Duration;

use spile_core::PermitId;
use spile_limiter::Ruling;
use spile_policy::{Chain, Owed, Policy};

use super::check::{self, Check, Verb};
use super::reply::RespReply;
use crate::decide::Decider;
use crate::input::permit_ticket::{PermitTicket, PresentedPermit};
use crate::input::typed::TypedQuestion;

/// The use that a command makes of an existing permit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PermitVerb {
    Renew,
    Release,
}

/// A command that takes a permit.
#[derive(Debug)]
pub(super) struct Acquire<'a> {
    check: Check<'a>,
    holder: &'a str,
}

impl<'a> Acquire<'a> {
    /// Reads the arguments after the name of the command. A holder that is not named is called `usual_holder`.
    pub(super) fn parse(arguments: &'a [Vec<u8>], usual_holder: &'a str) -> Result<Self, RespReply> {
        let (arguments, holder) = check::split_option("holder", arguments);
        let check = Check::parse(Verb::Acquire, arguments)?;
        let holder = holder.map_or(Ok(usual_holder), |holder| check::text("holder", holder))?;
        PermitId::check_holder(holder).map_err(|why| RespReply::error(format!("ERR holder: {why}")))?;
        Ok(Self { check, holder })
    }

    /// Returns the charges of the command.
    pub(super) fn owed(&self, policy: &Policy) -> Result<Owed, RespReply> {
        self.check.owed(policy)
    }

    /// Asks the decider.
    pub(super) async fn run(
        &self,
        decider: &Decider,
        owed: &Owed,
        in_bulk: bool,
    ) -> (Ruling, Option<PermitId>) {
        let acquired = decider.acquire(owed, self.holder);
        if in_bulk { decider.in_turn(owed.bucket_count(), acquired).await } else { acquired.await }
    }

    /// The decision and the permit, with the field names of the decision API.
    pub(super) fn reply(&self, owed: &Owed, ruling: &Ruling, id: Option<&PermitId>) -> RespReply {
        let permit = id.map(|id| {
            let question = TypedQuestion {
                rule_id: Some(self.check.rule().into()),
                identity: Some(self.check.identity().into()),
                ..TypedQuestion::default()
            };
            RespReply::text(PermitTicket::new(id, ruling, owed, question).to_text())
        });
        let hold = owed.chains().find_map(Chain::hold).filter(|_| id.is_some());
        let mut members = check::members(ruling, true);
        members.push(("permit", permit.unwrap_or(RespReply::Nil)));
        members.push(("holdMs", hold.map_or(RespReply::Nil, ms)));
        members.push(("renewAfterMs", hold.map_or(RespReply::Nil, |hold| ms(hold / 3))));
        RespReply::Map(members)
    }
}

/// Renews or releases the permit that is the only argument.
pub(super) async fn answer(
    verb: PermitVerb,
    arguments: &[Vec<u8>],
    decider: &Decider,
    policy: &Policy,
    in_bulk: bool,
) -> Result<RespReply, RespReply> {
    let [permit] = arguments else { return Err(RespReply::error("ERR wrong number of arguments: permit")) };
    let permit = PresentedPermit::parse(permit, policy);
    let permit = permit.map_err(|wrong| RespReply::error(format!("ERR {wrong}")))?;
    let unavailable =
        |_| RespReply::error("UNAVAILABLE rate limiter backend error: send it again, it is done once");
    match verb {
        PermitVerb::Renew => {
            let renew = decider.renew(&permit);
            let buckets = permit.chain.buckets().len();
            let hold = if in_bulk { decider.in_turn(buckets, renew).await } else { renew.await };
            let hold = hold
                .map_err(unavailable)?
                .ok_or_else(|| RespReply::error("GONE permit: it is not held any more; acquire another"))?;
            let members =
                [("renewed", RespReply::Int(1)), ("holdMs", ms(hold)), ("renewAfterMs", ms(hold / 3))];
            Ok(RespReply::Map(members.into()))
        }
        PermitVerb::Release => {
            let release = decider.release(&permit);
            let buckets = permit.chain.buckets().len();
            let released = if in_bulk { decider.in_turn(buckets, release).await } else { release.await };
            let released = released.map_err(unavailable)?;
            Ok(RespReply::Map(vec![("released", RespReply::Int(released.into()))]))
        }
    }
}

fn ms(span: Duration) -> RespReply {
    RespReply::Int(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
}
