//! Checks written rules: every name that they use exists, and every request that they match can pass.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use http::Method;
use smol_str::SmolStr;
use spile_core::{Cost, FailurePolicy, Plan, PlanName};
use spile_policy::{
    DEFAULT_RULE, DescriptorMatch, DescriptorMatchError, DescriptorOptions, EntryPattern, HostPattern,
    KeyList, Matcher, Rule, RulePlans,
};

use super::{BANNED, MatchSpec, RuleMode, RuleSpec, TENANT, UNLIMITED};
use crate::config::overlay::Defined;
use crate::config::source::{Faults, Location, did_you_mean};
use crate::config::value::{TextOrTexts, each};
use crate::input::tokens::Tokens;

/// The names that rules may refer to.
pub(in crate::config) struct Known<'a> {
    plans: &'a [Plan],
    /// Includes invalid plans, so that naming one is not a second fault.
    plan_names: &'a [PlanName],
    /// Indexed by name, because a hundred thousand tenants name their plans.
    by_name: HashMap<&'a str, &'a PlanName, RandomState>,
}

impl<'a> Known<'a> {
    pub(in crate::config) fn new(plans: &'a [Plan], plan_names: &'a [PlanName]) -> Self {
        let by_name = plan_names.iter().map(|name| (name.as_str(), name)).collect();
        Self { plans, plan_names, by_name }
    }

    /// The plan of that name, if it is valid.
    pub(in crate::config) fn plan(&self, name: &PlanName) -> Option<&'a Plan> {
        self.plans.iter().find(|plan| plan.name() == name)
    }
}

