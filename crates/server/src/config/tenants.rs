//! Tenants, checked: each id once, each API key once, each plan one that exists.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use smol_str::SmolStr;

use spile_policy::{ApiKeyHash, Tenant, identity};

use super::file::{Faults, LimitFile, Spot, TenantFile};
use super::plans::check_limit;
use super::rules::{Known, check_plan};

pub(super) fn check_all(files: Vec<TenantFile>, known: &Known<'_>, faults: &mut Faults) -> Vec<Tenant> {
    let (mut ids, mut keys) = (HashSet::default(), HashSet::default());
    let mut tenants = Vec::with_capacity(files.len());
    for file in files {
        let before = faults.added();
        let id = file.id.filter(|id| check_id(id, &mut ids, faults));
        let plan = file.plan.and_then(|plan| check_plan(&plan, known, faults));
        let tenant = id
            .zip(plan)
            .map(|(id, plan)| with_limits(Tenant::new(&id.value, plan), &file.limits, known, faults));
        // One that does not work takes no key away from one that does.
        let takes = faults.added() == before;
        let words = file.api_keys.map(|keys| keys.value).unwrap_or_default();
        let api_keys = check_keys(words, &mut keys, takes, faults);
        tenants.extend(tenant.map(|tenant| api_keys.into_iter().fold(tenant, Tenant::api_key)));
    }
    tenants
}

/// The tenant with limits of its own in place of those of its plan.
fn with_limits(mut tenant: Tenant, limits: &[LimitFile], known: &Known<'_>, faults: &mut Faults) -> Tenant {
    for file in limits {
        let (Some(name), Some(limit)) = (&file.name, check_limit(file, faults)) else { continue };
        // A plan that does not work is a fault already.
        let Some(plan) = known.plan(&tenant.plan) else { continue };
        match tenant.clone().with_limits(plan, [(name.value.as_str(), limit)]) {
            Ok(with) => tenant = with,
            Err(why) => {
                faults.add(&name.place, why, "a limit of the tenant's own takes the place of one there");
            }
        }
    }
    tenant
}

fn check_id(id: &Spot<String>, ids: &mut HashSet<SmolStr, RandomState>, faults: &mut Faults) -> bool {
    if let Err(why) = identity(&id.value) {
        faults.add(&id.place, why, "for instance `acme`");
        return false;
    }
    let new = ids.insert(SmolStr::new(&id.value));
    if !new {
        faults.add(
            &id.place,
            format_args!("tenant `{}` stands twice", id.value),
            "each tenant needs an id of its own",
        );
    }
    new
}

fn check_keys(
    words: Vec<Spot<String>>,
    seen: &mut HashSet<ApiKeyHash, RandomState>,
    takes: bool,
    faults: &mut Faults,
) -> Vec<ApiKeyHash> {
    let mut hashes = Vec::with_capacity(words.len());
    for Spot { value, place } in words {
        match value.parse::<ApiKeyHash>() {
            Ok(hash) if !takes && !seen.contains(&hash) => {}
            Ok(hash) if seen.insert(hash) => hashes.push(hash),
            Ok(_) => faults.add(&place, "this API key stands twice", "each key belongs to one tenant"),
            Err(why) => faults.add(&place, why, "`printf %s KEY | sha256sum` prints the digits"),
        }
    }
    hashes
}
