//! The description of both listeners in `OpenAPI` 3.1: generated from the code, served at `/openapi.json`, and printed by `spile
//! openapi`. Tests compare it with the behaviour of the listeners.
//!
//! The admin listener's routes and their descriptions come from the same lines. The decision API is routed by a separate table, and a
//! test compares the two.

mod clients;
mod decisions;
mod entries;
mod headers;
mod problems;

use utoipa::OpenApi as _;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{OpenApi, PathItem, Server};

pub(crate) use self::decisions::{
    AcquireQuestion, Acquired, Charged, Decided, Decision, Forwarded, InvalidQuestion, Limited, PeekResponse,
    PermitQuestion, Question, Questions, RefundQuestion, Refunded, Released, Renewed, ReserveQuestion,
    Reserved, SettleQuestion, Settled,
};
use self::decisions::{
    Acquisition, Charge, LostPermit, Pong, Refund, Refusal, Release, Renewal, Reservation, Settlement,
    UnsettledReservation,
};
pub(crate) use self::entries::{Conditions, CreatedResponse, DeleteConditions, PutResponse, ShowResponse};
pub(crate) use self::problems::{
    AuthErrors, BadName, CreateErrors, DeleteErrors, Missing, NoOtherMethod, Problem, PutErrors, SaveErrors,
    StoreFailed,
};
use crate::{auth, http};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Spile",
        description = "A distributed token-bucket rate limiter. The decision API answers callers on the listener \
                       `http`, everything else operators on the listener `admin`.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    servers((url = "http://127.0.0.1:8081", description = "The listener `admin`.")),
    tags(
        (name = "decisions", description = "May this key spend so many tokens under these limits?"),
        (name = "registry", description = "Plans, rules and tenants, changed while the server runs."),
        (name = "buckets", description = "The state of the buckets of a key."),
        (name = "server", description = "Configuration, store and health."),
        (name = "dashboard", description = "What happens now, and what happened in the last day."),
    ),
    components(schemas(
        Acquisition,
        Charge,
        Decision,
        LostPermit,
        UnsettledReservation,
        Pong,
        Problem,
        Refund,
        Refusal,
        Release,
        Renewal,
        Reservation,
        Settlement
    ))
)]
struct AllPaths;

#[derive(utoipa::OpenApi)]
#[openapi(paths(
    http::check::check,
    http::check::batch,
    http::check::peek,
    http::check::refund,
    http::check::charge,
    http::reservation::reserve,
    http::reservation::settle,
    http::permit::acquire,
    http::permit::renew,
    http::permit::release,
    auth::by_rule,
    auth::by_match,
    http::ping::ping,
))]
struct Decisions;

/// The whole document.
pub(crate) fn document() -> OpenApi {
    let mut document = AllPaths::openapi();
    document.merge(decisions_document());
    document.merge(crate::admin::document());
    document.paths.paths.values_mut().for_each(misdirects);
    clients::adapt(&mut document);
    let token = Http::builder()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("The token of `SPILE_ADMIN_TOKEN` or `admin.token_file`."));
    let components = document.components.get_or_insert_default();
    for (name, header) in headers::all() {
        components.headers.insert(name.to_owned(), header.into());
    }
    components.add_security_scheme("token", SecurityScheme::Http(token.build()));
    document
}

/// The part of the document about the decision API.
pub(crate) fn decisions_document() -> OpenApi {
    on_http(Decisions::openapi())
}

/// The document as it is served and printed.
pub(crate) fn json() -> String {
    let mut text = document().to_pretty_json().expect("the document is made of text and numbers");
    text.push('\n');
    text
}

/// Adds the answer of every listener to a request for another host.
fn misdirects(item: &mut PathItem) {
    for (_, operation) in clients::operations(item) {
        let words =
            "The listener is bound to loopback, and `Host` is neither a name of it nor in `listen.hosts`.";
        operation.responses.responses.extend([problems::problem(421, words, &[])]);
    }
}

/// Marks each path as one of the other listener.
fn on_http(mut document: OpenApi) -> OpenApi {
    let mut server = Server::new("http://127.0.0.1:8080");
    server.description = Some("The listener `http`.".to_owned());
    for item in document.paths.paths.values_mut() {
        item.servers = Some(vec![server.clone()]);
    }
    document
}