pub(in crate::config) fn check_all(
    specs: &[Defined<'_, RuleSpec>],
    known: &Known<'_>,
    faults: &mut Faults,
) -> Vec<Rule> {
    let mut ids = HashSet::new();
    let mut rules: Vec<Rule> = Vec::new();
    let list = Location::FILE.key("rules");
    for defined in specs {
        let at = defined.at(&list);
        if let Some(id) = defined.name.filter(|id| !ids.insert(*id)) {
            let message = format!("rule `{id}` is defined twice");
            faults.add(&at.key("id"), message, "each rule needs a different id");
        }
        rules.extend(check(defined.name, defined.spec, &at, known, faults));
    }
    for defined in specs {
        let (Some(id), at) = (defined.name, defined.at(&list)) else { continue };
        if defined.spec.also.is_none() && defined.spec.replaces.is_none() {
            continue;
        }
        let others = |listed: &Option<Vec<String>>, key, refuses: Refuses, faults: &mut Faults| {
            let listed = listed.as_deref().unwrap_or_default();
            check_references(id, listed, &at.key(key), &rules, refuses, faults)
        };
        let also = others(&defined.spec.also, "also", refuses_also, faults);
        let replaces = others(&defined.spec.replaces, "replaces", refuses_replaced, faults);
        if let Some(rule) = rules.iter_mut().find(|rule| rule.id == id) {
            (rule.also, rule.descriptors.replaces) = (also, replaces);
        }
    }
    rules
}

/// The limits of one route. They are charged together with each other and with the rule that the request falls under.
pub(in crate::config) fn check_limits(
    specs: &[RuleSpec],
    at: &Location<'_>,
    known: &Known<'_>,
    faults: &mut Faults,
) -> Vec<Rule> {
    let check = |(index, spec): (usize, &RuleSpec)| {
        let at = at.item(index);
        if spec.matches.as_ref().is_some_and(|matches| matches.domain.is_some()) {
            let message = "a route's limits are for HTTP requests";
            faults.add(&at.key("match").key("domain"), message, "leave `domain` and `entries` out");
        }
        if spec.also.is_some() {
            let message = "a route's limits are charged together anyway";
            faults.add(&at.key("also"), message, "leave `also` out");
        }
        check(spec.id.as_deref(), spec, &at, known, faults)
    };
    specs.iter().enumerate().filter_map(check).collect()
}

/// Checks everything before it gives up, so that every mistake is found.
fn check(
    id: Option<&str>,
    spec: &RuleSpec,
    at: &Location<'_>,
    known: &Known<'_>,
    faults: &mut Faults,
) -> Option<Rule> {
    // Ids appear where names of plans do, so they consist of the same characters.
    let wrong = |why, faults: &mut Faults| faults.add(&at.key("id"), why, "for instance `login`");
    let id = faults.required(at, "id", id);
    let id = id.filter(|id| PlanName::new(id).map_err(|why| wrong(why, faults)).is_ok()).map(SmolStr::new);
    let plans = check_plans(spec, at, known, faults);
    let cost = check_cost(spec.cost, plans.as_ref(), at, known, faults);
    let matcher = spec.matches.as_ref().map(|matches| check_match(matches, &at.key("match"), faults));
    if id.as_deref() == Some(DEFAULT_RULE) && matcher.is_some() {
        let message = "the rule `default` matches all requests that no other rule matches";
        faults.add(&at.key("match"), message, "leave `match` out, or give the rule another id");
    }
    let matcher = matcher.unwrap_or_default();
    if matcher.descriptor.is_some() {
        check_descriptor_rule(spec, plans.as_ref(), at, faults);
    } else {
        refuse_descriptor_options(spec, at, faults);
    }
    let key = check_key(spec.key.as_deref().unwrap_or_default(), &at.key("key"), faults);
    Some(Rule {
        id: id?,
        matcher,
        key,
        plans: plans?,
        cost,
        fixed_cost: spec.fixed_cost.unwrap_or_default(),
        on_failure: spec.on_failure.map(FailurePolicy::from),
        shadow: spec.mode == Some(RuleMode::Shadow),
        also: Vec::new(),
        descriptors: DescriptorOptions {
            late: spec.late == Some(true),
            any: spec.mode == Some(RuleMode::Any),
            replaces: Vec::new(),
        },
    })
}

fn check_plans(
    spec: &RuleSpec,
    rule_at: &Location<'_>,
    known: &Known<'_>,
    faults: &mut Faults,
) -> Option<RulePlans> {
    let at = rule_at.key("plans");
    let Some(plans) = &spec.plans else {
        if !faults.has(&at) {
            faults.add(&at, "the rule has no plans", "add `plans = [\"…\"]` or `plans = \"tenant\"`");
        }
        return None;
    };
    let anonymous_at = rule_at.key("anonymous_plan");
    let word = match plans {
        TextOrTexts::One(word) => word.as_str(),
        TextOrTexts::Many(_) => "",
    };
    if word == TENANT {
        let Some(anonymous) = &spec.anonymous_plan else {
            return Some(RulePlans::Tenant { anonymous: None });
        };
        let anonymous = check_plan(anonymous, &anonymous_at, known, faults);
        return anonymous.map(|plan| RulePlans::Tenant { anonymous: Some(plan) });
    }
    if spec.anonymous_plan.is_some() {
        faults.add(&anonymous_at, "an anonymous plan needs `plans = \"tenant\"`", "leave it out");
    }
    let names = match word {
        UNLIMITED => return Some(RulePlans::Unlimited),
        BANNED => return Some(RulePlans::Banned),
        _ => plans.each(&at),
    };
    if names.is_empty() {
        faults.add(&at, "the rule has no plans", "name at least one");
        return None;
    }
    let check = |(at, name): &(Location<'_>, &str)| check_plan(name, at, known, faults);
    let found: Vec<PlanName> = names.iter().filter_map(check).collect();
    (found.len() == names.len()).then_some(RulePlans::Listed(found))
}

/// Returns the plan of that name, or adds a fault that lists the existing ones.
pub(in crate::config) fn check_plan(
    name: &str,
    at: &Location<'_>,
    known: &Known<'_>,
    faults: &mut Faults,
) -> Option<PlanName> {
    let found = known.by_name.get(name).copied();
    if found.is_none() {
        let names: Vec<&str> = known.plan_names.iter().map(PlanName::as_str).collect();
        let guess = did_you_mean(name, names.iter().copied());
        let fix = format!("{guess}there are {}", names.join(", "));
        faults.add(at, format_args!("no plan is called `{name}`"), fix);
    }
    found.cloned()
}

fn check_cost(
    cost: Option<Tokens>,
    plans: Option<&RulePlans>,
    rule_at: &Location<'_>,
    known: &Known<'_>,
    faults: &mut Faults,
) -> Cost {
    let Some(Tokens(cost)) = cost else { return Cost::ONE };
    let at = rule_at.key("cost");
    let names = plans.map(RulePlans::known).unwrap_or_default();
    let limits = known.plans.iter().filter(|plan| names.contains(plan.name())).flat_map(Plan::limits);
    let smallest = limits.min_by_key(|limit| limit.limit().capacity());
    match (Cost::new(cost), smallest) {
        (Ok(cost), Some(limit)) if !limit.limit().can_cover(cost) => {
            let name = limit.name();
            let message =
                format!("cost {} is above the capacity of limit {name}: it can never pass", cost.amount());
            faults.add(&at, message, format_args!("at most {}", limit.limit().capacity()));
            Cost::ONE
        }
        (Ok(cost), _) => cost,
        (Err(why), _) => {
            faults.add(&at, why, "a smaller cost");
            Cost::ONE
        }
    }
}

fn check_match(spec: &MatchSpec, at: &Location<'_>, faults: &mut Faults) -> Matcher {
    let path = spec.path.as_ref().and_then(|path| {
        path.parse().map_err(|why| faults.add(&at.key("path"), why, "a path that starts with `/`")).ok()
    });
    let mut methods = Vec::new();
    for (at, method) in each(spec.methods.as_deref().unwrap_or_default(), &at.key("methods")) {
        match method.to_ascii_uppercase().parse::<Method>() {
            Ok(method) => methods.push(method),
            Err(_) => faults.add(&at, format_args!("`{method}` is not a method"), "for instance `POST`"),
        }
    }
    let mut hosts: Vec<HostPattern> = Vec::new();
    for (at, host) in each(spec.hosts.as_deref().unwrap_or_default(), &at.key("hosts")) {
        match host.parse() {
            Ok(host) => hosts.push(host),
            Err(why) => faults.add(&at, why, "for instance `api.example.com`"),
        }
    }
    for (key, is_set) in [("subset", spec.subset.is_some()), ("shared", spec.shared.is_some())] {
        if is_set && spec.domain.is_none() {
            let fix = "add `domain` and `entries`, or leave it out";
            faults.add(&at.key(key), format_args!("`{key}` is for descriptors"), fix);
        }
    }
    let descriptor = check_descriptor(spec, at, faults);
    if descriptor.is_some() && (path.is_some() || !methods.is_empty() || !hosts.is_empty()) {
        let message = "a rule is for HTTP requests or for descriptors, not for both";
        faults.add(at, message, "write two rules");
    }
    Matcher { path, hosts, methods, descriptor }
}

/// The descriptors that the rule is for. A domain without entries, or entries without a domain, is a mistake.
fn check_descriptor(spec: &MatchSpec, at: &Location<'_>, faults: &mut Faults) -> Option<DescriptorMatch> {
    let (domain, entries) = match (&spec.domain, &spec.entries) {
        (None, None) => return None,
        (Some(domain), Some(entries)) => (domain, entries),
        (domain, _) => {
            let missing = if domain.is_some() { "entries" } else { "domain" };
            let fix = "for instance `{ domain = \"edge\", entries = [\"remote_address\"] }`";
            faults.add(at, format_args!("descriptors need `{missing}` too"), fix);
            return None;
        }
    };
    if domain.is_empty() {
        faults.add(&at.key("domain"), "the domain is empty", "the one that Envoy is configured with");
    }
    if domain.contains('*') && domain != "*" {
        let message = format!("the domain `{domain}` has a star among other letters");
        faults.add(&at.key("domain"), message, "a whole domain, or `*` for any");
    }
    if entries.is_empty() {
        faults.add(
            &at.key("entries"),
            "a descriptor has at least one entry",
            "for instance `remote_address`",
        );
    }
    let fix = "`key`, `key=value` or `key=val*e`, where `*` stands for any text";
    let entry = |(at, entry): (Location<'_>, &str)| {
        entry.parse().map_err(|why: DescriptorMatchError| faults.add(&at, why, fix)).ok()
    };
    let mut entries: Vec<EntryPattern> = each(entries, &at.key("entries")).filter_map(entry).collect();
    for (at, key) in each(spec.shared.as_deref().unwrap_or_default(), &at.key("shared")) {
        if !entries.iter().any(|entry| entry.key() == key) {
            faults.add(&at, format_args!("no entry has the key `{key}`"), "the key of one of the `entries`");
        }
        let share = |entry: EntryPattern| if entry.key() == key { entry.shared() } else { entry };
        entries = entries.into_iter().map(share).collect();
    }
    Some(DescriptorMatch { domain: domain.clone(), entries, subset: spec.subset == Some(true) })
}

/// Checks a rule for descriptors. A descriptor pays for itself, because there is no request in which another payer could be found.
fn check_descriptor_rule(spec: &RuleSpec, plans: Option<&RulePlans>, at: &Location<'_>, faults: &mut Faults) {
    if spec.key.is_some() {
        faults.add(&at.key("key"), "the entries of a descriptor are the key", "leave `key` out");
    }
    if let Some(RulePlans::Tenant { anonymous: None }) = plans {
        let message = "descriptors that belong to no tenant need a plan, too";
        faults.add(at, message, "add `anonymous_plan`");
    }
}

/// Refuses options that only descriptors have: only Envoy's requests have several of them, and only Envoy reports usage as hits.
fn refuse_descriptor_options(spec: &RuleSpec, at: &Location<'_>, faults: &mut Faults) {
    let options = [
        ("late", spec.late == Some(true)),
        ("replaces", spec.replaces.is_some()),
        ("mode", spec.mode == Some(RuleMode::Any)),
    ];
    for (key, _) in options.into_iter().filter(|(_, is_set)| *is_set) {
        let what = if key == "mode" { "the mode `any`".to_owned() } else { format!("`{key}`") };
        let fix = "add `domain` and `entries` to `match`, or leave it out";
        faults.add(&at.key(key), format_args!("{what} is for descriptors"), fix);
    }
}

fn check_key(words: &[String], at: &Location<'_>, faults: &mut Faults) -> KeyList {
    if words.is_empty() {
        return KeyList::default();
    }
    for (at, word) in each(words, at) {
        if let Err(why) = KeyList::parse(&[word]) {
            faults.add(&at, why, "for instance `tenant` or `ip`");
        }
    }
    KeyList::parse(words).unwrap_or_default()
}

/// Returns why a list cannot name this rule and what to do about it, or `None` if it can.
type Refuses = fn(&Rule) -> Option<(String, &'static str)>;

fn refuses_also(other: &Rule) -> Option<(String, &'static str)> {
    let mode = match (other.shadow, other.descriptors.any) {
        (true, _) => "shadow mode",
        (false, true) => "the mode `any`",
        (false, false) => return None,
    };
    let message = format!("rule `{}` is in {mode}, and cannot be charged with another", other.id);
    Some((message, "`mode = \"enforce\"` there, or leave it out here"))
}

fn refuses_replaced(other: &Rule) -> Option<(String, &'static str)> {
    let message = || format!("rule `{}` is for HTTP requests, which have one rule each", other.id);
    other.matcher.descriptor.is_none().then(|| (message(), "leave it out"))
}

/// The rules that a list of a rule names.
fn check_references(
    id: &str,
    listed: &[String],
    at: &Location<'_>,
    rules: &[Rule],
    refuses: Refuses,
    faults: &mut Faults,
) -> Vec<SmolStr> {
    let mut others = Vec::new();
    for (at, other) in each(listed, at) {
        match rules.iter().find(|rule| rule.id == other) {
            _ if other == id => faults.add(&at, "a rule cannot name itself here", "leave it out"),
            None => {
                let guess = did_you_mean(other, rules.iter().map(|rule| rule.id.as_str()));
                let fix = format!("{guess}it takes the id of another rule");
                faults.add(&at, format_args!("no rule has the id `{other}`"), fix);
            }
            Some(rule) => match refuses(rule) {
                Some((message, fix)) => faults.add(&at, message, fix),
                None => others.push(rule.id.clone()),
            },
        }
    }
    others
}
