//! Plans: as they are written, and checked so that every limit is within its bounds.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use spile_core::{Limit, LimitError, LimitTextError, NamedLimit, Plan, PlanError, PlanName};
use spile_policy::RESERVED_PLANS;
use utoipa::ToSchema;

use super::overlay::Defined;
use super::source::{At, Faults};
use super::spec::Source;
use super::value::{LeaseSpan, tables};

/// A plan: one limit, or a chain of limits that must all allow.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = Plan, examples(json!({"name": "pro", "capacity": 100, "refill": "50/s", "source": "file"})))]
pub(crate) struct PlanSpec {
    /// What it is called. It may be left out if the path says it.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$")]
    pub(crate) name: Option<String>,
    /// The most tokens that can be spent at once. If it is left out, as many as come back in a period.
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub(super) capacity: Option<u64>,
    /// Tokens per period: `1/s`, `100/min`, `5/10s`, `10000/day`.
    #[schema(format = "refill", examples("50/s"))]
    pub(super) refill: Option<String>,
    /// How long an instance that is asked often may keep tokens that it took from Redis in advance: `100ms`. If it is left
    /// out, each decision asks Redis.
    #[serde(deserialize_with = "LeaseSpan::deserialize_some", serialize_with = "LeaseSpan::serialize_some")]
    #[schema(value_type = Option<String>, format = "lease", examples("100ms"))]
    pub(super) lease: Option<Duration>,
    /// A chain, in place of `capacity` and `refill`.
    #[serde(deserialize_with = "tables")]
    #[schema(min_items = 1, max_items = 32)]
    pub(super) limits: Option<Vec<LimitSpec>>,
    /// Where it comes from.
    #[schema(read_only)]
    pub(crate) source: Option<Source>,
}

/// One limit: of a plan's chain, or a tenant's own in place of one there.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = Limit)]
pub(crate) struct LimitSpec {
    /// What it is called within its plan. A tenant's own limits are listed by their names, and leave it out.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$", examples("burst"))]
    pub(super) name: Option<String>,
    /// The most tokens that can be spent at once. If it is left out, as many as come back in a period.
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    capacity: Option<u64>,
    /// Tokens per period.
    #[schema(required = true, nullable = false, format = "refill", examples("50/s"))]
    refill: Option<String>,
    /// How long an instance that is asked often may keep tokens that it took from Redis in advance: `100ms`. If it is left
    /// out, each decision asks Redis.
    #[serde(deserialize_with = "LeaseSpan::deserialize_some", serialize_with = "LeaseSpan::serialize_some")]
    #[schema(value_type = Option<String>, format = "lease", examples("100ms"))]
    lease: Option<Duration>,
}

impl From<&Plan> for PlanSpec {
    fn from(plan: &Plan) -> Self {
        let name = Some(plan.name().to_string());
        match plan.limits() {
            [only] if only.name().as_str() == plan.name().as_str() => {
                let LimitSpec { capacity, refill, lease, .. } = LimitSpec::own(only);
                Self { name, capacity, refill, lease, ..Self::default() }
            }
            limits => {
                let limit = |limit: &NamedLimit| LimitSpec {
                    name: Some(limit.own_name().to_owned()),
                    ..LimitSpec::own(limit)
                };
                Self { name, limits: Some(limits.iter().map(limit).collect()), ..Self::default() }
            }
        }
    }
}

impl LimitSpec {
    /// A limit that is called by the key it is under.
    pub(super) fn own(limit: &NamedLimit) -> Self {
        let (capacity, text) = (limit.limit().capacity(), limit.limit().to_string());
        // The text is `10, 1/s`: the capacity and the refill.
        let refill = text.split_once(", ").map_or(text.as_str(), |(_, refill)| refill);
        Self {
            name: None,
            capacity: Some(capacity.into()),
            refill: Some(refill.to_owned()),
            lease: limit.limit().lease(),
        }
    }

    pub(super) fn check(&self, at: &At<'_>, faults: &mut Faults) -> Option<Limit> {
        check_limit(self.capacity, self.refill.as_deref(), self.lease, at, faults)
    }
}

