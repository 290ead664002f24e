//! Why a key is limited.

use axum::Json;
use axum::extract::State;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use serde::Deserialize;
use spile_policy::{AskError, CleanPath, Facts, canonical_host};
use utoipa::IntoParams;

use super::AdminState;
use super::extract::QueryParams;
use crate::decide::explanation::{ExplainQuestion, Explanation, explain};
use crate::http::Problem;
use crate::input::fault::Fault;
use crate::input::tokens::Tokens;
use crate::openapi::{AuthErrors, BadName};

/// The key, and the rule or a request that leads to one.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExplainQuery {
    /// Who pays: 1 to 1024 bytes of text without control characters.
    #[param(min_length = 1, max_length = 1024, format = "identity")]
    key: String,
    /// The rule, or the limit of a route, to look at. If it is left out: the one for the request that `path` describes, or the one that
    /// denied the key last, or `default`.
    #[param(nullable = false, format = "rule-id")]
    rule: Option<String>,
    /// The path of a request, to look at the rule that is for it, and at the limits of the gateway's route for it; `/` if only
    /// a method or a host is given.
    #[param(nullable = false, format = "request-path")]
    path: Option<String>,
    /// The method of that request; `GET` if it is left out.
    #[param(nullable = false, format = "request-method")]
    method: Option<String>,
    /// The host of that request.
    #[param(nullable = false, format = "request-host")]
    host: Option<String>,
    /// Tokens that the request spends, in place of the cost of each rule. 0 only looks.
    #[serde(default, deserialize_with = "Tokens::from_text")]
    #[param(value_type = Option<f64>, nullable = false, minimum = 0, maximum = 1_000_000_000)]
    cost: Option<Tokens>,
}

/// Explains why a key is limited: the rule, who pays, the level of each bucket, the last denials that this instance has seen,
/// and what to change. Spends nothing.
#[utoipa::path(
    get,
    path = "/admin/v1/explain",
    tag = "buckets",
    operation_id = "explainKey",
    security(("token" = [])),
    params(ExplainQuery),
    responses((status = 200, description = "Why.", body = Explanation), BadName, AuthErrors)
)]
pub(super) async fn show(
    State(state): State<AdminState>,
    QueryParams(query): QueryParams<ExplainQuery>,
) -> Result<Json<Explanation>, Problem> {
    let (headers, host) = (HeaderMap::new(), host(query.host.as_deref())?);
    let method: Method = match query.method.as_deref() {
        None => Method::GET,
        Some(method) => method.parse().map_err(|_| Fault::new("method", "is not a method"))?,
    };
    let is_described = query.method.is_some() || query.host.is_some();
    let path = query.path.as_deref().or(is_described.then_some("/")).map(clean).transpose()?;
    let found = path.as_ref().filter(|_| query.rule.is_none());
    let route = found.and_then(|path| state.control.find_route(&host, path));
    let facts = path.as_ref().map(|path| {
        let mut facts = Facts::new(&method, path.matched(), &headers);
        (facts.host, facts.holds_permits) = (&host, true);
        if let Some(route) = &route {
            facts.route = Some(route.name());
            facts.load_factor = route.load_factor();
            facts.estimate = route.estimate().and_then(|estimate| estimate.of(&headers));
        }
        facts
    });
    let config = state.control.config();
    let asked = ExplainQuestion {
        key: &query.key,
        rule: query.rule.as_deref(),
        cost: query.cost.map(|Tokens(amount)| amount),
        request: facts,
        route: route.as_ref(),
        has_gateway: config.listen.gateway.is_some(),
        keeps_denials: config.observe.enabled,
    };
    let explained = explain(&state.decider, &asked).await;
    explained.map(Json).map_err(|why| Fault::new(field_of(&why), why).into())
}

fn clean(path: &str) -> Result<CleanPath, Fault> {
    let wrong = |why: &str| Fault::new("path", format_args!("is not the path of a request: {why}"));
    let path: PathAndQuery = path.parse().map_err(|_| wrong("it starts with `/` and has no blanks"))?;
    if !path.as_str().starts_with('/') {
        return Err(wrong("it starts with `/`"));
    }
    CleanPath::of(&path).map_err(|why| wrong(why.0))
}

fn host(host: Option<&str>) -> Result<String, Fault> {
    let Some(host) = host else { return Ok(String::new()) };
    let host = canonical_host(host).ok_or_else(|| Fault::new("host", "is not a host"))?;
    Ok(host.to_string())
}

/// The invalid parameter.
const fn field_of(why: &AskError) -> &'static str {
    match why {
        AskError::Identity(_) => "key",
        AskError::Cost(_) => "cost",
        _ => "rule",
    }
}
