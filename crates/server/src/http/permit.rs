//! `POST /v1/acquire`, `/v1/renew` and `/v1/release`: permits of a concurrency, which their callers renew and release by id.

use std::net::SocketAddr;

use http::{HeaderMap, Request, StatusCode};
use spile_core::PermitId;
use spile_listener::ClientBody;
use spile_policy::Chain;
use tokio::task::yield_now;

use super::body::read_json;
use super::check::{USUAL_BYTES, only_post, reply_with_fields, status};
use super::json::{write_acquired, write_released, write_renewed};
use super::problem::Problem;
use super::reply::{HttpReply, reply};
use crate::decide::{Decider, UnansweredPermit};
use crate::input::fault::Fault;
use crate::input::permit_ticket::{PermitTicket, PresentedPermit};
use crate::input::typed::{Object, TypedAcquire, TypedPermit, parse};
use crate::openapi::{AcquireQuestion, Acquired, InvalidQuestion, PermitQuestion, Released, Renewed};

const JSON: &str = "application/json";

/// Decides like a check, and takes a permit of each concurrency of the limits in the same step. A permit is held until it is
/// released, or until `holdMs` have passed since it was acquired or last renewed.
#[utoipa::path(
    post,
    path = "/v1/acquire",
    tag = "decisions",
    operation_id = "acquire",
    request_body = AcquireQuestion,
    responses(Acquired, InvalidQuestion)
)]
pub(crate) async fn acquire(
    decider: &Decider,
    peer: SocketAddr,
    request: &mut Request<ClientBody>,
) -> Result<HttpReply, Problem> {
    only_post(request)?;
    let body = read_json(request).await?;
    let Object(typed): Object<TypedAcquire<'_>> = parse(&body)?;
    let (question, holder) = typed.into_parts();
    let holder = holder.as_deref().map_or_else(|| peer.ip().to_string(), str::to_owned);
    PermitId::check_holder(&holder).map_err(|why| Fault::new("holder", why))?;
    let owed = question.owed_with_permit(&decider.in_force().policy)?;
    // Lets the connection notice that its client has hung up: then this future is dropped, and no permit is taken.
    yield_now().await;
    let (ruling, id) = decider.acquire(&owed, &holder).await;
    let permit = id.as_ref().map(|id| PermitTicket::new(id, &ruling, &owed, question).to_text());
    let hold = owed.chains().find_map(Chain::hold);
    let unanswered = id.map(|id| UnansweredPermit::new(decider, owed, id));
    yield_now().await;
    if let Some(unanswered) = unanswered {
        unanswered.answer();
    }
    let mut body = Vec::with_capacity(2 * USUAL_BYTES);
    write_acquired(&mut body, &ruling, permit.as_deref().zip(hold));
    Ok(reply_with_fields(status(&ruling), &ruling, decider.wall_now(), body))
}

/// Keeps a permit for another hold time.
#[utoipa::path(
    post,
    path = "/v1/renew",
    tag = "decisions",
    operation_id = "renew",
    request_body = PermitQuestion,
    responses(Renewed, InvalidQuestion)
)]
pub(crate) async fn renew(
    decider: &Decider,
    request: &mut Request<ClientBody>,
) -> Result<HttpReply, Problem> {
    let permit = presented(decider, request).await?;
    let renewed = decider.renew(&permit).await.map_err(|_| Problem::renew_failed())?;
    let hold = renewed.ok_or_else(Problem::not_held)?;
    let mut body = Vec::with_capacity(USUAL_BYTES);
    write_renewed(&mut body, hold);
    Ok(reply(StatusCode::OK, HeaderMap::new(), JSON, body))
}

/// Ends a permit, so that another can have its place.
#[utoipa::path(
    post,
    path = "/v1/release",
    tag = "decisions",
    operation_id = "release",
    request_body = PermitQuestion,
    responses(Released, InvalidQuestion)
)]
pub(crate) async fn release(
    decider: &Decider,
    request: &mut Request<ClientBody>,
) -> Result<HttpReply, Problem> {
    let permit = presented(decider, request).await?;
    let released = decider.release(&permit).await.map_err(|_| Problem::release_failed())?;
    let mut body = Vec::with_capacity(USUAL_BYTES);
    write_released(&mut body, released);
    Ok(reply(StatusCode::OK, HeaderMap::new(), JSON, body))
}

async fn presented(decider: &Decider, request: &mut Request<ClientBody>) -> Result<PresentedPermit, Problem> {
    only_post(request)?;
    let body = read_json(request).await?;
    let Object(typed): Object<TypedPermit<'_>> = parse(&body)?;
    let permit = typed
        .permit
        .ok_or_else(|| Fault::new("permit", "is missing; it takes the `permit` that /v1/acquire answered"))?;
    Ok(PresentedPermit::parse(permit.as_bytes(), &decider.in_force().policy)?)
}
