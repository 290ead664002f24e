//! Permits as callers hold them: a text that says what it is held under, so that every instance can renew and release it.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use spile_core::{Decision, PermitId};
use spile_policy::{Chain, Policy};

use super::fault::Fault;
use super::typed::{Text, TypedQuestion};

/// What renewing and releasing need to know of a permit. The store keeps only its id.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermitTicket<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    /// Whether it was taken without the store, which did not answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    degraded: bool,
    /// Whether its rule was in shadow mode.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    shadow: bool,
    #[serde(borrow)]
    question: TypedQuestion<'a>,
}

/// A permit that a caller presents, and the chain that it is held under.
#[derive(Debug)]
pub(crate) struct PresentedPermit {
    pub(crate) id: PermitId,
    pub(crate) degraded: bool,
    /// `None` if nothing limits the question any more.
    pub(crate) chain: Option<Chain>,
}

impl<'a> PermitTicket<'a> {
    pub(crate) fn new(
        id: &'a PermitId,
        decision: &Decision,
        shadow: bool,
        question: TypedQuestion<'a>,
    ) -> Self {
        // The tokens are spent. A cost that the limits do not take any more must not keep the permit from being released.
        let question = TypedQuestion { cost: None, ..question };
        Self { id: id.as_str().into(), degraded: decision.degraded(), shadow, question }
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
        let chain = ticket.question.owed(policy)?.map(|chain| chain.in_mode(ticket.shadow));
        Ok(Self { id, degraded: ticket.degraded, chain })
    }
}
