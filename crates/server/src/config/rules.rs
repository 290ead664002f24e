//! Rules, checked: every name they use exists, and no request they match could never pass.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use http::Method;
use smol_str::SmolStr;
use spile_core::{Cost, FailurePolicy, Plan, PlanName};
use spile_policy::{
    DEFAULT_RULE, DescriptorMatch, DescriptorMatchError, HostPattern, KeyList, Matcher, Rule, RulePlans,
};

use super::file::{Faults, MatchFile, Place, RuleFile, Spot, TextOrTexts};

/// What rules may refer to.
pub(super) struct Known<'a> {
    pub(super) plans: &'a [Plan],
    /// Also of plans that are wrong themselves: naming one of those is no second mistake.
    plan_names: &'a [PlanName],
    /// The same to look up: a hundred thousand tenants name their plans.
    by_name: HashMap<&'a str, &'a PlanName, RandomState>,
}

/// The words that stand for something else than a plan.
const TENANT: &str = "tenant";
const UNLIMITED: &str = "unlimited";
const BANNED: &str = "banned";

impl<'a> Known<'a> {
    pub(super) fn new(plans: &'a [Plan], plan_names: &'a [PlanName]) -> Self {
        let by_name = plan_names.iter().map(|name| (name.as_str(), name)).collect();
        Self { plans, plan_names, by_name }
    }

    /// The plan of that name, if it works.
    pub(super) fn plan(&self, name: &PlanName) -> Option<&'a Plan> {
        self.plans.iter().find(|plan| plan.name() == name)
    }
}

pub(super) fn check_all(files: Vec<RuleFile>, known: &Known<'_>, faults: &mut Faults) -> Vec<Rule> {
    let mut ids = HashSet::new();
    let mut references = Vec::new();
    let mut rules: Vec<Rule> = Vec::new();
    for mut file in files {
        if let Some(id) = &file.id
            && !ids.insert(id.value.clone())
        {
            faults.add(
                &id.place,
                format_args!("rule `{}` stands twice", id.value),
                "each rule needs an id of its own",
            );
        }
        references.extend(file.also.take().map(|also| (file.id.clone(), also)));
        rules.extend(check(file, known, faults));
    }
    for (id, also) in references {
        let Some(id) = id else { continue };
        let others = check_references(&id.value, also.value, &rules, faults);
        if let Some(rule) = rules.iter_mut().find(|rule| rule.id == id.value) {
            rule.also = others;
        }
    }
    rules
}

/// The limits of one route. They are charged together with each other and with the rule that the request falls under.
pub(super) fn check_limits(files: Vec<RuleFile>, known: &Known<'_>, faults: &mut Faults) -> Vec<Rule> {
    for place in files.iter().filter_map(|file| file.matches.as_ref()?.domain.as_ref()) {
        faults.add(
            &place.place,
            "a route's limits are for HTTP requests",
            "leave `domain` and `entries` out",
        );
    }
    for also in files.iter().filter_map(|file| file.also.as_ref()) {
        let message = "a route's limits are charged together anyway";
        faults.add(&also.place, message, "leave `also` out");
    }
    files.into_iter().filter_map(|file| check(file, known, faults)).collect()
}

fn check(file: RuleFile, known: &Known<'_>, faults: &mut Faults) -> Option<Rule> {
    let id = file.id.as_ref().filter(|id| check_id(id, faults)).map(|id| SmolStr::new(&id.value));
    let plans = check_plans(file.plans, file.anonymous_plan, &file.place, known, faults);
    let cost = check_cost(file.cost, plans.as_ref(), known, faults);
    // Everything is looked at before anything is given up, so that every mistake is found.
    let place = file.matches.as_ref().map(|matches| matches.place.clone());
    let matcher = file.matches.map(|matches| check_match(matches, faults)).unwrap_or_default();
    if let (Some(DEFAULT_RULE), Some(place)) = (id.as_deref(), place) {
        let message = "the rule `default` is for everything that no other rule matches";
        faults.add(&place, message, "leave `match` out, or give the rule another id");
    }
    if matcher.descriptor.is_some() {
        check_descriptor_rule(file.key.as_ref(), plans.as_ref(), &file.place, faults);
    }
    let key = check_key(file.key.map(|key| key.value), faults);
    let on_failure = file.on_failure.and_then(|policy| check_policy(&policy, faults));
    let shadow = file.mode.is_some_and(|mode| check_mode(&mode, faults));
    Some(Rule { id: id?, matcher, key, plans: plans?, cost, on_failure, shadow, also: Vec::new() })
}

fn check_id(id: &Spot<String>, faults: &mut Faults) -> bool {
    // Ids are shown where names of plans are, and so are made of the same letters.
    let good = PlanName::new(&id.value);
    if let Err(why) = &good {
        faults.add(&id.place, why, "for instance `login`");
    }
    good.is_ok()
}

