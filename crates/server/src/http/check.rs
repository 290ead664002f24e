//! The decision API: check, batch, peek, refund and charge.

use futures_util::future::join_all;
use http::{HeaderMap, Method, Request, StatusCode};
use spile_core::{Charges, Decision, Key, Micros, Reason};
use spile_limiter::Ruling;
use spile_listener::ClientBody;
use spile_policy::{Owed, Policy};
use spile_tower::response;

use super::body::{read_json, read_json_up_to};
use super::json::{write_charge, write_decision, write_refund, write_status};
use super::problem::Problem;
use super::reply::{HttpReply, reply};
use crate::decide::Decider;
use crate::input::fault::Fault;
use crate::input::typed::{BoundedVec, Object, TypedMicros, TypedQuestion, TypedRefund, parse, refund_id};
use crate::openapi::{self, Charged, Decided, InvalidQuestion, PeekResponse, Questions, Refunded};

const JSON: &str = "application/json";
/// Room for a decision about one limit.
pub(super) const USUAL_BYTES: usize = 256;
/// The number of header fields of a decision, allowed or denied.
const USUAL_FIELDS: usize = 8;
/// The most questions in one batch.
const MAX_BATCH: usize = 1_000;
/// The largest question: an identity with its kind, in escapes of at most three bytes for one; as many plans as a chain has; and field
/// names, numbers and some blanks.
const MAX_QUESTION_BYTES: usize = 3 * (Key::MAX_BYTES + 10) + Charges::MAX * (64 + 4) + 256;
/// The largest batch.
const MAX_BATCH_BYTES: usize = MAX_BATCH * (MAX_QUESTION_BYTES + 2);

/// Decides: 200 allowed, 429 denied, 503 refused because the store failed; always with the decision as the body.
#[utoipa::path(
    post,
    path = "/v1/check",
    tag = "decisions",
    operation_id = "check",
    request_body = openapi::Question,
    responses(Decided, InvalidQuestion)
)]
pub(crate) async fn check(
    decider: &Decider,
    request: &mut Request<ClientBody>,
) -> Result<HttpReply, Problem> {
    only_post(request)?;
    let body = read_json(request).await?;
    let Object(typed): Object<TypedQuestion<'_>> = parse(&body)?;
    let owed = typed.owed_without_permit(&decider.in_force().policy)?;
    let ruling = decider.allow(&owed).await;
    let mut body = Vec::with_capacity(USUAL_BYTES);
    write_decision(&mut body, &ruling);
    Ok(reply_with_fields(status(&ruling), &ruling, decider.wall_now(), body))
}

/// Peeks: always 200, because a denial is a successful answer here.
#[utoipa::path(
    post,
    path = "/v1/peek",
    tag = "decisions",
    operation_id = "peek",
    request_body = openapi::Question,
    responses(PeekResponse, InvalidQuestion)
)]
pub(crate) async fn peek(decider: &Decider, request: &mut Request<ClientBody>) -> Result<HttpReply, Problem> {
    only_post(request)?;
    let body = read_json(request).await?;
    let Object(typed): Object<TypedQuestion<'_>> = parse(&body)?;
    let owed = typed.owed(&decider.in_force().policy)?;
    let ruling = decider.peek(&owed).await;
    let status = match ruling.enforced.decision().map(Decision::reason) {
        Some(Reason::FailClosed) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::OK,
    };
    let mut body = Vec::with_capacity(USUAL_BYTES);
    write_status(&mut body, &ruling);
    Ok(reply_with_fields(status, &ruling, decider.wall_now(), body))
}

/// Gives tokens back, never above a capacity, and to a quota only within the window that they were spent in (`at`); with an `id` once,
/// however often it is sent.
#[utoipa::path(
    post,
    path = "/v1/refund",
    tag = "decisions",
    operation_id = "refund",
    request_body = openapi::RefundQuestion,
    responses(Refunded, InvalidQuestion)
)]
pub(crate) async fn refund(
    decider: &Decider,
    request: &mut Request<ClientBody>,
) -> Result<HttpReply, Problem> {
    only_post(request)?;
    let body = read_json(request).await?;
    let Object(typed): Object<TypedRefund<'_>> = parse(&body)?;
    let (typed, id, at) = typed.into_parts();
    let id = id.as_deref().map(refund_id).transpose()?;
    let owed = typed.owed(&decider.in_force().policy)?;
    let refunded = decider.refund(&owed, at.map(|TypedMicros(at)| at).into(), id).await;
    let (ruling, given) = refunded.map_err(|why| Problem::refund_failed(&why))?;
    let mut body = Vec::with_capacity(USUAL_BYTES);
    write_refund(&mut body, &ruling, given);
    Ok(reply_with_fields(StatusCode::OK, &ruling, decider.wall_now(), body))
}

