//! `POST /v1/reserve` and `POST /v1/settle`: charges whose amount is known when the work is done.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::{Request, StatusCode};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use spile_core::{Amount, Cost, DecisionSource, Reason, ReservationId, ReservationTtlError};
use spile_limiter::SettleError;
use spile_listener::ClientBody;
use spile_policy::{BucketCharge, Chain, Owed, Policy};

use super::body::read_json;
use super::check::{USUAL_BYTES, only_post, reply_with_fields, status};
use super::json::{write_reservation, write_settled};
use super::problem::Problem;
use super::reply::HttpReply;
use crate::decide::Decider;
use crate::input::fault::Fault;
use crate::input::recorded_chain::RecordedChain;
use crate::input::tokens::TypedTokens;
use crate::input::typed::{Object, Ttl, TypedQuestion, TypedReserve, TypedSettle, bound_of, parse};
use crate::openapi::{InvalidQuestion, ReserveQuestion, Reserved, SettleQuestion, Settled};

/// How long a reservation can be settled by default.
const USUAL_TTL: Duration = Duration::from_secs(300);

/// Charges an estimate, which `/v1/settle` makes exact. Denied like a check; a reservation that is not settled in time stays charged.
#[utoipa::path(
    post,
    path = "/v1/reserve",
    tag = "decisions",
    operation_id = "reserve",
    request_body = ReserveQuestion,
    responses(Reserved, InvalidQuestion)
)]
pub(crate) async fn reserve(
    decider: &Decider,
    request: &mut Request<ClientBody>,
) -> Result<HttpReply, Problem> {
    only_post(request)?;
    let body = read_json(request).await?;
    let Object(typed): Object<TypedReserve<'_>> = parse(&body)?;
    let (question, ttl) = typed.into_parts();
    let ttl = ttl.map_or(USUAL_TTL, |Ttl(ttl)| ttl);
    let owed = question.owed_without_permit(&decider.in_force().policy)?;
    let ticket = ReservationTicket::new(ttl, &owed, question);
    let (text, id) = ticket.to_text()?;
    let ruling = decider.reserve(&owed, id).await;
    let is_reserved = ruling.decisions().any(|decision| {
        let by_store = decision.reason() == Reason::Ok && decision.source() == DecisionSource::Store;
        by_store || decision.may_have_run()
    });
    let text = match (is_reserved, ruling.allowed()) {
        (true, _) => Some(text),
        // It may pass although the store has reserved nothing, which is settled by doing nothing.
        (false, true) => {
            Some(ReservationTicket { charges: ticket.charges.without_charges(), ..ticket }.to_text()?.0)
        }
        (false, false) => None,
    };
    let mut body = Vec::with_capacity(2 * USUAL_BYTES);
    write_reservation(&mut body, &ruling, text.as_deref());
    Ok(reply_with_fields(status(&ruling), &ruling, decider.wall_now(), body))
}

