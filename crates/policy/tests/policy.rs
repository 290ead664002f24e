//! Tests what requests owe: which rule, which keys, which limits at which cost, and why some are refused.

use http::{HeaderMap, HeaderName, Method};
use proptest::prelude::*;
use smol_str::SmolStr;
use spile_core::{Amount, ChargeError, Charges, Cost, FailurePolicy, Limit, Plan, PlanName};
use spile_policy::{
    ApiKeyHash, AskError, CallerTenant, Chain, Credential, DescriptorMatch, Enforced, Facts, KeyList,
    Matcher, Owed, Policy, PolicyBuilder, PolicyError, PolicyRefusal, ResolvedKey, Rule, RulePlans, Tenant,
    single_value,
};

const ADDRESS: [u8; 4] = [203, 0, 113, 7];

fn plan(name: &str, capacity: u64) -> Plan {
    Plan::new(name, Limit::per_second(1).burst(capacity)).expect("a plan")
}

/// `free` has one limit of 10, `gold` has `gold/burst` of 100 and `gold/daily` of 1,000.
fn plans() -> PolicyBuilder {
    let gold = [("burst", Limit::per_second(1).burst(100)), ("daily", Limit::per_day(1_000))];
    Policy::builder().plans([plan("free", 10), Plan::chain("gold", gold).expect("a plan")])
}

fn name(plan: &str) -> PlanName {
    PlanName::new(plan).expect("a name")
}

/// A rule by address with this plan.
fn rule(id: &str, plan: &str) -> Rule {
    let key = KeyList::parse(&["ip"]).expect("a key");
    Rule { key, ..Rule::new(id, RulePlans::listed([plan]).expect("a name")) }
}

fn on(rule: Rule, path: &str) -> Rule {
    let path = Some(path.parse().expect("a pattern"));
    Rule { matcher: Matcher { path, ..rule.matcher }, ..rule }
}

fn costing(rule: Rule, tokens: u64) -> Rule {
    Rule { cost: Cost::new(tokens).expect("a cost"), ..rule }
}

fn for_tenants(id: &str, anonymous: Option<&str>) -> Rule {
    let key = KeyList::parse(&["tenant", "ip"]).expect("a key");
    Rule { key, ..Rule::new(id, RulePlans::Tenant { anonymous: anonymous.map(name) }) }
}

fn built(builder: PolicyBuilder) -> Policy {
    builder.build().expect("a policy")
}

/// What a chain charges: key, limit and cost of each.
fn lines(chain: &Chain) -> Vec<(String, String, u64)> {
    let line = |charge: &spile_core::Charge<'_>| {
        (
            charge.key().as_str().to_owned(),
            charge.limit().name().to_string(),
            charge.cost().amount().whole_tokens(),
        )
    };
    chain.charges().iter().map(line).collect()
}

fn paid(owed: &Owed) -> Vec<(String, String, u64)> {
    lines_of(&owed.enforced)
}

fn lines_of(enforced: &Enforced) -> Vec<(String, String, u64)> {
    match enforced {
        Enforced::Charged(chain) => lines(chain),
        Enforced::Unlimited { .. } => Vec::new(),
    }
}

/// The enforced chain.
fn charged(enforced: Enforced) -> Chain {
    let Enforced::Charged(chain) = enforced else { panic!("nothing is charged: {enforced:?}") };
    chain
}

/// The rule that says that no limit applies: empty if no rule matches. `None` if one does.
fn unlimited_by(owed: &Owed) -> Option<&str> {
    match &owed.enforced {
        Enforced::Charged(_) => None,
        Enforced::Unlimited { rule, .. } => Some(rule.as_deref().unwrap_or_default()),
    }
}

fn line(key: &str, limit: &str, cost: u64) -> (String, String, u64) {
    (key.to_owned(), limit.to_owned(), cost)
}

fn by_address<'a>(method: &'a Method, path: &'a str, headers: &'a HeaderMap) -> Facts<'a> {
    Facts { address: Some(ADDRESS.into()), ..Facts::new(method, path, headers) }
}

/// What a `GET` of this path owes, from one address.
fn asked(policy: &Policy, path: &str) -> Owed {
    policy.owed(&by_address(&Method::GET, path, &HeaderMap::new()))
}

#[test]
fn the_rule_that_asks_for_most_is_the_one_that_counts() {
    let hosts = |rule: Rule, host: &str| {
        let hosts = vec![host.parse().expect("a host")];
        Rule { matcher: Matcher { hosts, ..rule.matcher }, ..rule }
    };
    let posts =
        |rule: Rule| Rule { matcher: Matcher { methods: vec![Method::POST], ..rule.matcher }, ..rule };
    let policy = built(plans().rules([
        rule("default", "free"),
        on(rule("all", "free"), "/a/*"),
        posts(on(rule("posts", "free"), "/a/*")),
        on(rule("exact", "free"), "/a/b"),
        on(rule("twin", "free"), "/a/b"),
        hosts(rule("domain", "free"), "*.test"),
        hosts(rule("host", "free"), "a.test"),
    ]));
    let table = [
        (Method::GET, "", "/x", "default"),
        (Method::GET, "", "/a/x", "all"),
        (Method::POST, "", "/a/x", "posts"),
        (Method::POST, "", "/a/b", "exact"),
        (Method::GET, "b.test", "/a/b", "domain"),
        (Method::GET, "a.test", "/a/b", "host"),
    ];
    for (method, host, path, expected) in table {
        let headers = HeaderMap::new();
        let facts = Facts { host, ..by_address(&method, path, &headers) };
        let chain = charged(policy.owed(&facts).enforced);
        assert_eq!(chain.rule(), Some(expected), "{method} {host} {path}");
    }
}

#[test]
fn a_policy_that_names_a_missing_plan_or_rule_is_not_built() {
    let unknown = |of: &str| PolicyError::Plan { of: of.into(), plan: name("silver") };
    assert_eq!(plans().rules([rule("a", "silver")]).build().err(), Some(unknown("a")));
    assert_eq!(plans().route_limits("r", [rule("b", "silver")]).build().err(), Some(unknown("b")));
    assert_eq!(plans().tenants([Tenant::new("acme", name("silver"))]).build().err(), Some(unknown("acme")));
    let also = Rule { also: vec!["gone".into()], ..rule("a", "free") };
    let why = plans().rules([also]).build().expect_err("there is no such rule");
    assert_eq!(why.to_string(), "rule `a` is charged with `gone`, and there is no such rule");
}

