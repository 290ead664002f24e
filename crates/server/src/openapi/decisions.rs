//! Questions and decisions as callers write and read them.
//!
//! Questions are read and decisions written by hand, for speed; these types describe both in the document. Tests below keep them in step
//! with the code that reads and writes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spile_core::{PermitId, RefundId};
use utoipa::openapi::schema::{AnyOfBuilder, KnownFormat, SchemaFormat, SchemaType};
use utoipa::openapi::{
    Content, ObjectBuilder, OneOfBuilder, Ref, RefOr, Response, ResponseBuilder, Schema, Type,
};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::headers::{self, LIMITED, REFUSED};
use super::problems::{Problem, answers, other_method, problem};
use crate::decide::explanation::ShadowOutcome;
use crate::input::tokens::Tokens;

type Responses = BTreeMap<String, RefOr<Response>>;

/// Who pays, and under what: a rule, plans, or a limit of the caller's own. Members that are `null` count as absent.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Question {
    Rule(ByRule),
    Plans(ByPlans),
    OwnLimit(ByOwnLimit),
}

/// The rule determines the plans, the cost and the failure policy.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(examples(json!({"ruleId": "login", "identity": "1.2.3.4"})))]
pub(crate) struct ByRule {
    /// The rule.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$", format = "rule-id")]
    rule_id: String,
    /// Who pays: 1 to 1024 bytes of text without control characters. A tenant is written `tenant:ID`.
    #[schema(min_length = 1, max_length = 1024, format = "identity", examples("user:123"))]
    identity: String,
    /// Tokens to spend, in place of the rule's cost; 0 looks without spending. At most the capacity of each limit.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000_000)]
    cost: Option<Tokens>,
}

/// A chain: all of the plans' limits are charged, or none is.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(examples(json!({"identity": "user:123", "plans": ["gold", "daily"], "cost": 1})))]
pub(crate) struct ByPlans {
    /// Who pays.
    #[schema(min_length = 1, max_length = 1024, format = "identity", examples("user:123"))]
    identity: String,
    /// The plans, with 32 limits in all at the most. One that is named twice is charged once.
    #[schema(min_items = 1, max_items = 32)]
    plans: Vec<KnownPlan>,
    /// Tokens to spend, 1 by default; 0 looks without spending. At most the capacity of each limit.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000_000)]
    cost: Option<Tokens>,
}

/// The name of an existing plan.
#[derive(Eq, Ord, PartialEq, PartialOrd, Deserialize, Serialize, ToSchema)]
#[schema(
    min_length = 1,
    max_length = 64,
    pattern = "^[A-Za-z0-9._-]+$",
    format = "plan-name",
    examples("gold")
)]
pub(crate) struct KnownPlan(String);

/// A limit of the caller's own. It has the name of the rule, or `own/ID` if a plan has that name.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(examples(json!({"ruleId": "x", "identity": "y", "capacity": 10, "refillPerSecond": 0.5})))]
pub(crate) struct ByOwnLimit {
    /// The name of the limit. A rule of that id sets the policy while the store fails.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$")]
    rule_id: String,
    /// Who pays.
    #[schema(min_length = 1, max_length = 1024, format = "identity", examples("user:123"))]
    identity: String,
    /// The most tokens that can be spent at once.
    #[schema(value_type = f64, minimum = 1, maximum = 1_000_000_000)]
    capacity: Tokens,
    /// Tokens that come back per second, with at most six decimals. A drained bucket must be full within ten years.
    #[schema(value_type = f64, minimum = 0.000_001, maximum = 1_000_000_000)]
    refill_per_second: Tokens,
    /// Tokens to spend, 1 by default; 0 looks without spending. At most the capacity.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000_000)]
    cost: Option<Tokens>,
}

/// Questions that are asked together.
#[derive(ToSchema)]
#[schema(min_items = 1, max_items = 1000)]
#[expect(dead_code, reason = "questions are read by hand")]
pub(crate) struct Questions(Vec<Question>);

/// Defines a type whose schema is another one with more members.
macro_rules! composed {
    ($(#[$doc:meta])* $name:ident of $whole:ty = $schema:expr;) => {
        $(#[$doc])*
        pub(crate) enum $name {}

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                $schema
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                <$whole>::schemas(schemas);
            }
        }
    };
}