/// Settles a reservation at its final cost, once and by one amount, however often it is sent: a lower cost is refunded, a higher one is
/// charged, into debt if necessary. Each limit that it charged is settled at `cost`, or at its entry in `costs`, even if rules and plans
/// have changed since.
#[utoipa::path(
    post,
    path = "/v1/settle",
    tag = "decisions",
    operation_id = "settle",
    request_body = SettleQuestion,
    responses(Settled, InvalidQuestion)
)]
pub(crate) async fn settle(
    decider: &Decider,
    request: &mut Request<ClientBody>,
) -> Result<HttpReply, Problem> {
    only_post(request)?;
    let body = read_json(request).await?;
    let Object(typed): Object<TypedSettle<'_>> = parse(&body)?;
    let text = typed
        .id
        .as_deref()
        .ok_or_else(|| Fault::new("id", "is missing; it takes what /v1/reserve answered"))?;
    let TypedSettle { cost, costs, .. } = typed;
    if cost.is_none() && costs.is_none() {
        let bound = bound_of("cost").unwrap_or_default();
        return Err(Fault::new(
            "cost",
            format_args!("is missing; it takes {bound}; `costs` has one per limit"),
        )
        .into());
    }
    let cost = cost.map(|cost| checked("cost", cost)).transpose()?;
    let (owed, id) =
        ReservationTicket::parse(text.as_bytes(), &decider.in_force().policy).ok_or_else(|| {
            Fault::new("id", "is not the id of a reservation; it takes what /v1/reserve answered")
        })?;
    let costs = costs.unwrap_or_default();
    for (name, cost) in &costs {
        let buckets = owed.chains().flat_map(Chain::buckets);
        let names: Vec<_> = buckets.map(|bucket| bucket.limit().name().unshadowed()).collect();
        if names.iter().all(|known| known != name) {
            let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let why = format_args!("has `{name}`, which is no limit of the reservation; it has {names}");
            return Err(Fault::new("costs", why).into());
        }
        checked("costs", *cost)?;
    }
    let cost = |bucket: &BucketCharge| match costs.get(bucket.limit().name().unshadowed()) {
        Some(cost) => cost.0,
        // A limit that is not named keeps its amount.
        None => cost.map_or(bucket.cost(), |cost| bucket.cost_at(cost)),
    };
    let (settled, ruling) = decider.settle(&owed, id, cost).await.map_err(|why| match why {
        SettleError::Expired => Problem::reservation_expired(),
        SettleError::Unknown => Problem::reservation_unknown(),
        _ => Problem::settle_failed(),
    })?;
    let mut body = Vec::with_capacity(USUAL_BYTES);
    write_settled(&mut body, &ruling, &settled);
    Ok(reply_with_fields(StatusCode::OK, &ruling, decider.wall_now(), body))
}

/// The charges of a reservation. They are the id that its caller gets, so that every instance can settle it.
///
/// The store knows it by a hash of this text: any change makes it another reservation, which the store does not have.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ReservationTicket<'a> {
    random: String,
    ttl_us: u64,
    #[serde(borrow)]
    charges: RecordedChain<'a>,
}

impl<'a> ReservationTicket<'a> {
    fn new(ttl: Duration, owed: &Owed, question: TypedQuestion<'a>) -> Self {
        let mut random = [0; 16];
        getrandom::fill(&mut random).expect("the system has random numbers");
        let ttl_us = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
        let random = BASE64_URL_SAFE_NO_PAD.encode(random);
        Self { random, ttl_us, charges: RecordedChain::new(owed, false, question) }
    }

    /// The text, and the id by which the store knows it.
    fn to_text(&self) -> Result<(String, ReservationId), Fault> {
        let json = serde_json::to_vec(self).expect("texts and numbers are JSON");
        let id = self.id_of(&json).map_err(|why| Fault::new("ttl", why))?;
        Ok((BASE64_URL_SAFE_NO_PAD.encode(json), id))
    }

    /// The charges under the limits in force, as far as any were made, and the id. `None` if the text is not a ticket.
    fn parse(text: &[u8], policy: &Policy) -> Option<(Owed, ReservationId)> {
        let json = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let ticket: ReservationTicket<'_> = serde_json::from_slice(&json).ok()?;
        let owed = match ticket.charges.restore(policy) {
            Some((chain, _)) => chain.into(),
            None if ticket.charges.is_empty() => Owed::default(),
            None => return None,
        };
        Some((owed, ticket.id_of(&json).ok()?))
    }

    fn id_of(&self, json: &[u8]) -> Result<ReservationId, ReservationTtlError> {
        let hash = Sha256::digest(json);
        let number = hash.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes));
        ReservationId::new(number, Duration::from_micros(self.ttl_us))
    }
}

fn checked(field: &'static str, TypedTokens(amount): TypedTokens) -> Result<Amount, Fault> {
    Cost::new(amount).map(Cost::amount).map_err(|why| Fault::new(field, why))
}
