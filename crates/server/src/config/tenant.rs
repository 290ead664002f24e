//! Tenants as they are written, and the checks that each id and each API key is unique.

use std::collections::{BTreeMap, HashSet};

use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use spile_policy::{ApiKeyHash, Tenant, identity};
use utoipa::ToSchema;

use super::overlay::Defined;
use super::plan::LimitSpec;
use super::rule::{Known, check_plan};
use super::source::{Faults, Location};
use super::spec::Source;
use super::value::{each, named_tables};

/// A tenant: a customer with a plan and API keys.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = Tenant, examples(json!({"id": "acme", "plan": "pro", "apiKeyCount": 1, "source": "registry"})))]
pub(crate) struct TenantSpec {
    /// The id. It may be left out if the path has it.
    #[schema(min_length = 1, max_length = 1024)]
    pub(crate) id: Option<String>,
    /// The plan that it holds.
    #[schema(required = true, nullable = false, format = "plan-name", examples("pro"))]
    pub(crate) plan: Option<String>,
    /// Hashes of its API keys: `sha256:` and 64 hexadecimal digits. If they are left out, those it has stay. They are never
    /// shown.
    #[serde(alias = "api_keys")]
    #[schema(write_only)]
    pub(crate) api_keys: Option<Vec<String>>,
    /// Limits of the tenant, each in place of the one that its plan has under that name.
    #[serde(deserialize_with = "named_tables")]
    pub(crate) limits: Option<BTreeMap<String, LimitSpec>>,
    /// How many API keys it has.
    #[schema(read_only)]
    pub(crate) api_key_count: Option<u64>,
    /// Where it comes from.
    #[schema(read_only)]
    pub(crate) source: Option<Source>,
}

impl From<&Tenant> for TenantSpec {
    fn from(tenant: &Tenant) -> Self {
        let limits: BTreeMap<_, _> =
            tenant.own_limits().map(|limit| (limit.own_name().to_owned(), LimitSpec::own(limit))).collect();
        Self {
            id: Some(tenant.id.to_string()),
            plan: Some(tenant.plan.to_string()),
            limits: Some(limits).filter(|limits| !limits.is_empty()),
            ..Self::default()
        }
    }
}

pub(super) fn check_all(
    specs: &[Defined<'_, TenantSpec>],
    known: &Known<'_>,
    faults: &mut Faults,
) -> Vec<Tenant> {
    let (mut ids, mut keys) = (HashSet::default(), HashSet::default());
    let mut tenants = Vec::with_capacity(specs.len());
    let list = Location::FILE.key("tenants");
    for defined in specs {
        let (at, spec, before) = (defined.at(&list), defined.spec, faults.added());
        let id = faults.required(&at, "id", defined.name).filter(|id| check_id(id, &at, &mut ids, faults));
        let plan = faults.required(&at, "plan", spec.plan.as_deref());
        let plan = plan.and_then(|plan| check_plan(plan, &at.key("plan"), known, faults));
        let tenant =
            id.zip(plan).map(|(id, plan)| with_limits(Tenant::new(id, plan), spec, &at, known, faults));
        // An invalid tenant takes no key from a valid one.
        let takes = faults.added() == before;
        let api_keys =
            check_keys(spec.api_keys.as_deref().unwrap_or_default(), &at, &mut keys, takes, faults);
        tenants.extend(tenant.map(|tenant| api_keys.into_iter().fold(tenant, Tenant::api_key)));
    }
    tenants
}

/// Returns the tenant with limits that replace those of its plan.
fn with_limits(
    mut tenant: Tenant,
    spec: &TenantSpec,
    at: &Location<'_>,
    known: &Known<'_>,
    faults: &mut Faults,
) -> Tenant {
    let list = at.key("limits");
    for (name, limit) in spec.limits.iter().flatten() {
        let at = list.key(name);
        if limit.name.is_some() {
            faults.add(&at.key("name"), "a tenant's own limit is called by its key", "leave `name` out");
        }
        // An invalid plan is a fault already.
        let (Some(limit), Some(plan)) = (limit.check(&at, faults), known.plan(&tenant.plan)) else {
            continue;
        };
        match tenant.clone().with_limits(plan, [(name.as_str(), limit)]) {
            Ok(with) => tenant = with,
            Err(why) => {
                let fix = "a limit of the tenant's own takes the place of one there";
                faults.add(&at.spelling(), why, fix);
            }
        }
    }
    tenant
}

fn check_id(
    id: &str,
    at: &Location<'_>,
    ids: &mut HashSet<SmolStr, RandomState>,
    faults: &mut Faults,
) -> bool {
    if let Err(why) = identity(id) {
        faults.add(&at.key("id"), why, "for instance `acme`");
        return false;
    }
    let new = ids.insert(SmolStr::new(id));
    if !new {
        let message = format!("tenant `{id}` is defined twice");
        faults.add(&at.key("id"), message, "each tenant needs an id of its own");
    }
    new
}

fn check_keys(
    words: &[String],
    at: &Location<'_>,
    seen: &mut HashSet<ApiKeyHash, RandomState>,
    takes: bool,
    faults: &mut Faults,
) -> Vec<ApiKeyHash> {
    let mut hashes = Vec::with_capacity(words.len());
    for (at, word) in each(words, &at.key("api_keys")) {
        match word.parse::<ApiKeyHash>() {
            Ok(hash) if !takes && !seen.contains(&hash) => {}
            Ok(hash) if seen.insert(hash) => hashes.push(hash),
            Ok(_) => faults.add(&at, "this API key is there twice", "each key belongs to one tenant"),
            Err(why) => faults.add(&at, why, "`printf %s KEY | sha256sum` prints the digits"),
        }
    }
    hashes
}