composed! {
    /// A question, the id of the refund, and when the tokens were spent. An id is remembered for an hour for each key, and refunded once.
    RefundQuestion of Question = question_with(&[("id", ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .description(Some("What tells this refund from others of the same key: it is given once."))
        .min_length(Some(1))
        .max_length(Some(RefundId::MAX_BYTES))
        .format(Some(SchemaFormat::Custom("refund-id".to_owned())))
        .examples(["order-7"]).into()), ("at", ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Integer, Type::Null]))
        .description(Some("The `at` of the decision that spent them. A quota takes nothing back from another window, nor if it is left out."))
        .minimum(Some(0))
        .into())]);
}

composed! {
    /// A question, and how long the reservation can be settled: 1 second to 1 day.
    ReserveQuestion of Question = question_with(&[("ttl", ttl())]);
}

composed! {
    /// A question, and who holds the permit.
    AcquireQuestion of Question = question_with(&[("holder", ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .description(Some("Who holds it, as operators see it: 0 to 64 bytes without control characters. The address that asks if it is left out."))
        .max_length(Some(PermitId::MAX_HOLDER_BYTES))
        .format(Some(SchemaFormat::Custom("holder".to_owned())))
        .examples(["worker-3"]).into())]);
}

/// A permit.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({"permit": "eyJpZCI6IjAxOWE5MmQ5MmUwMDAwMDAwMDAwMDAwMDAwMDAwMDA3IiwicGxhY2VzIjp7InF1ZXN0aW9uIjp7InJ1bGVJZCI6ImRlZmF1bHQiLCJpZGVudGl0eSI6InVzZXI6MTIzIiwiY29zdCI6MH0sImtleXMiOlsidXNlcjoxMjMiXSwiYnVja2V0cyI6W3sia2V5IjowLCJuYW1lIjoiam9icyIsImxpbWl0Ijp7ImNvbmN1cnJlbmN5Ijo1fSwiY29zdCI6MSwiZml4ZWQiOnRydWV9XX19"})))]
#[expect(dead_code, reason = "it is read by hand")]
pub(crate) struct PermitQuestion {
    /// The id in the answer of `/v1/acquire`.
    #[schema(min_length = 1, format = "permit")]
    permit: String,
}

/// The id of a reservation, and its final cost.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({"id": "eyJyYW5kb20iOiJxZ2Z4WWJwTFJtLVFyWjRfYzhyUjNBIiwidHRsX3VzIjo5MDAwMDAwMCwiY2hhcmdlcyI6eyJxdWVzdGlvbiI6eyJydWxlSWQiOiJkZWZhdWx0IiwiaWRlbnRpdHkiOiJ1c2VyOjEyMyIsImNvc3QiOjB9LCJrZXlzIjpbInVzZXI6MTIzIl0sImJ1Y2tldHMiOlt7ImtleSI6MCwibmFtZSI6ImZyZWUiLCJsaW1pdCI6eyJjYXBhY2l0eSI6MTAsInJlZmlsbCI6IjEvcyJ9LCJjb3N0Ijo4fV19fQ", "cost": 3})))]
#[expect(dead_code, reason = "it is read by hand")]
pub(crate) struct SettleQuestion {
    /// The id in the answer of `/v1/reserve`.
    #[schema(min_length = 1, format = "reservation-id")]
    id: String,
    /// Tokens that were used, for every limit whose cost its rule does not fix; 0 gives everything back. It may be left out if there
    /// are `costs`.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000_000)]
    cost: Option<Tokens>,
    /// Tokens that were used, by the names of limits, in place of `cost`. A limit that is in neither keeps what was reserved.
    costs: Option<BTreeMap<String, LimitCost>>,
}

/// Tokens that were used under one limit.
#[derive(Deserialize, ToSchema)]
#[schema(value_type = f64, minimum = 0, maximum = 1_000_000_000)]
#[expect(dead_code, reason = "it is read by hand")]
pub(crate) struct LimitCost(Tokens);

composed! {
    /// A decision, and whether the refund was given now.
    Refund of Decision = with_member(Decision::schema(), "refunded", boolean(
        "Whether it was given now. False if its `id` has been used: nothing has changed.",
    ), true);
}

composed! {
    /// A decision, and how much of the charge was beyond the debt of a limit.
    Charge of Decision = with_member(Decision::schema(), "uncovered", uncovered(), true);
}

