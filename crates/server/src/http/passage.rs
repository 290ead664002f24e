//! A whole request asked by a rule: whether it may pass.

use http::StatusCode;
use http::request::Parts;
use spile_core::Decision;
use spile_tower::key::{ResolvedKey, Tenant as KnownTenant};

use super::problem::Problem;
use crate::decider::Decider;
use crate::policies::Policies;
use crate::question::Question;
use crate::rule::Rule;

/// Decides about a request by a rule and those that are charged with it.
pub(crate) async fn decide(
    decider: &Decider,
    policies: &Policies,
    rule: &Rule,
    mut request: Parts,
) -> Result<Decision, Problem> {
    let tenant = policies.tenant_of(&request);
    if let Some(tenant) = tenant {
        request.extensions.insert(KnownTenant::new(tenant.id.as_str()).on_plan(tenant.plan.as_str()));
    }
    let keys = keys(rule, &request, policies)?;
    let question = Question::by_request(rule, tenant, &keys, policies)?;
    Ok(decider.check(question).await)
}

/// Who pays: for the rule itself somebody must, the others are left out where nobody does.
fn keys(rule: &Rule, request: &Parts, policies: &Policies) -> Result<Vec<Option<ResolvedKey>>, Problem> {
    let own = rule.key.resolve(request).ok_or_else(|| {
        let words = rule.key.words().join(", ");
        let detail = format!("key: the request carries nothing that rule `{}` limits by: {words}", rule.id);
        Problem::new(StatusCode::UNAUTHORIZED, detail).with("field", "key")
    })?;
    let also = rule.also.iter().filter_map(|id| policies.rule(id));
    Ok(std::iter::once(Some(own)).chain(also.map(|other| other.key.resolve(request))).collect())
}