/// The plans that work, and the names of all.
pub(super) fn check_all(plans: &[Defined<'_, PlanSpec>], faults: &mut Faults) -> (Vec<Plan>, Vec<PlanName>) {
    let names = plans.iter().filter_map(|plan| PlanName::new(plan.name?).ok()).collect();
    let list = At::FILE.key("plans");
    let check = |plan: &Defined<'_, PlanSpec>| {
        let name = plan.name?;
        let at = if plan.index.is_some() { list.key(name) } else { plan.at(&list) };
        check(name, plan.spec, &at, faults)
    };
    (plans.iter().filter_map(check).collect(), names)
}

fn check(name: &str, spec: &PlanSpec, at: &At<'_>, faults: &mut Faults) -> Option<Plan> {
    let good_name = check_name(name, at, faults);
    let plan = match &spec.limits {
        Some(_) if spec.capacity.is_some() || spec.refill.is_some() || spec.lease.is_some() => {
            let message = format!("plan `{name}` has a limit of its own and a list of limits");
            faults.add(&at.spelling(), message, "write `capacity`, `refill` and `lease`, or `limits`");
            return None;
        }
        None => {
            let limit = check_limit(spec.capacity, spec.refill.as_deref(), spec.lease, at, faults);
            good_name.then(|| limit.map(|limit| Plan::new(name, limit)))??
        }
        Some(limits) => {
            let list = at.key("limits");
            let check = |(index, limit): (usize, &LimitSpec)| {
                let at = list.item(index);
                let name = faults.required(&at, "name", limit.name.clone());
                let limit = limit.check(&at, faults);
                Some((name?, limit?))
            };
            let checked: Vec<_> = limits.iter().enumerate().filter_map(check).collect();
            if checked.len() < limits.len() || !good_name {
                return None;
            }
            Plan::chain(name, checked.iter().map(|(own, limit)| (own.as_str(), *limit)))
        }
    };
    plan.map_err(|why: PlanError| faults.add(&at.spelling(), why, "each limit needs a name of its own")).ok()
}

fn check_name(name: &str, at: &At<'_>, faults: &mut Faults) -> bool {
    if RESERVED_PLANS.contains(&name) {
        let message = format!("no plan can be called `{name}`");
        faults.add(&at.spelling(), message, "that word has another meaning; choose another");
        return false;
    }
    PlanName::new(name).map_err(|why| faults.add(&at.spelling(), why, "for instance `gold`")).is_ok()
}

fn check_limit(
    capacity: Option<u64>,
    refill: Option<&str>,
    lease: Option<Duration>,
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<Limit> {
    let Some(refill) = refill else {
        if !faults.has(&at.key("refill")) {
            faults.add(&at.key("refill"), "the limit has no refill", "add `refill = \"1/s\"`");
        }
        return None;
    };
    let text = capacity.map_or_else(|| refill.to_owned(), |capacity| format!("{capacity}, {refill}"));
    match (capacity, text.parse::<Limit>()) {
        (_, Ok(limit)) => return Some(with_lease(limit, lease)),
        (Some(_), Err(LimitTextError::OutOfBounds { why: why @ LimitError::Capacity(_), .. })) => {
            faults.add(&at.key("capacity"), why, "1 to 1000000000");
        }
        (_, Err(LimitTextError::OutOfBounds { why, .. })) => {
            faults.add(&at.key("refill"), why, "a slower or faster refill");
        }
        _ => {
            let message = format!("`{refill}` is not a refill");
            faults.add(
                &at.key("refill"),
                message,
                "tokens per period, as in `1/s`, `100/min` or `10000/day`",
            );
        }
    }
    None
}

/// The same limit with a lease, whose bounds are those of its span.
fn with_lease(limit: Limit, lease: Option<Duration>) -> Limit {
    let Some(lease) = lease else { return limit };
    let builder = Limit::per(limit.refill().into(), limit.period()).burst(limit.capacity().into());
    builder.lease(lease).build().unwrap_or(limit)
}