composed! {
    /// A decision, and the id of the reservation, `null` if nothing was reserved.
    Reservation of Decision = with_member(Decision::schema(), "id", ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .description(Some("To be sent to `/v1/settle`; `null` if it is denied. A refusal has one if the store may have charged. It contains the identity."))
        .into(), true);
}

composed! {
    /// The limits now, whether the reservation was settled now, and how much was beyond the debt of a limit.
    Settlement of Decision = with_member(with_member(with_member(Decision::schema(), "uncovered", uncovered(), true), "settled", boolean(
        "Whether it was settled now. False if it had been settled before, or passed without the store: nothing has changed.",
    ), true), "costs", ObjectBuilder::new()
        .additional_properties(Some(ObjectBuilder::new().schema_type(Type::Number).minimum(Some(0))))
        .description(Some("The tokens at which each limit was settled, now or before, by its name."))
        .into(), true);
}

composed! {
    /// A decision, and the permit that it took.
    Acquisition of Decision = with_member(with_member(with_member(Decision::schema(), "permit", ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .description(Some("To be sent to `/v1/renew` and `/v1/release`; `null` if it is denied, or if none of the limits is a concurrency. It contains the identity."))
        .into(), true),
        "holdMs", milliseconds("Milliseconds after which it ends unless it is renewed."), true),
        "renewAfterMs", milliseconds("Milliseconds after which it should be renewed: a third of `holdMs`."), true);
}

/// A permit is held for another hold time.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"renewed": true, "holdMs": 30000, "renewAfterMs": 10000})))]
#[expect(dead_code, reason = "it is written by hand")]
pub(crate) struct Renewal {
    /// True.
    renewed: bool,
    /// Milliseconds after which it ends unless it is renewed again.
    hold_ms: u64,
    /// Milliseconds after which it should be renewed again.
    renew_after_ms: u64,
}

composed! {
    /// A permit is not held any more.
    LostPermit of Problem = with_member(Problem::schema(), "renewed", boolean("False."), true);
}

composed! {
    /// A reservation cannot be settled.
    UnsettledReservation of Problem = with_member(Problem::schema(), "settled", boolean("False."), true);
}

/// Whether a permit ended.
#[derive(ToSchema)]
#[schema(examples(json!({"released": true})))]
#[expect(dead_code, reason = "it is written by hand")]
pub(crate) struct Release {
    /// Whether it was held until now. False if it had ended before: nothing has changed.
    released: bool,
}

fn question_with(members: &[(&str, RefOr<Schema>)]) -> RefOr<Schema> {
    let schemas = [ByRule::schema(), ByPlans::schema(), ByOwnLimit::schema()];
    let longer = schemas.map(|schema| {
        members.iter().fold(schema, |schema, (name, member)| with_member(schema, name, member.clone(), false))
    });
    longer.into_iter().fold(OneOfBuilder::new(), OneOfBuilder::item).into()
}

/// Seconds, or a number and a unit.
fn ttl() -> RefOr<Schema> {
    let seconds = ObjectBuilder::new().schema_type(Type::Number).minimum(Some(1)).maximum(Some(86_400));
    let text = ObjectBuilder::new()
        .schema_type(Type::String)
        .format(Some(SchemaFormat::Custom("ttl".to_owned())))
        .examples(["90s"]);
    let absent = ObjectBuilder::new().schema_type(Type::Null);
    let description = "How long it can be settled, 1 second to 1 day: seconds, or a number and a unit. 5 minutes if it is left out.";
    OneOfBuilder::new().item(seconds).item(text).item(absent).description(Some(description)).into()
}

fn boolean(description: &str) -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::Boolean).description(Some(description)).into()
}

/// Milliseconds, or `null` if there is no permit.
fn milliseconds(description: &str) -> RefOr<Schema> {
    let kinds = SchemaType::from_iter([Type::Integer, Type::Null]);
    let schema = ObjectBuilder::new().schema_type(kinds).minimum(Some(0));
    schema.description(Some(description)).into()
}

fn uncovered() -> RefOr<Schema> {
    let description = "Tokens beyond the debt of a limit, which were not charged; the most of any limit.";
    let schema = ObjectBuilder::new().schema_type(Type::Number).minimum(Some(0));
    let format = SchemaFormat::KnownFormat(KnownFormat::Double);
    schema.format(Some(format)).description(Some(description)).into()
}