/// Charges usage after the fact. Always succeeds; a bucket with too few tokens goes into debt.
#[utoipa::path(
    post,
    path = "/v1/charge",
    tag = "decisions",
    operation_id = "charge",
    request_body = openapi::Question,
    responses(Charged, InvalidQuestion)
)]
pub(crate) async fn charge(
    decider: &Decider,
    request: &mut Request<ClientBody>,
) -> Result<HttpReply, Problem> {
    only_post(request)?;
    let body = read_json(request).await?;
    let Object(typed): Object<TypedQuestion<'_>> = parse(&body)?;
    let (owed, tokens) = typed.owed_late(&decider.in_force().policy)?;
    let charged = decider.charge(&owed, tokens).await;
    let (ruling, uncovered) = charged.map_err(|why| Problem::charge_failed(&why))?;
    let mut body = Vec::with_capacity(USUAL_BYTES);
    write_charge(&mut body, &ruling, uncovered);
    Ok(reply_with_fields(StatusCode::OK, &ruling, decider.wall_now(), body))
}

/// Decides a list of questions, one answer each, in order. One bad question refuses all, before any is charged.
#[utoipa::path(
    post,
    path = "/v1/check/batch",
    tag = "decisions",
    operation_id = "checkBatch",
    request_body = Questions,
    responses((status = 200, description = "One decision each, in order.", body = Vec<openapi::Decision>), InvalidQuestion)
)]
pub(crate) async fn batch(
    decider: &Decider,
    request: &mut Request<ClientBody>,
) -> Result<HttpReply, Problem> {
    only_post(request)?;
    let body = read_json_up_to(MAX_BATCH_BYTES, request).await?;
    let typed: BoundedVec<Object<TypedQuestion<'_>>, MAX_BATCH> = parse(&body.bytes)?;
    let owed = owed_by_all(&typed, &decider.in_force().policy)?;
    // Asked concurrently, so that a store across the network can answer many in one round trip, but in turn with other batches, so that
    // neither they nor single questions run out of time.
    let rulings = join_all(owed.iter().map(|owed| decider.allow_in_turn(owed))).await;
    let mut body = Vec::with_capacity(USUAL_BYTES * rulings.len());
    body.push(b'[');
    for (index, ruling) in rulings.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        write_decision(&mut body, ruling);
    }
    body.push(b']');
    Ok(reply(StatusCode::OK, HeaderMap::new(), JSON, body))
}

pub(super) fn only_post(request: &Request<ClientBody>) -> Result<(), Problem> {
    if *request.method() == Method::POST { Ok(()) } else { Err(Problem::wrong_method("POST")) }
}

fn owed_by_all(
    typed: &BoundedVec<Object<TypedQuestion<'_>>, MAX_BATCH>,
    policy: &Policy,
) -> Result<Vec<Owed>, Fault> {
    if !(1..=MAX_BATCH).contains(&typed.count) {
        let why = format_args!("holds {} questions; a batch takes 1 to {MAX_BATCH}", typed.count);
        return Err(Fault::new("body", why));
    }
    let owed = |(index, Object(typed)): (usize, &Object<TypedQuestion<'_>>)| {
        typed.owed_without_permit(policy).map_err(|fault| fault.at_index(index))
    };
    typed.items.iter().enumerate().map(owed).collect()
}

pub(super) fn reply_with_fields(
    status: StatusCode,
    ruling: &Ruling,
    wall: Micros,
    body: Vec<u8>,
) -> HttpReply {
    let mut headers = HeaderMap::with_capacity(USUAL_FIELDS);
    if let Some(decision) = ruling.enforced.decision() {
        response::write_fields(decision, wall, &mut headers);
    }
    reply(status, headers, JSON, body)
}

/// The status of a decision.
pub(super) fn status(ruling: &Ruling) -> StatusCode {
    ruling.enforced.decision().map_or(StatusCode::OK, response::status)
}