fn check_plans(
    plans: Option<Spot<TextOrTexts>>,
    anonymous: Option<Spot<String>>,
    place: &Place,
    known: &Known<'_>,
    faults: &mut Faults,
) -> Option<RulePlans> {
    let Some(Spot { value: plans, place }) = plans else {
        faults.add(
            &place.member("plans"),
            "the rule has no plans",
            "add `plans = [\"…\"]` or `plans = \"tenant\"`",
        );
        return None;
    };
    let anonymous = match (&plans, anonymous) {
        (TextOrTexts::Text(word), anonymous) if word == TENANT => {
            let anonymous = anonymous.map(|name| check_plan(&name, known, faults).ok_or(())).transpose();
            return anonymous.ok().map(|anonymous| RulePlans::Tenant { anonymous });
        }
        (_, anonymous) => anonymous,
    };
    let word = match &plans {
        TextOrTexts::Text(word) if word == UNLIMITED => Some(RulePlans::Unlimited),
        TextOrTexts::Text(word) if word == BANNED => Some(RulePlans::Banned),
        _ => None,
    };
    if let Some(Spot { place, .. }) = anonymous {
        faults.add(&place, "an anonymous plan needs `plans = \"tenant\"`", "leave it out");
    }
    if word.is_some() {
        return word;
    }
    let names = match plans {
        TextOrTexts::Text(name) => vec![Spot::new(name, place)],
        TextOrTexts::Texts(names) if names.is_empty() => {
            faults.add(&place, "the rule has no plans", "name at least one");
            return None;
        }
        TextOrTexts::Texts(names) => names,
    };
    let count = names.len();
    let found: Vec<PlanName> = names.iter().filter_map(|name| check_plan(name, known, faults)).collect();
    (found.len() == count).then_some(RulePlans::Listed(found))
}

/// The plan of that name, or a fault that names those there are.
pub(super) fn check_plan(name: &Spot<String>, known: &Known<'_>, faults: &mut Faults) -> Option<PlanName> {
    let found = known.by_name.get(name.value.as_str()).copied();
    if found.is_none() {
        let names: Vec<&str> = known.plan_names.iter().map(PlanName::as_str).collect();
        let fix = format!("there are {}", names.join(", "));
        faults.add(&name.place, format_args!("no plan is called `{}`", name.value), fix);
    }
    found.cloned()
}

fn check_cost(
    cost: Option<Spot<u64>>,
    plans: Option<&RulePlans>,
    known: &Known<'_>,
    faults: &mut Faults,
) -> Cost {
    let Some(Spot { value, place }) = cost else { return Cost::ONE };
    let names = plans.map(RulePlans::known).unwrap_or_default();
    let limits = known.plans.iter().filter(|plan| names.contains(plan.name())).flat_map(Plan::limits);
    let smallest = limits.min_by_key(|limit| limit.limit().capacity());
    match (Cost::new(value), smallest) {
        (Ok(cost), Some(limit)) if !limit.limit().can_cover(cost) => {
            let message =
                format!("cost {value} is above the capacity of limit {}: it can never pass", limit.name());
            faults.add(&place, message, format_args!("at most {}", limit.limit().capacity()));
            Cost::ONE
        }
        (Ok(cost), _) => cost,
        (Err(why), _) => {
            faults.add(&place, why, "a smaller cost");
            Cost::ONE
        }
    }
}

fn check_match(file: MatchFile, faults: &mut Faults) -> Matcher {
    let path = file.path.and_then(|Spot { value, place }| {
        let pattern = value.parse();
        pattern.map_err(|why| faults.add(&place, why, "a path that starts with `/`")).ok()
    });
    let mut methods = Vec::new();
    for Spot { value, place } in file.methods.map(|methods| methods.value).unwrap_or_default() {
        match value.to_ascii_uppercase().parse::<Method>() {
            Ok(method) => methods.push(method),
            Err(_) => faults.add(&place, format_args!("`{value}` is no method"), "for instance `POST`"),
        }
    }
    let hosts = check_hosts(file.hosts, faults);
    if let (Some(Spot { place, .. }), None) = (&file.subset, &file.domain) {
        faults.add(place, "`subset` is for descriptors", "add `domain` and `entries`, or leave it out");
    }
    let subset = file.subset.is_some_and(|subset| subset.value);
    let descriptor = check_descriptor(file.domain, file.entries, subset, &file.place, faults);
    if descriptor.is_some() && (path.is_some() || !methods.is_empty() || !hosts.is_empty()) {
        let message = "a rule is for HTTP requests or for descriptors, not for both";
        faults.add(&file.place, message, "write two rules");
    }
    Matcher { path, hosts, methods, descriptor }
}

