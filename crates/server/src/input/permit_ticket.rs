//! Permits as callers hold them: a text that lists the places, so that every instance can renew and release them.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use spile_core::{Decision, PermitId};
use spile_limiter::Ruling;
use spile_policy::{Chain, Owed, Policy};

use super::fault::Fault;
use super::recorded_chain::RecordedChain;
use super::typed::{Text, TypedQuestion};

/// A permit as a caller holds it. Its random id authorises its use: the store keeps only the id, in the sets of its places.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermitTicket<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    /// Whether it was taken without the store, which did not answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    degraded: bool,
    #[serde(borrow)]
    places: RecordedChain<'a>,
}

/// A permit that a caller presents, and the chain of its places.
#[derive(Debug)]
pub(crate) struct PresentedPermit {
    pub(crate) id: PermitId,
    pub(crate) degraded: bool,
    pub(crate) chain: Chain,
}

impl<'a> PermitTicket<'a> {
    pub(crate) fn new(id: &'a PermitId, ruling: &Ruling, owed: &Owed, question: TypedQuestion<'a>) -> Self {
        let places = RecordedChain::new(owed, true, question);
        let degraded = ruling.enforced.decision().is_some_and(Decision::degraded);
        Self { id: id.as_str().into(), degraded, places }
    }

    pub(crate) fn to_text(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("texts and numbers are JSON"))
    }
}

impl PresentedPermit {
    /// Reads what [`PermitTicket::to_text`] wrote.
    pub(crate) fn parse(text: &[u8], policy: &Policy) -> Result<Self, Fault> {
        let not_one =
            || Fault::new("permit", "is not a permit; it takes the `permit` of an acquire, as it was");
        let json = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| not_one())?;
        let ticket: PermitTicket<'_> = serde_json::from_slice(&json).map_err(|_| not_one())?;
        let id = PermitId::parse(&ticket.id).map_err(|_| not_one())?;
        let (chain, all_in_force) = ticket.places.restore(policy).ok_or_else(not_one)?;
        // A permit that the store does not know takes a place only of limits in force.
        Ok(Self { id, degraded: ticket.degraded && all_in_force, chain })
    }
}