/// Returns the object with one more member.
fn with_member(schema: RefOr<Schema>, name: &str, member: RefOr<Schema>, required: bool) -> RefOr<Schema> {
    let RefOr::T(Schema::Object(mut object)) = schema else { return schema };
    object.properties.insert(name.to_owned(), member);
    if required {
        object.required.push(name.to_owned());
    }
    // Examples of the shorter object do not show the member.
    object.examples.clear();
    Schema::Object(object).into()
}

/// Allowed or denied, and everything that explains it.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(examples(json!({
    "allowed": true, "limit": 10, "remaining": 9, "retryAfterMs": 0, "resetAfterMs": 1000, "limitedBy": null,
    "reason": "ok", "degraded": false, "at": 1_795_010_172_000_000_u64,
    "limits": [{"name": "free", "limit": 10, "remaining": 9, "retryAfterMs": 0, "resetAfterMs": 1000}]
})))]
pub(crate) struct Decision {
    /// Whether the request may pass.
    allowed: bool,
    /// Capacity of the limit that binds: on a denial the one with the longest wait, else the one that will deny first. `null` if no
    /// limit applies.
    #[schema(value_type = Option<f64>, minimum = 0)]
    limit: Option<Tokens>,
    /// Tokens left under it, rounded down to the smallest amount of its unit. `null` if no limit applies.
    #[schema(value_type = Option<f64>, minimum = 0)]
    remaining: Option<Tokens>,
    /// Milliseconds until the same question would be allowed; 0 if it is.
    retry_after_ms: u64,
    /// Milliseconds until the bucket of the limit that binds is full.
    reset_after_ms: u64,
    /// The limit that denied.
    limited_by: Option<String>,
    /// Why.
    reason: Reason,
    /// Whether the failure policy decided, because the store did not.
    degraded: bool,
    /// When the store charged, by its clock, in microseconds: a refund sends it back. `null` if it charged nothing.
    #[schema(minimum = 0)]
    at: Option<u64>,
    /// Each limit of the chain. Empty if no limit applies.
    limits: Vec<LimitState>,
    /// The decision of a rule in shadow mode, if one was evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    shadow: Option<ShadowOutcome>,
}

/// The reason for a decision.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Reason {
    /// There were enough tokens.
    Ok,
    /// There were too few tokens.
    Limited,
    /// The store failed, and the policy lets pass.
    FailOpen,
    /// The store failed, and the policy refuses.
    FailClosed,
    /// The store failed, and the embedded one decided.
    Local,
    /// No limit applies.
    Unlimited,
}

/// The state of one limit of a chain.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct LimitState {
    /// Its full name: the plan's, or `plan/limit`.
    name: String,
    /// Its capacity.
    #[schema(value_type = f64, minimum = 0)]
    limit: Tokens,
    /// Tokens left, rounded down to the smallest amount of its unit.
    #[schema(value_type = f64, minimum = 0)]
    remaining: Tokens,
    /// Milliseconds until the cost is available.
    retry_after_ms: u64,
    /// Milliseconds until it is full.
    reset_after_ms: u64,
}

/// A caller was refused: RFC 9457 and plain words in one.
#[derive(ToSchema)]
#[schema(examples(json!({
    "type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "Rate limit exceeded",
    "status": 429, "detail": "Too many requests. Please retry after 5 seconds.", "violated-policies": ["free"],
    "error": "Rate limit exceeded", "message": "Too many requests. Please retry after 5 seconds.",
    "limit": 100, "remaining": 0, "resetAt": "2025-12-11T16:15:25.000Z"
})))]
#[expect(dead_code, reason = "refusals are written by hand")]
pub(crate) struct Refusal {
    /// The kind of problem.
    r#type: String,
    /// The kind in words.
    title: String,
    /// The status, once more.
    #[schema(minimum = 400, maximum = 503)]
    status: u16,
    /// When to come back.
    detail: String,
    /// The limits that refused.
    #[schema(rename = "violated-policies", nullable = false)]
    violated_policies: Option<Vec<String>>,
    /// The title, for clients that look here.
    error: String,
    /// The detail, for clients that look here.
    message: String,
    /// Capacity of the limit that binds.
    #[schema(nullable = false, minimum = 0)]
    limit: Option<f64>,
    /// Tokens left under it, rounded down to the smallest amount of its unit.
    #[schema(nullable = false, minimum = 0)]
    remaining: Option<f64>,
    /// When it is full again.
    #[schema(rename = "resetAt", nullable = false, format = DateTime)]
    reset_at: Option<String>,
}

