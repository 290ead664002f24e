//! `POST /v1/reserve` and `POST /v1/settle`: charges whose amount is known when the work is done.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::{Request, StatusCode};
use serde::{Deserialize, Serialize};
use spile_core::{Cost, ReservationMarker};
use spile_listener::ClientBody;
use spile_policy::Chain;
use spile_tower::response;

use super::body::read_json;
use super::check::{USUAL_BYTES, only_post, reply_with_fields};
use super::json::{write_reservation, write_settled};
use super::problem::Problem;
use super::reply::HttpReply;
use crate::decide::Decider;
use crate::input::fault::Fault;
use crate::input::typed::{Object, Ttl, TypedQuestion, TypedReserve, TypedSettle, bound_of, parse};
use crate::openapi::{NotAsked, ReserveQuestion, Reserved, SettleQuestion, Settled};

/// How long a reservation can be settled unless it says otherwise.
const USUAL_TTL: Duration = Duration::from_secs(300);

/// Charges an estimate, which `/v1/settle` makes exact. Denied like a check; what is not settled in time stays charged.
#[utoipa::path(
    post,
    path = "/v1/reserve",
    tag = "decisions",
    operation_id = "reserve",
    request_body = ReserveQuestion,
    responses(Reserved, NotAsked)
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
    let marker = ReservationMarker::new(random_id(), ttl).map_err(|why| Fault::new("ttl", why))?;
    let chain = question.owed_without_permit(&decider.in_force().policy)?;
    let decision = decider.reserve(chain.as_ref(), marker).await;
    let shadow = chain.as_ref().is_some_and(Chain::is_shadow);
    let id = decision.allowed().then(|| ReservationTicket::new(marker, shadow, question).to_id());
    let mut body = Vec::with_capacity(2 * USUAL_BYTES);
    write_reservation(&mut body, &decision, id.as_deref());
    Ok(reply_with_fields(response::status(&decision), &decision, decider.wall_now(), body))
}

/// Makes a reservation cost what it did in the end, once, however often it is sent: less is given back, more is charged, into debt
/// if need be.
#[utoipa::path(
    post,
    path = "/v1/settle",
    tag = "decisions",
    operation_id = "settle",
    request_body = SettleQuestion,
    responses(Settled, NotAsked)
)]
pub(crate) async fn settle(
    decider: &Decider,
    request: &mut Request<ClientBody>,
) -> Result<HttpReply, Problem> {
    only_post(request)?;
    let body = read_json(request).await?;
    let Object(typed): Object<TypedSettle<'_>> = parse(&body)?;
    let id = typed.id.ok_or_else(|| Fault::new("id", "is missing; it takes what /v1/reserve answered"))?;
    let cost = typed.cost.ok_or_else(|| missing("cost"))?;
    let cost = Cost::new(cost.0).map_err(|why| Fault::new("cost", why))?;
    let not_an_id = || Fault::new("id", "is not the id of a reservation; it takes what /v1/reserve answered");
    let text = BASE64_URL_SAFE_NO_PAD.decode(id.as_bytes()).map_err(|_| not_an_id())?;
    let ticket: ReservationTicket<'_> = serde_json::from_slice(&text).map_err(|_| not_an_id())?;
    let marker = ticket.marker().ok_or_else(not_an_id)?;
    let chain = ticket.question.owed(&decider.in_force().policy)?;
    let chain = chain.map(|chain| chain.in_mode(ticket.shadow));
    let settled = decider.settle(chain.as_ref(), marker, cost.amount()).await;
    let (settled, decision) = settled.map_err(|_| Problem::settle_failed())?;
    let mut body = Vec::with_capacity(USUAL_BYTES);
    write_settled(&mut body, &decision, !settled.already, settled.uncovered);
    Ok(reply_with_fields(StatusCode::OK, &decision, decider.wall_now(), body))
}

/// What settling needs to know of a reservation. It is the id itself, so that every instance can settle it: the store keeps only
/// whether it is open.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ReservationTicket<'a> {
    marker: String,
    ttl_us: u64,
    /// Whether its rule was in shadow mode.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    shadow: bool,
    #[serde(borrow)]
    question: TypedQuestion<'a>,
}

impl<'a> ReservationTicket<'a> {
    fn new(marker: ReservationMarker, shadow: bool, question: TypedQuestion<'a>) -> Self {
        let ttl_us = u64::try_from(marker.ttl().as_micros()).unwrap_or(u64::MAX);
        Self { marker: format!("{:x}", marker.id()), ttl_us, shadow, question }
    }

    fn to_id(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("texts and numbers are JSON"))
    }

    fn marker(&self) -> Option<ReservationMarker> {
        let id = u128::from_str_radix(&self.marker, 16).ok()?;
        ReservationMarker::new(id, Duration::from_micros(self.ttl_us)).ok()
    }
}

fn missing(field: &str) -> Fault {
    Fault::new(field, format_args!("is missing; it takes {}", bound_of(field).unwrap_or_default()))
}

fn random_id() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    u128::from_le_bytes(bytes)
}
