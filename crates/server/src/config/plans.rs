//! Plans, checked: every limit within its bounds, every name safe and given once.

use spile_core::{Limit, LimitError, LimitTextError, Plan, PlanError, PlanName};
use spile_policy::RESERVED_PLANS;

use super::file::{Faults, LimitFile, Place, PlanFile};

/// The plans that work, and the names of all.
pub(super) fn check_all(files: Vec<PlanFile>, faults: &mut Faults) -> (Vec<Plan>, Vec<PlanName>) {
    let names = files.iter().filter_map(|file| PlanName::new(&file.name.value).ok()).collect();
    (files.into_iter().filter_map(|file| check(file, faults)).collect(), names)
}

fn check(file: PlanFile, faults: &mut Faults) -> Option<Plan> {
    let PlanFile { name, limit, limits } = file;
    let place = name.place.clone();
    let good_name = check_name(&name.value, &place, faults);
    let plan = match limits {
        Some(_) if limit.capacity.is_some() || limit.refill.is_some() => {
            let message = format!("plan `{}` has a limit of its own and a list of limits", name.value);
            faults.add(&place, message, "write `capacity` and `refill`, or `limits`");
            return None;
        }
        None => {
            let limit = check_limit(&limit, faults);
            good_name.then(|| limit.map(|limit| Plan::new(&name.value, limit)))??
        }
        Some(limits) => {
            let count = limits.len();
            let built: Vec<(String, Limit)> = limits
                .iter()
                .filter_map(|file| Some((file.name.as_ref()?.value.clone(), check_limit(file, faults)?)))
                .collect();
            if built.len() < count || !good_name {
                return None;
            }
            Plan::chain(&name.value, built.iter().map(|(own, limit)| (own.as_str(), *limit)))
        }
    };
    plan.map_err(|why: PlanError| faults.add(&place, why, "each limit needs a name of its own")).ok()
}

fn check_name(name: &str, place: &Place, faults: &mut Faults) -> bool {
    if RESERVED_PLANS.contains(&name) {
        faults.add(
            place,
            format_args!("no plan can be called `{name}`"),
            "that word has another meaning; choose another",
        );
        return false;
    }
    let checked = PlanName::new(name);
    if let Err(why) = &checked {
        faults.add(place, why, "for instance `gold`");
    }
    checked.is_ok()
}

pub(super) fn check_limit(file: &LimitFile, faults: &mut Faults) -> Option<Limit> {
    let Some(refill) = &file.refill else {
        faults.add(&file.place.member("refill"), "the limit has no refill", "add `refill = \"1/s\"`");
        return None;
    };
    let text = match &file.capacity {
        None => refill.value.clone(),
        Some(capacity) => format!("{}, {}", capacity.value, refill.value),
    };
    let why = match text.parse::<Limit>() {
        Ok(limit) => return Some(limit),
        Err(why) => why,
    };
    match (&file.capacity, why) {
        (Some(capacity), LimitTextError::OutOfBounds { why: why @ LimitError::Capacity(_), .. }) => {
            faults.add(&capacity.place, why, "1 to 1000000000");
        }
        (_, LimitTextError::OutOfBounds { why, .. }) => {
            faults.add(&refill.place, why, "a slower or faster refill");
        }
        _ => {
            let message = format!("`{}` is no refill", refill.value);
            faults.add(&refill.place, message, "tokens per period, as in `1/s`, `100/min` or `10000/day`");
        }
    }
    None
}