/// `pong`.
#[derive(ToSchema)]
#[schema(examples(json!({"message": "pong"})))]
#[expect(dead_code, reason = "there is only one")]
pub(crate) struct Pong {
    /// `pong`.
    message: String,
}

answers! {
    /// The decision: 200, 429 or 503.
    Decided:
        answer("200", "Allowed.", &LIMITED, json("Decision")),
        answer("429", "Denied. Nothing was spent.", &REFUSED, json("Decision")),
        answer("503", "Refused because the store failed.", &REFUSED, json("Decision"));
    /// The decision, without anything spent.
    PeekResponse:
        answer("200", "The state of the limits, allowed or not.", &REFUSED, json("Decision")),
        answer("503", "Refused because the store failed.", &REFUSED, json("Decision"));
    /// The state of the limits once tokens were given back.
    Refunded:
        answer("200", "Given back, never above a capacity; the state of the limits now.", &REFUSED, json("Refund")),
        problem(503, "The store did not answer. `detail` says whether tokens may have been given back; a refund with an \
                      `id` can be sent again in any case.", &["Retry-After"]);
    /// The state of the limits once the tokens were charged.
    Charged:
        answer("200", "Charged, into debt where it was not there; the state of the limits now.", &REFUSED, json("Charge")),
        problem(503, "The store did not answer. `detail` says whether it may have been charged.", &["Retry-After"]);
    /// The decision about a reservation: 200, 429 or 503.
    Reserved:
        answer("200", "Reserved.", &LIMITED, json("Reservation")),
        answer("429", "Denied. Nothing was reserved.", &REFUSED, json("Reservation")),
        answer("503", "Refused because the store failed.", &REFUSED, json("Reservation"));
    /// The state of the limits once a reservation was settled.
    Settled:
        answer("200", "Settled, now or before; the state of the limits now.", &REFUSED, json("Settlement")),
        answer("404", "There is no such reservation: it was not made, its id was changed, or it expired more than an hour ago.", &[],
               problem_json("UnsettledReservation")),
        answer("410", "It has expired, and stays charged as it was reserved.", &[], problem_json("UnsettledReservation")),
        problem(503, "The store did not answer. Send it again: it is settled once.", &["Retry-After"]);
    /// The decision about a permit: 200, 429 or 503.
    Acquired:
        answer("200", "Acquired.", &LIMITED, json("Acquisition")),
        answer("429", "Denied. Nothing was spent, and no permit was taken.", &REFUSED, json("Acquisition")),
        answer("503", "Refused because the store failed.", &REFUSED, json("Acquisition"));
    /// Whether a permit is still held.
    Renewed:
        answer("200", "It is held for another hold time.", &[], json("Renewal")),
        answer("410", "It is not held any more: it was released or reset, or its hold time had ended.", &[],
               problem_json("LostPermit")),
        problem(503, "The store did not answer. Send it again: it is held until its hold time ends.", &["Retry-After"]);
    /// Whether a permit ended.
    Released:
        answer("200", "It is not held any more, since now or before.", &[], json("Release")),
        problem(503, "The store did not answer. Send it again: it ends with its hold time otherwise.", &["Retry-After"]);
    /// The body is not a question. Nothing was charged.
    InvalidQuestion:
        problem(400, "A field is missing, unknown, of the wrong type or out of bounds; a rule or plan is unknown, or \
                      needs a permit that the call could not release.", &[]),
        problem(403, "A page of another site asks, and its host is not in `listen.hosts`.", &[]),
        problem(408, "The body did not arrive within 10 seconds.", &[]),
        problem(413, "The body is larger than 64 KiB, or a batch than a thousand of the largest questions.", &[]),
        problem(415, "The body is not `application/json`.", &[]),
        other_method();
    /// The answer to a proxy: pass or not.
    Forwarded:
        answer("200", "The request may pass. No body.", &LIMITED, None),
        problem(400, "The query is malformed, or the original request cannot be read in one way only.", &[]),
        problem(401, "The request carries nothing that the rule limits by.", &["WWW-Authenticate"]),
        problem(403, "The request could never pass: it costs too much, or its rule lets nothing pass.", &[]),
        answer("429", "The request may not pass.", &REFUSED, refusal_or_problem()),
        answer("503", "The store failed, and the policy is to refuse.", &REFUSED, problem_json("Refusal")),
        answer("4XX", "The request may not pass, or cannot be read in one way only, in the status that `denyStatus` \
                       chose.", &REFUSED, refusal_or_problem());
    /// The answers of any limited service.
    Limited:
        answer("200", "Allowed.", &LIMITED, json("Pong")),
        problem(400, "The request cannot be read in one way only.", &[]),
        problem(401, "The request carries nothing that the rule limits by.", &["WWW-Authenticate"]),
        problem(403, "The request could never pass: it costs too much, or its rule lets nothing pass.", &[]),
        other_method(),
        answer("429", "Denied.", &REFUSED, problem_json("Refusal")),
        answer("503", "The store failed, and the policy is to refuse.", &REFUSED, problem_json("Refusal"));
}