#[test]
fn a_policy_tells_what_it_holds_in_order() {
    let tenants = ["b", "a"].map(|id| Tenant::new(id, name("free")));
    let policy =
        built(plans().rules([rule("r", "gold")]).route_limits("way", [rule("s", "free")]).tenants(tenants));
    assert_eq!(policy.plans().iter().map(|plan| plan.name().as_str()).collect::<Vec<_>>(), ["free", "gold"]);
    assert_eq!(policy.tenants().iter().map(|tenant| tenant.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let mut limits: Vec<_> = policy.rule_limits().map(|(rule, limit)| format!("{rule} {limit}")).collect();
    limits.sort();
    assert_eq!(limits, ["r gold/burst", "r gold/daily", "s free"]);
    assert!(policy.has_tenants() && !built(plans()).has_tenants());
    assert!(built(plans().expects_tenants(true)).has_tenants());
    assert!(policy.tenant("a").is_some() && policy.tenant("c").is_none());
    assert_eq!(built(plans().on_failure(FailurePolicy::Deny)).on_failure(), FailurePolicy::Deny);
}

#[test]
fn rules_that_are_charged_together_are_one_chain_with_each_bucket_at_its_highest_cost() {
    let also = |rule: Rule, ids: &[&str]| Rule { also: ids.iter().map(|id| (*id).into()).collect(), ..rule };
    let deny = |rule: Rule| Rule { on_failure: Some(FailurePolicy::Deny), ..rule };
    let policy = built(plans().rules([
        also(costing(on(rule("a", "free"), "/a"), 2), &["b"]),
        // A cycle of `also` ends.
        also(deny(costing(on(rule("b", "free"), "/b"), 5)), &["c", "a"]),
        on(rule("c", "gold"), "/c"),
    ]));
    let key = "ip:203.0.113.7";
    let expected = [line(key, "free", 5), line(key, "gold/burst", 1), line(key, "gold/daily", 1)];
    let owed = asked(&policy, "/a");
    assert_eq!(paid(&owed), expected);
    let chain = charged(owed.enforced);
    assert_eq!(
        (chain.rule(), chain.failure_policy()),
        (Some("a"), Some(FailurePolicy::Deny)),
        "the strictest"
    );
    let (_, most) = policy.most_limits().find(|(rule, _)| &*rule.id == "a").expect("it is there");
    assert_eq!(most, 4);
    assert_eq!(paid(&asked(&policy, "/nowhere")), []);
}

#[test]
fn what_can_never_pass_is_refused_and_not_charged() {
    let banned =
        Rule { key: KeyList::parse(&["ip"]).expect("a key"), ..Rule::new("banned", RulePlans::Banned) };
    let policy = built(plans().rules([
        costing(on(rule("dear", "free"), "/dear"), 11),
        on(banned, "/banned"),
        on(Rule::new("free-for-all", RulePlans::Unlimited), "/open"),
        on(for_tenants("members", None), "/members"),
        on(Rule { key: KeyList::parse(&["header:x-who"]).expect("a key"), ..rule("who", "free") }, "/who"),
    ]));
    let dear = asked(&policy, "/dear");
    let never = matches!(
        &dear.refusal,
        Some(PolicyRefusal::NeverPasses(ChargeError::CostAboveCapacity { cost, .. })) if *cost == 11
    );
    assert!(never && dear.is_empty(), "{dear:?}");
    let refused = |path: &str| asked(&policy, path).refusal;
    assert_eq!(refused("/banned"), Some(PolicyRefusal::Banned { rule: "banned".into() }));
    assert_eq!(refused("/members"), Some(PolicyRefusal::NoTenant { rule: "members".into() }));
    assert_eq!(
        refused("/who"),
        Some(PolicyRefusal::NoKey { rule: "who".into(), words: "header:x-who".to_owned() })
    );
    let open = asked(&policy, "/open");
    assert!(open.refusal.is_none() && open.is_empty());
    assert_eq!(unlimited_by(&open), Some("free-for-all"));
    assert_eq!(unlimited_by(&asked(&policy, "/nowhere")), Some(""), "no rule says so");
}

#[test]
fn a_rule_in_shadow_mode_is_asked_beside_the_enforced_one_on_buckets_of_its_own() {
    let shadow = |rule: Rule| Rule { shadow: true, ..rule };
    let policy = built(plans().rules([
        on(rule("wide", "free"), "/*"),
        shadow(costing(on(rule("narrow", "free"), "/a/*"), 5)),
        shadow(on(rule("other", "gold"), "/*")),
        Rule { also: vec!["narrow".into()], ..on(rule("chained", "free"), "/chained") },
    ]));
    let owed = asked(&policy, "/a/b");
    assert_eq!(paid(&owed), [line("ip:203.0.113.7", "free", 1)], "the most specific enforced rule");
    let [watched] = &owed.shadow[..] else { panic!("the most specific one in shadow mode: {owed:?}") };
    assert_eq!(
        (watched.rule(), lines(watched)),
        (Some("narrow"), vec![line("ip:203.0.113.7", "shadow:free", 5)])
    );
    let owed = asked(&policy, "/b");
    assert_eq!(paid(&owed), [line("ip:203.0.113.7", "free", 1)]);
    let names: Vec<_> = lines(&owed.shadow[0]).into_iter().map(|(_, limit, _)| limit).collect();
    assert_eq!(names, ["shadow:gold/burst", "shadow:gold/daily"]);
    assert_eq!(paid(&asked(&policy, "/chained")).len(), 1, "an `also` rule in shadow mode is not charged");
}

#[test]
fn a_rule_in_shadow_watches_and_never_refuses() {
    let shadow = |rule: Rule| Rule { shadow: true, ..rule };
    let policy = built(plans().rules([
        shadow(on(rule("watch", "free"), "/a")),
        shadow(costing(on(rule("dear", "free"), "/dear"), 11)),
        shadow(on(Rule::new("banned", RulePlans::Banned), "/banned")),
        shadow(on(Rule::new("open", RulePlans::Unlimited), "/open")),
    ]));
    let owed = asked(&policy, "/a");
    assert!(unlimited_by(&owed) == Some("") && owed.refusal.is_none());
    let [watched] = &owed.shadow[..] else { panic!("one watches") };
    assert!(watched.is_shadow());
    assert_eq!(
        (watched.rule(), lines(watched)),
        (Some("watch"), vec![line("ip:203.0.113.7", "shadow:free", 1)])
    );
    for path in ["/dear", "/banned", "/open"] {
        let owed = asked(&policy, path);
        assert!(owed.is_empty() && owed.refusal.is_none(), "{path}");
    }
}

#[test]
fn a_shadow_rule_takes_no_permits_and_charges_the_other_limits_of_its_plan() {
    let jobs = Limit::concurrent(2).build().expect("a limit");
    let rate = Limit::per_second(1).burst(5).build().expect("a limit");
    let mixed = Plan::chain("mixed", [("jobs", jobs), ("rate", rate)]).expect("a plan");
    let builder = plans().plans([Plan::new("jobs", jobs).expect("a plan"), mixed]);
    let shadow = |rule: Rule| Rule { shadow: true, ..rule };
    let policy = built(builder.rules([
        shadow(on(rule("only", "jobs"), "/only")),
        shadow(on(rule("both", "mixed"), "/both")),
        on(rule("enforced", "mixed"), "/enforced"),
    ]));
    assert!(asked(&policy, "/only").is_empty(), "nothing is left to evaluate");
    let owed = asked(&policy, "/both");
    let [watched] = &owed.shadow[..] else { panic!("one chain: {owed:?}") };
    assert_eq!(lines(watched), [line("ip:203.0.113.7", "shadow:mixed/rate", 1)]);
    for id in ["only", "both"] {
        let owed = policy.owed_by_identity(id, "ann", None).expect("a rule");
        assert!(owed.without_permit().is_ok(), "{id}");
    }
    let enforced = policy.owed_by_identity("enforced", "ann", None).expect("a rule");
    assert!(matches!(enforced.clone().without_permit(), Err(AskError::NeedsPermit(_))));
    assert!(enforced.with_permit().is_ok());
    let free = policy.owed_by_plans("ann", ["free"], 1).expect("a plan");
    assert_eq!(free.with_permit().expect_err("no concurrency"), AskError::NoConcurrency);
}

/// A random rule: any path, plan, key, cost and mode, and others that are charged with it.
fn any_rule(id: &'static str) -> impl Strategy<Value = Rule> {
    let paths = prop::sample::select(vec!["/*", "/a/*", "/a/b", "/b"]);
    let plans = prop::sample::select(vec!["free", "gold", "tenant", "unlimited", "banned"]);
    let keys =
        prop::sample::select(vec![&["tenant", "ip"][..], &["ip"], &["literal:all"], &["header:x-who"]]);
    let also = prop::sample::subsequence(vec!["default", "one", "two", "three"], 0..=2);
    let methods = prop::sample::subsequence(vec![Method::GET, Method::POST], 0..=2);
    (paths, plans, keys, 1_u64..12, any::<bool>(), also, methods).prop_map(
        move |(path, plans, keys, cost, shadow, also, methods)| {
            let plans = match plans {
                "tenant" => RulePlans::Tenant { anonymous: (cost % 2 == 0).then(|| name("free")) },
                "unlimited" => RulePlans::Unlimited,
                "banned" => RulePlans::Banned,
                listed => RulePlans::listed([listed]).expect("a name"),
            };
            let path = Some(path.parse().expect("a pattern"));
            Rule {
                matcher: Matcher { path, methods, ..Matcher::default() },
                key: KeyList::parse(keys).expect("keys"),
                shadow,
                also: also.into_iter().map(Into::into).collect(),
                ..costing(Rule::new(id, plans), cost)
            }
        },
    )
}

/// These rules as if those in shadow mode had never been written.
fn without_shadow(rules: &[Rule]) -> Vec<Rule> {
    let enforced = || rules.iter().filter(|rule| !rule.shadow);
    let is_there = |id: &SmolStr| enforced().any(|rule| rule.id == *id);
    enforced()
        .map(|rule| Rule {
            also: rule.also.iter().filter(|id| is_there(id)).cloned().collect(),
            ..rule.clone()
        })
        .collect()
}

proptest! {
    /// Turning a rule to shadow never lets an enforced limit admit more or less than without that rule.
    #[test]
    fn shadow_rules_change_nothing_that_is_enforced(
        rules in (any_rule("default"), any_rule("one"), any_rule("two"), any_rule("three")),
        limits in (any_rule("r"), any_rule("s")),
        path in prop::sample::select(vec!["/", "/a", "/a/b", "/a/c", "/b"]),
        is_post in any::<bool>(),
        is_tenant in any::<bool>(),
        routed in any::<bool>(),
        credential in prop::sample::select(vec![Credential::Accepted, Credential::Unknown, Credential::Refused]),
    ) {
        let rules = [rules.0, rules.1, rules.2, rules.3];
        let limits = [limits.0, limits.1].map(|limit| Rule { also: Vec::new(), ..limit });
        let policy = |rules: &[Rule], limits: &[Rule]| {
            let all = plans().rules(rules.to_vec()).route_limits("way", limits.to_vec()).tenants([acme()]);
            built(all)
        };
        let (whole, stripped) =
            (policy(&rules, &limits), policy(&without_shadow(&rules), &without_shadow(&limits)));
        let (headers, method) = (HeaderMap::new(), if is_post { Method::POST } else { Method::GET });
        let mut facts = by_address(&method, path, &headers);
        facts.credential = credential;
        facts.tenant = is_tenant.then(|| whole.tenant_of_claim("acme", None));
        facts.route = routed.then_some("way");
        let (owed, expected) = (whole.owed(&facts), stripped.owed(&facts));
        prop_assert_eq!(paid(&owed), paid(&expected));
        prop_assert_eq!(&owed.refusal, &expected.refusal);
        prop_assert_eq!(unlimited_by(&owed), unlimited_by(&expected));
        let origin = |owed: &Owed| match &owed.enforced {
            Enforced::Charged(chain) => {
                Some((chain.rule().map(str::to_owned), chain.tenant().map(str::to_owned), chain.failure_policy()))
            }
            Enforced::Unlimited { .. } => None,
        };
        prop_assert_eq!(origin(&owed), origin(&expected));
        prop_assert!(expected.shadow.is_empty());
        for chain in &owed.shadow {
            prop_assert!(chain.is_shadow() && chain.first_permit().is_none() && chain.never_passes().is_none());
            let names = chain.buckets().iter().map(|bucket| bucket.limit().name().as_str());
            prop_assert!(names.clone().all(|name| name.starts_with("shadow:")), "{:?}", names.collect::<Vec<_>>());
        }
        // Questions by id, too: a rule that is enforced in both owes the same.
        for rule in rules.iter().filter(|rule| !rule.shadow) {
            let by_id = |policy: &Policy| policy.owed_by_identity(&rule.id, "ann", None).map(|owed| paid(&owed));
            prop_assert_eq!(by_id(&whole), by_id(&stripped));
        }
    }
}

#[test]
fn a_routes_limits_have_buckets_of_their_own_beside_the_rules() {
    let posts = Rule {
        matcher: Matcher { methods: vec![Method::POST], ..Matcher::default() },
        ..rule("posts", "gold")
    };
    let policy =
        built(plans().rules([rule("default", "free")]).route_limits("way", [rule("own", "free"), posts]));
    let (headers, key) = (HeaderMap::new(), "ip:203.0.113.7");
    let facts = |method, route| Facts { route: Some(route), ..by_address(method, "/", &headers) };
    let of_route = "joined:14:ip:203.0.113.79:route:way";
    let owed = policy.owed(&facts(&Method::GET, "way"));
    assert_eq!(paid(&owed), [line(key, "free", 1), line(of_route, "free", 1)]);
    assert_eq!(charged(owed.enforced).rule(), Some("default"));
    assert_eq!(paid(&policy.owed(&facts(&Method::POST, "way"))).len(), 4);
    assert_eq!(paid(&policy.owed(&facts(&Method::GET, "other"))), [line(key, "free", 1)]);
}

/// The tenant `acme` on gold, with a daily limit of 5 and this API key.
fn acme() -> Tenant {
    let gold = built(plans()).plan("gold").expect("a plan").clone();
    let own = Tenant::new("acme", name("gold")).api_key(ApiKeyHash::of(b"secret"));
    own.with_limits(&gold, [("daily", Limit::per_day(5).build().expect("a limit"))])
        .expect("it has such a limit")
}

#[test]
fn a_tenant_is_known_by_its_key_or_its_claim_and_pays_by_its_plan_and_its_own_limits() {
    let policy = built(plans().rules([for_tenants("default", Some("free"))]).tenants([acme()]));
    let tenant = policy.tenant_of_key(b"secret").expect("its key");
    assert_eq!((tenant.id.as_str(), tenant.plan.as_ref()), ("acme", Some(&name("gold"))));
    assert!(policy.tenant_of_key(b"other").is_none() && built(plans()).tenant_of_key(b"secret").is_none());
    let claimed = |id: &str, plan| policy.tenant_of_claim(id, plan).plan;
    assert_eq!(claimed("acme", Some("free")), Some(name("free")));
    assert_eq!(
        (claimed("acme", Some("gone")), claimed("acme", None)),
        (Some(name("gold")), Some(name("gold")))
    );
    assert_eq!(claimed("stranger", None), None);
    let headers = HeaderMap::new();
    let facts = by_address(&Method::GET, "/", &headers);
    let owed = policy.owed(&Facts { tenant: Some(tenant), ..facts.clone() });
    let chain = charged(owed.enforced.clone());
    assert_eq!(chain.tenant(), Some("acme"));
    let key = "tenant:acme";
    assert_eq!(paid(&owed), [line(key, "gold/burst", 1), line(key, "gold/daily", 1)]);
    let capacities: Vec<_> =
        chain.buckets().iter().map(|line| line.limit().limit().capacity().whole_tokens()).collect();
    assert_eq!(capacities, [100, 5]);
    assert_eq!(acme().own_limits().map(|limit| limit.name().to_string()).collect::<Vec<_>>(), ["gold/daily"]);
    assert_eq!(paid(&policy.owed(&facts)), [line("ip:203.0.113.7", "free", 1)], "a stranger's plan");
    let gone = Tenant::new("b", name("free"))
        .with_limits(&plan("free", 1), [("x", *chain.buckets()[0].limit().limit())]);
    assert_eq!(
        gone.expect_err("no such limit").to_string(),
        "plan `free` has no limit called `x`: it has free"
    );
}

#[test]
fn an_address_pays_for_a_credential_that_is_refused_once() {
    let (key, headers) = ("ip:203.0.113.7", HeaderMap::new());
    let guess = |policy: &Policy, path: &str, credential| {
        let facts = by_address(&Method::GET, path, &headers);
        paid(&policy.owed(&Facts { credential, ..facts }))
    };
    let by_name = Rule { key: KeyList::parse(&["literal:all"]).expect("a key"), ..rule("shared", "free") };
    let policy = built(plans().rules([
        rule("default", "free"),
        on(by_name, "/shared"),
        on(rule("dear", "gold"), "/gold"),
        on(for_tenants("members", None), "/members"),
        on(for_tenants("guests", Some("gold")), "/guests"),
    ]));
    assert_eq!(guess(&policy, "/", Credential::Refused), [line(key, "free", 1)], "it pays already");
    let gold = [line(key, "gold/burst", 1), line(key, "gold/daily", 1)];
    assert_eq!(guess(&policy, "/gold", Credential::Refused), gold, "and not for the strangers' plan as well");
    let both = [line("static:all", "free", 1), line(key, "free", 1)];
    assert_eq!(guess(&policy, "/shared", Credential::Refused), both);
    assert_eq!(guess(&policy, "/shared", Credential::Unknown), both[..1]);
    assert_eq!(guess(&policy, "/shared", Credential::Accepted), both[..1]);
    for credential in [Credential::Refused, Credential::Unknown] {
        assert_eq!(guess(&policy, "/members", credential), [line(key, "free", 1)]);
    }
    assert_eq!(guess(&policy, "/members", Credential::Accepted), []);
    assert_eq!(guess(&policy, "/guests", Credential::Refused).len(), 2, "guests are on gold");
    let chain = policy
        .owed(&Facts { credential: Credential::Refused, ..Facts::new(&Method::GET, "/members", &headers) });
    assert!(chain.is_empty(), "no address, no charge");
}

#[test]
fn a_made_up_api_key_has_a_bucket_and_its_address_ten_times_as_much() {
    let policy =
        built(plans().rules([costing(rule("default", "gold"), 2), on(rule("other", "free"), "/other")]));
    let header = HeaderName::from_static("x-api-key");
    let owed = |path: &str, value: &str, tenant: Option<CallerTenant>| {
        let headers = HeaderMap::from_iter([(header.clone(), value.parse().expect("a value"))]);
        let facts = Facts { tenant, ..by_address(&Method::GET, path, &headers) };
        policy.owed_by_api_key(&facts, &header)
    };
    let made_up = charged(owed("/", "k", None).enforced);
    let charged = lines(&made_up);
    assert!(
        charged[..2].iter().all(|(key, _, cost)| key.starts_with("sha256:") && *cost == 2),
        "{charged:?}"
    );
    let address = "ip:203.0.113.7";
    assert_eq!(
        charged[2..],
        [line(address, "by.address/gold..burst", 2), line(address, "by.address/gold..daily", 2)]
    );
    let held: Vec<_> =
        made_up.buckets().iter().map(|line| line.limit().limit().capacity().whole_tokens()).collect();
    assert_eq!(held, [100, 1_000, 1_000, 10_000]);
    let plain = [line(address, "gold/burst", 2), line(address, "gold/daily", 2)];
    assert_eq!(paid(&owed("/", "", None)), plain, "no key is no made-up key");
    assert_eq!(paid(&owed("/", "k", Some(CallerTenant::new("acme", None)))), plain, "a tenant is known");
    assert_eq!(paid(&owed("/other", "k", None)), [line(address, "free", 1)], "only under the rule for all");
}

#[test]
fn a_question_by_identity_is_charged_under_its_rule_or_names_the_field_that_is_wrong() {
    let shared = Rule { key: KeyList::parse(&["literal:all"]).expect("a key"), ..rule("shared", "free") };
    let shadow = Rule { shadow: true, ..Rule::new("shadow", RulePlans::Banned) };
    let policy = built(plans().tenants([acme()]).rules([
        costing(rule("default", "free"), 3),
        shared,
        shadow,
        Rule::new("banned", RulePlans::Banned),
        Rule::new("open", RulePlans::Unlimited),
        for_tenants("members", None),
    ]));
    let ask = |rule: &str, who: &str, cost| policy.owed_by_identity(rule, who, cost);
    let charged = |rule: &str, who: &str, cost| ask(rule, who, cost).map(|owed| paid(&owed));
    assert_eq!(charged("default", "ann", None), Ok(vec![line("ann", "free", 3)]));
    assert_eq!(charged("default", "ann", Some(Amount::from(7))), Ok(vec![line("ann", "free", 7)]));
    assert_eq!(charged("shared", "ann", None), Ok(vec![line("static:all", "free", 1)]));
    for (rule, by) in [("open", "open"), ("shadow", "")] {
        assert_eq!(unlimited_by(&ask(rule, "ann", None).expect("a rule")), Some(by));
    }
    let member = self::charged(ask("members", "tenant:acme", None).expect("a tenant").enforced);
    assert_eq!((member.tenant(), member.buckets().len()), (Some("acme"), 2));
    let field = |rule: &str, who: &str, cost| ask(rule, who, cost).expect_err("it is wrong").field();
    assert_eq!(field("gone", "ann", None), "ruleId");
    assert_eq!(field("banned", "ann", None), "ruleId");
    assert_eq!(field("members", "ann", None), "identity");
    assert_eq!(field("default", "", None), "identity");
    assert_eq!(field("default", "ann", Some(Amount::from(11))), "cost");
    assert_eq!(field("default", "ann", Some(Amount::from(u64::MAX))), "cost");
}

#[test]
fn a_question_by_plans_or_by_its_own_limit_is_charged_under_names_that_meet_no_other() {
    let policy = built(plans().tenants([acme()]).rules([Rule { shadow: true, ..rule("watch", "free") }]));
    let chain = charged(
        policy.owed_by_plans("ann", ["free", "gold", "free"], 2).expect("plans that there are").enforced,
    );
    assert_eq!(
        lines(&chain),
        [line("ann", "free", 2), line("ann", "gold/burst", 2), line("ann", "gold/daily", 2)]
    );
    assert_eq!((chain.rule(), chain.failure_policy()), (None, Some(FailurePolicy::Allow)));
    let own = charged(policy.owed_by_plans("tenant:acme", ["gold"], 5).expect("a tenant").enforced);
    assert_eq!(own.buckets()[1].limit().limit().capacity(), 5, "the tenant's own limit");
    let field = |plans: &[&str], cost| {
        policy.owed_by_plans("ann", plans.iter().copied(), cost).map_err(|why| why.field())
    };
    assert_eq!(field(&["silver"], 1).err(), Some("plans"));
    assert_eq!(field(&[], 1).err(), Some("plans"));
    assert_eq!(field(&["free"], 11).err(), Some("cost"));
    let limit = Limit::per_second(1).burst(10).build().expect("a limit");
    let named = |rule: &str, namespace| {
        policy.owed_by_limit(rule, namespace, "ann", limit, 1).map(|owed| paid(&owed))
    };
    assert_eq!(named("mine", None), Ok(vec![line("ann", "mine", 1)]));
    assert_eq!(named("free", None), Ok(vec![line("ann", "own/free", 1)]), "no plan's bucket");
    assert_eq!(named("mine", Some("x")), Ok(vec![line("ann", "mine/x", 1)]));
    assert!(matches!(named("no spaces", None), Err(AskError::RuleId(_))));
    let watch = policy.owed_by_limit("watch", None, "ann", limit, 1).expect("a rule");
    assert_eq!(unlimited_by(&watch), Some(""));
    assert_eq!(lines(&watch.shadow[0]), [line("ann", "shadow:watch", 1)]);
    let buckets = policy.buckets_of("ann", None).expect("a key");
    assert_eq!(buckets.iter().map(|chain| chain.buckets().len()).collect::<Vec<_>>(), [1, 2]);
    assert!(buckets.iter().all(Chain::is_peek));
    assert_eq!(policy.buckets_of("ann", Some("gold")).expect("a plan").len(), 1);
    assert!(policy.buckets_of("ann", Some("silver")).is_err());
}

#[test]
fn a_route_is_limited_by_any_rule_that_meets_it_and_charges() {
    let hosts = |rule: Rule| {
        let hosts = vec!["a.test".parse().expect("a host")];
        Rule { matcher: Matcher { hosts, ..rule.matcher }, ..rule }
    };
    let limits = |rules: Vec<Rule>, path: &str, host: Option<&str>| {
        let hosts: Vec<_> = host.map(|host| host.parse().expect("a host")).into_iter().collect();
        built(plans().rules(rules)).limits_route("way", &path.parse().expect("a pattern"), &hosts)
    };
    assert!(limits(vec![on(rule("a", "free"), "/a/*")], "/a/b", None));
    assert!(!limits(vec![on(rule("a", "free"), "/a/*")], "/b", None));
    assert!(!limits(vec![Rule { shadow: true, ..rule("a", "free") }], "/a", None));
    assert!(!limits(vec![Rule::new("a", RulePlans::Unlimited)], "/a", None));
    let open = Rule { also: vec!["b".into()], ..Rule::new("a", RulePlans::Unlimited) };
    assert!(limits(vec![open, on(rule("b", "free"), "/b")], "/a", None), "what is charged with it counts");
    assert!(limits(vec![hosts(rule("a", "free"))], "/", Some("a.test")));
    assert!(limits(vec![hosts(rule("a", "free"))], "/", None));
    assert!(!limits(vec![hosts(rule("a", "free"))], "/", Some("b.test")));
    let entries = vec!["path".parse().expect("an entry")];
    let descriptor = Some(DescriptorMatch { domain: "edge".to_owned(), entries, subset: false });
    let by_descriptor = Rule { matcher: Matcher { descriptor, ..Matcher::default() }, ..rule("a", "free") };
    assert!(!limits(vec![by_descriptor], "/", None), "it is for no HTTP request");
    let policy = built(plans().route_limits("way", [rule("own", "free")]));
    assert!(policy.limits_route("way", &"/".parse().expect("a pattern"), &[]));
    assert!(!policy.limits_route("other", &"/".parse().expect("a pattern"), &[]));
}

#[test]
fn a_chain_can_be_asked_at_one_cost_for_all_buckets() {
    let key = |name: &str| ResolvedKey::of(&["static:", name]);
    let mut chain = Chain::new(Some("r")).for_tenant(Some("t"));
    assert!(chain.is_empty() && chain.is_peek());
    for (name, plan, cost) in
        [("a", plan("x", 10), 1), ("b", plan("x", 10), 1), ("a", plan("y", 10), 1), ("a", plan("z", 10), 2)]
    {
        chain.charge(&key(name), &plan, cost).expect("there is room");
    }
    assert!(!chain.is_empty() && !chain.is_peek());
    let costs = |charges: Charges<'_>| {
        charges.iter().map(|one| one.cost().amount().whole_tokens()).collect::<Vec<_>>()
    };
    let all_at = |tokens: u64| chain.priced(tokens).map(costs);
    assert_eq!(all_at(7), Ok(vec![7; 4]));
    for above in [11, u64::MAX] {
        let why = all_at(above).expect_err("it can never pass");
        let ChargeError::CostAboveCapacity { cost, capacity, .. } = why else { panic!("{why:?}") };
        assert_eq!((cost, capacity), (above.into(), Amount::from(10)));
    }
    assert_eq!(costs(chain.charges_at(|line| line.cost() * 2)), [2, 2, 2, 4]);
    chain.charge(&key("c"), &plan("w", 10), 11).expect("there is room");
    assert!(chain.is_peek(), "what never passes only looks");
    assert!(chain.charges().iter().all(|one| one.cost() == Cost::ZERO));
}

#[test]
fn a_chain_takes_thirty_two_buckets() {
    let key = ResolvedKey::of(&["static:", "a"]);
    let mut chain = Chain::new(None);
    for index in 0..32 {
        chain.charge(&key, &plan(&format!("p{index}"), 1), 1).expect("there is room");
    }
    chain.charge(&key, &plan("p7", 1), 1).expect("it is there already");
    assert_eq!(chain.charge(&key, &plan("p32", 1), 1), Err(ChargeError::TooMany));
    assert_eq!(chain.charges().len(), 32);
}

#[test]
fn of_two_limits_that_share_a_bucket_the_smaller_holds_and_of_equals_the_first() {
    let limit = |refill, capacity| {
        let limit = Limit::per_second(refill).burst(capacity).build().expect("a limit");
        spile_core::NamedLimit::new(spile_core::LimitName::new("one").expect("a name"), limit)
    };
    let key = ResolvedKey::of(&["static:", "a"]);
    let mut chain = Chain::new(None);
    for (refill, capacity, held) in [(1, 10, (1, 10)), (2, 20, (1, 10)), (3, 10, (1, 10)), (4, 5, (4, 5))] {
        chain.charge_limit(&key, limit(refill, capacity), 1, false).expect("there is room");
        let [line] = chain.buckets() else { panic!("one bucket") };
        let limit = line.limit().limit();
        let refill = limit.rate().expect("a rate").refill();
        assert_eq!((refill.whole_tokens(), limit.capacity().whole_tokens()), held);
    }
}

#[test]
fn a_matcher_that_asks_for_nothing_is_for_all_and_any_other_is_not() {
    assert!(Matcher::default().is_for_all());
    let entries = vec!["path".parse().expect("an entry")];
    let descriptor = Some(DescriptorMatch { domain: "edge".to_owned(), entries, subset: false });
    for matcher in [
        Matcher { path: "/".parse().ok(), ..Matcher::default() },
        Matcher { hosts: vec!["a.test".parse().expect("a host")], ..Matcher::default() },
        Matcher { methods: vec![Method::GET], ..Matcher::default() },
        Matcher { descriptor, ..Matcher::default() },
    ] {
        assert!(!matcher.is_for_all(), "{matcher:?}");
    }
    for text in ["a.test", "*.test"] {
        assert_eq!(text.parse::<spile_policy::HostPattern>().expect("a host").to_string(), text);
    }
}

#[test]
fn a_rule_can_be_asked_for_by_its_id_and_one_without_limits_has_no_say_when_the_store_fails() {
    let deny = Some(FailurePolicy::Deny);
    let open =
        Rule { also: vec!["default".into()], on_failure: deny, ..Rule::new("open", RulePlans::Unlimited) };
    let policy = built(plans().rules([rule("default", "free"), on(open, "/open")]));
    let headers = HeaderMap::new();
    let facts = by_address(&Method::GET, "/", &headers);
    let owed = policy.owed_by_rule("open", &facts).expect("there is such a rule");
    assert_eq!(paid(&owed), [line("ip:203.0.113.7", "free", 1)]);
    assert_eq!(charged(owed.enforced).failure_policy(), Some(FailurePolicy::Allow));
    let by_identity = charged(policy.owed_by_identity("open", "ann", None).expect("a rule").enforced);
    assert_eq!(by_identity.failure_policy(), Some(FailurePolicy::Allow));
    assert!(policy.owed_by_rule("gone", &facts).is_none());
    let why = policy.owed_by_identity(&"x".repeat(99), "ann", None).expect_err("there is no such rule");
    assert_eq!(why, AskError::UnknownRule("x".repeat(64).into()), "and no more of it is repeated");
}

#[test]
fn a_rule_for_tenants_alone_is_for_tenants_that_have_a_plan() {
    let policy = built(plans().rules([for_tenants("members", None)]).tenants([acme()]));
    let headers = HeaderMap::new();
    let facts = by_address(&Method::GET, "/", &headers);
    let refusal = |tenant| policy.owed(&Facts { tenant, ..facts.clone() }).refusal;
    assert_eq!(refusal(policy.tenant_of_key(b"secret")), None);
    assert_eq!(
        refusal(Some(CallerTenant::new("other", None))),
        Some(PolicyRefusal::NoTenant { rule: "members".into() })
    );
}

#[test]
fn a_made_up_api_key_pays_for_the_rule_for_all_alone_and_a_chain_that_is_too_long_is_refused() {
    let header = HeaderName::from_static("x-api-key");
    let headers = HeaderMap::from_iter([(header.clone(), "k".parse().expect("a value"))]);
    let facts = by_address(&Method::GET, "/", &headers);
    let also = Rule { also: vec!["other".into()], ..rule("default", "free") };
    let policy = built(plans().rules([also, on(rule("other", "gold"), "/other")]));
    let keys: Vec<String> =
        paid(&policy.owed_by_api_key(&facts, &header)).into_iter().map(|(key, ..)| key).collect();
    assert!(keys[0].starts_with("sha256:"), "{keys:?}");
    assert_eq!(keys[1..], ["ip:203.0.113.7"; 3], "the other rule by its own key, and the address");
    let names: Vec<String> = (0..17).map(|index| format!("p{index}")).collect();
    let listed = RulePlans::listed(names.iter().map(String::as_str)).expect("names");
    let many = names.iter().map(|name| plan(name, 1));
    let policy = built(plans().plans(many).rules([Rule { plans: listed, ..rule("default", "free") }]));
    let owed = policy.owed_by_api_key(&facts, &header);
    assert_eq!(owed.refusal, Some(PolicyRefusal::TooManyLimits(ChargeError::TooMany)));
}

#[test]
fn keys_are_found_where_there_is_something_and_are_of_any_length() {
    let (headers, key) = (HeaderMap::new(), KeyList::parse(&["principal", "path"]).expect("a list"));
    let policy = built(plans().rules([Rule { key, ..rule("default", "free") }]));
    let found = |path: &str, principal| {
        let owed = policy.owed(&Facts { principal, ..Facts::new(&Method::GET, path, &headers) });
        paid(&owed).into_iter().next().map(|(key, ..)| key)
    };
    assert_eq!(found("/a/", Some("ann")).as_deref(), Some("principal:ann"));
    assert_eq!(found("/a/", Some("")).as_deref(), Some("path:/a"));
    assert_eq!(found("/", None).as_deref(), Some("path:/"));
    for bytes in [1, 50, 94, 95, 96, 97, 200, 1_000, 1_024 - 5] {
        let path = format!("/{}", "x".repeat(bytes - 1));
        assert_eq!(found(&path, None), Some(format!("path:{path}")), "{bytes}");
    }
    assert!(found(&format!("/{}", "x".repeat(1_019)), None).is_some_and(|key| key.starts_with("sha256:")));
}

#[test]
fn a_path_that_is_spelt_out_has_no_star() {
    use spile_policy::PathPattern;
    assert!(PathPattern::literal("/a/b").is_ok_and(|path| path.matches("/a/b") && !path.matches("/a/c")));
    for text in ["/a/*", "/*/b", "/*", "/*/*"] {
        assert!(PathPattern::literal(text).is_err(), "{text}");
    }
    assert_eq!(
        ["/", "/a", "/a/b"].map(|path| PathPattern::literal(path).map_or(9, |path| path.depth())),
        [0, 1, 2]
    );
    assert!(!format!("{:?}", ApiKeyHash::of(b"secret")).is_empty());
}

#[test]
fn of_a_field_that_is_sent_twice_only_one_value_counts() {
    let (name, mut headers) = (HeaderName::from_static("x-who"), HeaderMap::new());
    assert_eq!(single_value(&headers, &name), None);
    headers.append(&name, "ann".parse().expect("a value"));
    headers.append(&name, "ann".parse().expect("a value"));
    assert_eq!(single_value(&headers, &name), Some("ann"));
    headers.append(&name, "bob".parse().expect("a value"));
    assert_eq!(single_value(&headers, &name), None);
}

proptest! {
    /// The order of rules, and rules that do not match, do not change what a request owes.
    #[test]
    fn rules_that_do_not_match_change_nothing(at in 0_usize..4, cost in 1_u64..9) {
        let mut rules = vec![on(rule("x", "gold"), "/x"), on(rule("y", "free"), "/y/*"), on(rule("z", "free"), "/z")];
        let alone = built(plans().rules([costing(on(rule("a", "free"), "/a"), cost)]));
        rules.insert(at, costing(on(rule("a", "free"), "/a"), cost));
        prop_assert_eq!(paid(&asked(&built(plans().rules(rules)), "/a")), paid(&asked(&alone, "/a")));
    }
}

mod descriptors {
    //! Tests what descriptors owe.

    use spile_policy::{
        Descriptor, DescriptorLimit, DescriptorOptions, DescriptorOwed, DescriptorsOwed, Hits,
    };

    use super::*;

    fn by(rule: Rule, domain: &str, entries: &[&str]) -> Rule {
        let entries = entries.iter().map(|entry| entry.parse().expect("an entry")).collect();
        let descriptor = Some(DescriptorMatch { domain: domain.to_owned(), entries, subset: false });
        Rule { matcher: Matcher { descriptor, ..Matcher::default() }, ..rule }
    }

    fn sent<'a>(entries: &[(&'a str, &'a str)], hits: Hits) -> Descriptor<'a> {
        let entries = entries.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect();
        Descriptor { entries, limit: None, hits }
    }

    fn one<'a>(entries: &[(&'a str, &'a str)]) -> Descriptor<'a> {
        sent(entries, Hits::Spend(1))
    }

    fn edge() -> Policy {
        let deny = Some(FailurePolicy::Deny);
        built(plans().tenants([acme()]).rules([
            by(costing(rule("path", "free"), 2), "edge", &["path"]),
            by(Rule { on_failure: deny, ..rule("login", "gold") }, "edge", &["path=/login"]),
            by(Rule { shadow: true, ..rule("watch", "free") }, "edge", &["watch"]),
            by(costing(Rule { shadow: true, ..rule("dear", "free") }, 11), "edge", &["dear"]),
            by(Rule::new("open", RulePlans::Unlimited), "edge", &["open"]),
            by(Rule::new("banned", RulePlans::Banned), "edge", &["banned"]),
            by(for_tenants("members", None), "edge", &["tenant"]),
            by(rule("any", "free"), "*", &["any"]),
        ]))
    }

    fn owed(descriptors: &[Descriptor<'_>]) -> DescriptorsOwed {
        edge().owed_by_descriptors(b"edge", descriptors).expect("there is room")
    }

    fn rule_of(owed: &DescriptorsOwed) -> Option<String> {
        match &owed.enforced {
            Enforced::Charged(chain) => chain.rule().map(str::to_owned),
            Enforced::Unlimited { .. } => None,
        }
    }

    fn enforced(owed: &DescriptorsOwed) -> Vec<(String, String, u64)> {
        lines_of(&owed.enforced)
    }

    #[test]
    fn all_descriptors_are_one_chain_in_which_a_bucket_that_two_name_pays_for_both() {
        let path = one(&[("path", "/a")]);
        let owed = owed(&[path.clone(), one(&[("path", "/login")]), sent(&[("path", "/a")], Hits::Spend(3))]);
        let (a, login) = ("edge|path=/a", "edge|path=/login");
        let expected = [line(a, "free", 8), line(login, "gold/burst", 1), line(login, "gold/daily", 1)];
        assert_eq!(enforced(&owed), expected);
        let places: Vec<_> = owed.each.iter().map(|each| format!("{each:?}")).collect();
        assert_eq!(places, ["Enforced([0])", "Enforced([1, 2])", "Enforced([0])"]);
        let chain = charged(owed.enforced.clone());
        assert_eq!(
            (chain.rule(), chain.failure_policy()),
            (Some("path"), Some(FailurePolicy::Deny)),
            "the strictest"
        );
        assert!(owed.can_pass());
        assert_eq!(owed.unmatched(), 0);
    }

    #[test]
    fn what_no_rule_matches_is_told_and_what_only_watches_is_in_no_chain() {
        let owed = owed(&[
            one(&[("nothing", "x")]),
            one(&[("open", "x")]),
            one(&[("watch", "x")]),
            one(&[("dear", "x")]),
            sent(&[("path", "/a")], Hits::Refund(4)),
        ]);
        let [
            DescriptorOwed::Unmatched,
            DescriptorOwed::Unlimited,
            DescriptorOwed::Shadow,
            DescriptorOwed::Shadow,
            DescriptorOwed::Refund(back),
        ] = &owed.each[..]
        else {
            panic!("{owed:?}")
        };
        let [(2, DescriptorOwed::Any(watched))] = &owed.shadow[..] else { panic!("{owed:?}") };
        assert!(enforced(&owed).is_empty() && owed.can_pass());
        assert_eq!(owed.unmatched(), 1);
        assert_eq!(
            (watched.is_shadow(), lines(watched)),
            (true, vec![line("edge|watch=x", "shadow:free", 1)])
        );
        assert_eq!(lines(back), [line("edge|path=/a", "free", 8)]);
    }

    #[test]
    fn a_rule_for_any_domain_counts_where_no_rule_of_the_domain_does() {
        let policy = edge();
        let ask = |domain: &[u8], entry: &str| {
            let owed = policy.owed_by_descriptors(domain, &[one(&[(entry, "x")])]).expect("there is room");
            rule_of(&owed)
        };
        assert_eq!(ask(b"edge", "any").as_deref(), Some("any"));
        assert_eq!(ask(b"other", "any").as_deref(), Some("any"));
        assert_eq!(ask(b"\xff", "any").as_deref(), Some("any"));
        assert_eq!(ask(b"other", "path"), None);
    }

    #[test]
    fn what_is_banned_or_for_tenants_alone_never_passes_and_a_tenant_has_its_own_key() {
        for refused in [one(&[("banned", "x")]), one(&[("tenant", "stranger")])] {
            let owed = owed(&[refused]);
            assert!(!owed.can_pass(), "{owed:?}");
            assert!(enforced(&owed).iter().all(|(_, _, cost)| *cost == 0), "it only looks");
        }
        let owed = owed(&[one(&[("tenant", "acme")])]);
        assert!(owed.can_pass());
        assert_eq!(enforced(&owed)[0], line("tenant:acme", "gold/burst", 1));
        assert_eq!(charged(owed.enforced).tenant(), Some("acme"));
    }

    #[test]
    fn a_limit_that_a_descriptor_brings_along_overrides_the_rules() {
        let limit = Limit::per_minute(5).build().ok();
        let own = |limit, entries| Descriptor {
            limit: Some(DescriptorLimit { limit, unit: "minute" }),
            ..one(entries)
        };
        let owed_by = |descriptor| owed(&[descriptor]);
        let matched = owed_by(own(limit, &[("path", "/a")]));
        assert_eq!(enforced(&matched), [line("edge|path=/a", "envoy.override/minute", 1)]);
        assert_eq!(rule_of(&matched).as_deref(), Some("path"));
        let unmatched = owed_by(own(limit, &[("nothing", "x")]));
        assert_eq!(enforced(&unmatched), [line("edge|nothing=x", "envoy.override/minute", 1)]);
        assert_eq!(rule_of(&unmatched).as_deref(), Some("envoy.override"));
        assert!(!owed_by(own(None, &[("path", "/a")])).can_pass(), "none per minute");
        let both = [own(limit, &[("path", "/a")]), own(None, &[("path", "/a")])];
        assert!(!owed(&both).can_pass(), "one that is closed closes the bucket");
        let tenant = owed_by(own(limit, &[("tenant", "acme")]));
        assert_eq!(
            enforced(&tenant),
            [line("edge|tenant=acme", "envoy.override/minute", 1)],
            "not the tenant's bucket"
        );
    }

    fn with(rule: Rule, descriptors: DescriptorOptions) -> Rule {
        Rule { descriptors, ..rule }
    }

    fn late(rule: Rule) -> Rule {
        with(rule, DescriptorOptions { late: true, ..DescriptorOptions::default() })
    }

    fn replacing(rule: Rule, other: &str) -> Rule {
        with(rule, DescriptorOptions { replaces: vec![other.into()], ..DescriptorOptions::default() })
    }

    fn budgets() -> Policy {
        built(plans().rules([
            by(late(costing(rule("tokens", "free"), 2)), "edge", &["tokens"]),
            by(Rule { shadow: true, ..late(rule("watched", "free")) }, "edge", &["watched"]),
            by(late(Rule::new("banned", RulePlans::Banned)), "edge", &["banned"]),
            by(
                with(rule("east", "free"), DescriptorOptions { any: true, ..DescriptorOptions::default() }),
                "edge",
                &["east"],
            ),
            by(rule("path", "free"), "edge", &["path"]),
            by(replacing(rule("admin", "gold"), "path"), "edge", &["admin"]),
        ]))
    }

    #[test]
    fn what_has_been_used_is_charged_late_and_a_question_without_hits_is_asked_with_the_others() {
        let owed =
            |sent: &[Descriptor<'_>]| budgets().owed_by_descriptors(b"edge", sent).expect("there is room");
        // More than the plan can ever hold.
        let done = owed(&[sent(&[("tokens", "ann")], Hits::Spend(7)), one(&[("watched", "ann")])]);
        let [DescriptorOwed::Late(tokens), DescriptorOwed::Shadow] = &done.each[..] else {
            panic!("{done:?}")
        };
        let [(1, DescriptorOwed::Late(watched))] = &done.shadow[..] else { panic!("{done:?}") };
        assert_eq!((tokens.buckets()[0].cost(), enforced(&done).is_empty()), (Amount::from(14), true));
        assert_eq!((watched.is_shadow(), watched.buckets()[0].cost()), (true, Amount::TOKEN));

        let asked =
            owed(&[sent(&[("tokens", "ann")], Hits::Spend(0)), sent(&[("path", "/")], Hits::Spend(0))]);
        assert!(matches!(&asked.each[..], [DescriptorOwed::Enforced(_), DescriptorOwed::Enforced(_)]));
        assert!(!charged(asked.enforced).is_peek(), "it is a question about a request");
        let looked = owed(&[sent(&[("path", "/")], Hits::Spend(0))]);
        assert!(charged(looked.enforced).is_peek(), "it only looks");

        let back = owed(&[sent(&[("tokens", "ann")], Hits::Refund(2))]);
        assert!(matches!(&back.each[..], [DescriptorOwed::Refund(_)]));
        assert!(!owed(&[one(&[("banned", "ann")])]).can_pass());
    }

    #[test]
    fn alternatives_are_in_no_chain_of_others() {
        let sent = [one(&[("east", "x")]), one(&[("path", "/")])];
        let owed = budgets().owed_by_descriptors(b"edge", &sent).expect("there is room");
        let [DescriptorOwed::Any(east), DescriptorOwed::Enforced(_)] = &owed.each[..] else {
            panic!("{owed:?}")
        };
        assert_eq!(lines(east), [line("edge|east=x", "free", 1)]);
        assert_eq!(enforced(&owed), [line("edge|path=/", "free", 1)]);
    }

    #[test]
    fn a_rule_replaces_another_for_the_requests_that_it_applies_to() {
        let policy = budgets();
        let (path, admin) = (one(&[("path", "/")]), one(&[("admin", "ann")]));
        let owed =
            |sent: &[Descriptor<'_>]| policy.owed_by_descriptors(b"edge", sent).expect("there is room");
        let both = owed(&[path.clone(), admin.clone()]);
        assert!(
            matches!(&both.each[..], [DescriptorOwed::Unlimited, DescriptorOwed::Enforced(_)]),
            "{both:?}"
        );
        assert_eq!(enforced(&both)[0], line("edge|admin=ann", "gold/burst", 1));
        assert_eq!(enforced(&owed(&[path])), [line("edge|path=/", "free", 1)]);
        // A limit that a descriptor brings along is no rule's.
        let limit = Limit::per_minute(5).build().ok();
        let own = Descriptor { limit: Some(DescriptorLimit { limit, unit: "minute" }), ..admin };
        assert_eq!(enforced(&owed(&[one(&[("path", "/")]), own])).len(), 2);

        let unknown = by(replacing(rule("a", "free"), "gone"), "edge", &["a"]);
        let why = plans().rules([unknown]).build().expect_err("there is no such rule");
        assert_eq!(why.to_string(), "rule `a` replaces `gone`, and there is no such rule");
    }

    #[test]
    fn a_rule_of_more_limits_than_a_chain_takes_is_an_error_unless_it_only_watches() {
        let many: Vec<Plan> = (0..33).map(|index| plan(&format!("p{index}"), 1)).collect();
        let names: Vec<String> = (0..33).map(|index| format!("p{index}")).collect();
        let listed = || RulePlans::listed(names.iter().map(String::as_str)).expect("names");
        for shadow in [true, false] {
            let rules = [by(Rule { shadow, ..Rule::new("many", listed()) }, "edge", &["many"])];
            let policy = built(plans().plans(many.clone()).rules(rules));
            let owed = policy.owed_by_descriptors(b"edge", &[one(&[("many", "x")])]);
            match owed {
                Ok(owed) => {
                    assert!(shadow && matches!(owed.each[..], [DescriptorOwed::Shadow]), "{owed:?}");
                    assert!(owed.shadow.is_empty(), "{owed:?}");
                }
                Err(why) => assert_eq!((why, shadow), (ChargeError::TooMany, false)),
            }
        }
    }

    #[test]
    fn a_rule_without_limits_has_no_say_when_the_store_fails() {
        let open = Rule {
            also: vec!["free".into()],
            on_failure: Some(FailurePolicy::Deny),
            ..Rule::new("open", RulePlans::Unlimited)
        };
        let policy = built(plans().rules([by(open, "edge", &["open"]), rule("free", "free")]));
        let owed = policy.owed_by_descriptors(b"edge", &[one(&[("open", "x")])]).expect("there is room");
        assert_eq!(charged(owed.enforced).failure_policy(), Some(FailurePolicy::Allow));
    }
}

#[test]
fn an_estimate_is_charged_in_place_of_each_cost_that_is_not_fixed() {
    let mut tokens = costing(rule("tokens", "gold"), 2);
    tokens.also = vec!["requests".into()];
    let requests = Rule { fixed_cost: true, ..on(rule("requests", "free"), "/elsewhere") };
    let policy = built(plans().rules([tokens, requests]));
    let headers = HeaderMap::new();
    let facts = |estimate: Option<u64>| {
        let estimate = estimate.map(|tokens| Cost::new(tokens).expect("a cost"));
        Facts { estimate, ..by_address(&Method::GET, "/", &headers) }
    };
    let costs = |owed: &Owed| paid(owed).into_iter().map(|(_, _, cost)| cost).collect::<Vec<_>>();
    assert_eq!(costs(&policy.owed(&facts(None))), [2, 2, 1]);
    let owed = policy.owed(&facts(Some(50)));
    assert_eq!(costs(&owed), [50, 50, 1]);
    let chain = charged(owed.enforced);
    assert_eq!(chain.highest_cost(), 50);
    let in_the_end: Vec<_> =
        chain.buckets().iter().map(|bucket| bucket.cost_at(Amount::from(70)).whole_tokens()).collect();
    assert_eq!(in_the_end, [70, 70, 1]);
    let above = policy.owed(&facts(Some(101)));
    assert!(matches!(above.refusal, Some(PolicyRefusal::NeverPasses(_))), "{:?}", above.refusal);
    let explained = policy
        .owed_by_description(&facts(Some(50)), "ip:203.0.113.7", Some(Amount::from(7)))
        .expect("a request");
    assert_eq!(costs(&explained), [7, 7, 7], "a cost that is asked about holds for all");
}

#[test]
fn a_described_request_is_not_refused_for_the_permit_that_it_needs() {
    let jobs = Plan::new("jobs", Limit::concurrent(1)).expect("a plan");
    let policy = built(Policy::builder().plans([jobs]).rules([rule("default", "jobs")]));
    let headers = HeaderMap::new();
    let facts = by_address(&Method::GET, "/", &headers);
    assert!(matches!(policy.owed(&facts).refusal, Some(PolicyRefusal::NeedsPermit { .. })));
    let described = policy.owed_by_description(&facts, "ip:203.0.113.7", None).expect("a request");
    assert_eq!(described.refusal, None);
}

#[test]
fn the_smallest_limit_that_an_estimate_may_be_charged_to_is_found() {
    let requests = Rule { fixed_cost: true, ..rule("requests", "free") };
    let rules = [rule("default", "free"), on(rule("tokens", "gold"), "/v1/*"), on(requests, "/v1/*")];
    let policy = built(plans().rules(rules));
    let path = spile_policy::PathPattern::prefix("/v1").expect("a pattern");
    let (rule, limit) = policy.smallest_limit_of_route("llm", &path, &[]).expect("a limit");
    assert_eq!((rule.id.as_str(), limit.name().as_str()), ("tokens", "gold/burst"));
    let elsewhere = spile_policy::PathPattern::prefix("/v2").expect("a pattern");
    let (rule, limit) = policy.smallest_limit_of_route("llm", &elsewhere, &[]).expect("a limit");
    assert_eq!((rule.id.as_str(), limit.name().as_str()), ("default", "free"));
}