/// The hosts of a list.
pub(super) fn check_hosts(hosts: Option<Spot<Vec<Spot<String>>>>, faults: &mut Faults) -> Vec<HostPattern> {
    let mut patterns = Vec::new();
    for Spot { value, place } in hosts.map(|hosts| hosts.value).unwrap_or_default() {
        match value.parse() {
            Ok(host) => patterns.push(host),
            Err(why) => faults.add(&place, why, "for instance `api.example.com`"),
        }
    }
    patterns
}

/// The descriptors that the rule is for. Half of what they take is a mistake.
fn check_descriptor(
    domain: Option<Spot<String>>,
    entries: Option<Spot<Vec<Spot<String>>>>,
    subset: bool,
    place: &Place,
    faults: &mut Faults,
) -> Option<DescriptorMatch> {
    let (domain, entries) = match (domain, entries) {
        (None, None) => return None,
        (Some(domain), Some(entries)) => (domain, entries),
        (domain, _) => {
            let missing = if domain.is_some() { "entries" } else { "domain" };
            let fix = "for instance `{ domain = \"edge\", entries = [\"remote_address\"] }`";
            faults.add(place, format_args!("descriptors need `{missing}` too"), fix);
            return None;
        }
    };
    if domain.value.is_empty() {
        faults.add(&domain.place, "the domain is empty", "the one that Envoy is configured with");
    }
    if domain.value.contains('*') && domain.value != "*" {
        let message = format!("the domain `{}` has a star among other letters", domain.value);
        faults.add(&domain.place, message, "a whole domain, or `*` for any");
    }
    if entries.value.is_empty() {
        faults.add(&entries.place, "a descriptor has at least one entry", "for instance `remote_address`");
    }
    let fix = "`key`, `key=value` or `key=val*e`, where `*` stands for any text";
    let patterns = entries.value.into_iter().filter_map(|Spot { value, place }| {
        let pattern = value.parse();
        pattern.map_err(|why: DescriptorMatchError| faults.add(&place, why, fix)).ok()
    });
    let entries = patterns.collect();
    Some(DescriptorMatch { domain: domain.value, entries, subset })
}

/// Who pays for a descriptor is the descriptor, and there is no request in which anybody else could be found.
fn check_descriptor_rule(
    key: Option<&Spot<Vec<Spot<String>>>>,
    plans: Option<&RulePlans>,
    place: &Place,
    faults: &mut Faults,
) {
    if let Some(key) = key {
        faults.add(&key.place, "the entries of a descriptor are the key", "leave `key` out");
    }
    if let Some(RulePlans::Tenant { anonymous: None }) = plans {
        let message = "descriptors of nobody who is known need a plan, too";
        faults.add(place, message, "add `anonymous_plan`");
    }
}

fn check_key(words: Option<Vec<Spot<String>>>, faults: &mut Faults) -> KeyList {
    let Some(words) = words.filter(|words| !words.is_empty()) else { return KeyList::default() };
    for Spot { value, place } in &words {
        if let Err(why) = KeyList::parse(&[value]) {
            faults.add(place, why, "for instance `tenant` or `ip`");
        }
    }
    let words: Vec<String> = words.into_iter().map(|word| word.value).collect();
    KeyList::parse(&words).unwrap_or_default()
}

pub(super) fn check_policy(policy: &Spot<String>, faults: &mut Faults) -> Option<FailurePolicy> {
    let checked = policy.value.parse();
    checked.map_err(|why| faults.add(&policy.place, why, "`allow`, `deny` or `local`")).ok()
}

fn check_mode(mode: &Spot<String>, faults: &mut Faults) -> bool {
    if !["enforce", "shadow"].contains(&mode.value.as_str()) {
        faults.add(&mode.place, format_args!("`{}` is no mode", mode.value), "`enforce` or `shadow`");
    }
    mode.value == "shadow"
}

fn check_references(id: &str, also: Vec<Spot<String>>, rules: &[Rule], faults: &mut Faults) -> Vec<SmolStr> {
    let mut others = Vec::new();
    for Spot { value, place } in also {
        match rules.iter().find(|rule| rule.id == value) {
            _ if value == id => faults.add(&place, "a rule cannot be charged with itself", "leave it out"),
            None => {
                faults.add(&place, format_args!("no rule has the id `{value}`"), "the id of another rule");
            }
            Some(rule) if rule.shadow => {
                let message = format!("rule `{value}` only watches, and cannot be charged with another");
                faults.add(&place, message, "`mode = \"enforce\"` there, or leave it out here");
            }
            Some(rule) => others.push(rule.id.clone()),
        }
    }
    others
}