type Body = (&'static str, Content);

fn json(schema: &str) -> Body {
    ("application/json", Content::new(Some(Ref::from_schema_name(schema))))
}

fn refusal_or_problem() -> Body {
    let either = ["Refusal", "Problem"].map(Ref::from_schema_name);
    let schema: Schema = either.into_iter().fold(AnyOfBuilder::new(), AnyOfBuilder::item).into();
    ("application/problem+json", Content::new(Some(schema)))
}

fn problem_json(schema: &str) -> Body {
    ("application/problem+json", Content::new(Some(Ref::from_schema_name(schema))))
}

fn answer(
    status: &str,
    description: &str,
    names: &[&str],
    body: impl Into<Option<Body>>,
) -> (String, RefOr<Response>) {
    let response = ResponseBuilder::new().description(description);
    let response = match body.into() {
        Some((media_type, content)) => response.content(media_type, content),
        None => response,
    };
    (status.to_owned(), headers::with(response, names).into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use spile_core::{Amount, Charges, Key, Limit, Plan};
    use spile_limiter::{RateLimiter, Ruling};
    use spile_memory::MemoryStore;
    use spile_policy::{Chain, ResolvedKey};

    use super::*;
    use crate::http::{
        write_acquired, write_charge, write_decision, write_refund, write_reservation, write_settled,
    };
    use crate::input::typed::{
        Object, TypedAcquire, TypedPermit, TypedQuestion, TypedRefund, TypedReserve, TypedSettle, bound_of,
        parse,
    };

    fn tokens(tokens: u64) -> Tokens {
        Amount::from(tokens).into()
    }

    #[test]
    fn what_the_document_takes_for_a_question_is_read_as_one() {
        let questions = [
            Question::Rule(ByRule { rule_id: "login".into(), identity: "a".into(), cost: Some(tokens(2)) }),
            Question::Plans(ByPlans {
                identity: "a".into(),
                plans: [KnownPlan("x".into())].into(),
                cost: None,
            }),
            Question::OwnLimit(ByOwnLimit {
                rule_id: "x".into(),
                identity: "a".into(),
                capacity: tokens(10),
                refill_per_second: Amount::from_micro(500_000).into(),
                cost: Some(tokens(0)),
            }),
        ];
        let mut fields = BTreeSet::new();
        for question in questions {
            let text = serde_json::to_vec(&question).expect("it is JSON");
            let Object(typed) = parse::<Object<TypedQuestion<'_>>>(&text).expect("it is a question");
            assert_eq!(typed.identity.as_deref(), Some("a"));
            let members: serde_json::Map<String, serde_json::Value> =
                serde_json::from_slice(&text).expect("it is an object");
            fields.extend(members.into_iter().map(|(name, _)| name));
        }
        let why = parse::<Object<TypedQuestion<'_>>>(b"{\"?\": 1}").expect_err("no such field").to_string();
        let known: BTreeSet<String> = why.split('`').skip(3).step_by(2).map(str::to_owned).collect();
        assert_eq!(fields, known, "the document knows other fields than are read: {why}");
    }

    #[tokio::test]
    async fn what_is_written_of_a_decision_is_what_the_document_says() {
        let free = Plan::new("free", Limit::per_second(1).burst(3)).expect("a plan");
        let limiter = RateLimiter::builder().store(MemoryStore::new()).plans([free]).build();
        for _ in 0..5 {
            let charges = limiter.charges("a", ["free"], 1).expect("a question");
            let ruling = limiter.decide(charges).await;
            is_what_is_written(&ruling);
        }
        is_what_is_written(&Ruling::UNLIMITED);
        is_what_is_written(&shadowed());
    }

    fn is_what_is_written(ruling: &Ruling) {
        let mut text = Vec::new();
        write_decision(&mut text, ruling);
        let read: Decision = serde_json::from_slice(&text).expect("the document says what is written");
        let written: serde_json::Value = serde_json::from_slice(&text).expect("it is JSON");
        assert_eq!(serde_json::to_value(read).expect("it is JSON"), written);
    }

    /// The answer to a question about a rule in shadow mode.
    fn shadowed() -> Ruling {
        let free = Plan::new("free", Limit::per_second(1).burst(3)).expect("a plan");
        let mut chain = Chain::new(Some("watch")).shadow(true);
        chain.charge(&ResolvedKey::of(&["static:", "a"]), &free, 1).expect("there is room");
        let decision = MemoryStore::new().run(spile_core::Operation::Spend, &chain.charges()).into_outcome();
        let source = spile_core::DecisionSource::Store;
        let decision = spile_core::Decision::from_outcome(&chain.charges(), &decision, source);
        Ruling::by(&chain, decision)
    }

    /// The document's members of an object, by its schema.
    fn members(schema: RefOr<Schema>) -> BTreeSet<String> {
        let RefOr::T(Schema::Object(object)) = schema else { panic!("it is an object") };
        object.properties.keys().cloned().collect()
    }

    /// The fields that a body may have, by the error about one that it may not have.
    fn fields_of<T: Deserialize<'static>>() -> BTreeSet<String> {
        let why = parse::<Object<T>>(b"{\"?\": 1}").err().expect("no such field").to_string();
        why.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    /// The members of all questions that a schema is one of.
    fn question_members(schema: RefOr<Schema>) -> BTreeSet<String> {
        let RefOr::T(Schema::OneOf(questions)) = schema else { return members(schema) };
        questions.items.into_iter().flat_map(members).collect()
    }

    #[test]
    fn what_is_read_of_refunds_reservations_and_permits_is_what_the_document_says() {
        assert_eq!(fields_of::<TypedRefund<'static>>(), question_members(RefundQuestion::schema()));
        assert_eq!(fields_of::<TypedReserve<'static>>(), question_members(ReserveQuestion::schema()));
        assert_eq!(fields_of::<TypedSettle<'static>>(), question_members(SettleQuestion::schema()));
        assert_eq!(fields_of::<TypedAcquire<'static>>(), question_members(AcquireQuestion::schema()));
        assert_eq!(fields_of::<TypedPermit<'static>>(), question_members(PermitQuestion::schema()));
    }

    #[test]
    fn what_is_written_beside_a_decision_is_what_the_document_says() {
        let decision = shadowed();
        let written = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut text = Vec::new();
            write(&mut text);
            let written: serde_json::Map<String, serde_json::Value> =
                serde_json::from_slice(&text).expect("it is an object");
            written.into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>()
        };
        assert_eq!(written(&|out| write_refund(out, &decision, true)), members(Refund::schema()));
        assert_eq!(written(&|out| write_charge(out, &decision, Amount::from(7))), members(Charge::schema()));
        for id in [None, Some("a-_9")] {
            assert_eq!(written(&|out| write_reservation(out, &decision, id)), members(Reservation::schema()));
        }
        assert_eq!(
            written(&|out| write_settled(out, &decision, &spile_limiter::Settled::default())),
            members(Settlement::schema())
        );
        for permit in [None, Some(("a-_9", std::time::Duration::from_secs(30)))] {
            assert_eq!(
                written(&|out| write_acquired(out, &decision, permit)),
                members(Acquisition::schema())
            );
        }
    }

    #[test]
    fn bounds_are_those_that_are_checked() {
        assert_eq!((Key::MAX_BYTES, Charges::MAX, Limit::MAX_TOKENS), (1024, 32, 1_000_000_000));
        assert!(bound_of("refillPerSecond").is_some_and(|bound| bound.contains("0.000001")));
    }
}
