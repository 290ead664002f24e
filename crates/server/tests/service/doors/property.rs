//! Random policies and requests: every door says what the policy and a model of the store say.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use smol_str::SmolStr;
use spile_core::{Cost, FakeClock, Limit, Plan, SystemClock};
use spile_limiter::{RateLimiter, Ruling};
use spile_policy::{Facts, KeyList, Policy, PolicyRefusal, Rule, RulePlans, Tenant};
use spile_testkit::store::ModelStore;

use super::door::Door;
use super::house::{House, Store};
use super::row::Caller::{Acme, Stranger};
use super::row::{Caller, row};
use crate::support::Spile;

/// Policies that are tried, and requests under each.
const POLICIES: usize = 40;
const REQUESTS: usize = 25;

/// Numbers that a seed decides.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.below(sides) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// The plans of the table, as its configuration has them.
fn plans() -> Vec<Plan> {
    let limit = |capacity| Limit::per_hour(1).burst(capacity);
    let day = Limit::per_day(1).burst(9);
    vec![
        Plan::new("three", limit(3)).expect("a plan"),
        Plan::new("five", limit(5)).expect("a plan"),
        Plan::chain("gold", [("burst", limit(2)), ("day", day)]).expect("a plan"),
    ]
}

fn rule(id: &str, dice: &mut Dice) -> Rule {
    let plans_of_the_table = plans();
    let names = ["three", "five", "gold"];
    let plans = match dice.below(8) {
        0 => RulePlans::Unlimited,
        1 => RulePlans::Banned,
        2 => RulePlans::Tenant { anonymous: None },
        3 | 4 => RulePlans::tenant_or(dice.of(&names)).expect("a name"),
        5 => RulePlans::listed([dice.of(&names), dice.of(&names)]).expect("names"),
        _ => RulePlans::listed([dice.of(&names)]).expect("a name"),
    };
    let mut rule = Rule::new(id, plans);
    // A cost that no plan of the rule's own covers is refused at check; a tenant's plan may still be too small for it.
    let covered = |plan: &Plan| rule.plans.known().contains(plan.name());
    let limits = plans_of_the_table.iter().filter(|plan| covered(plan)).flat_map(Plan::limits);
    let most = limits.map(|limit| limit.limit().capacity().whole_tokens()).min().unwrap_or(7);
    rule.cost = Cost::new(1 + dice.below(most)).expect("a cost");
    rule.shadow = id == "x" && dice.one_in(4);
    rule.key =
        KeyList::parse(dice.of(&[&["tenant", "ip"][..], &["tenant", "ip"], &["literal:all"]])).expect("keys");
    rule.matcher.path = Some(format!("/{id}").parse().expect("a pattern"));
    rule
}

fn toml(rule: &Rule) -> String {
    let plans = match &rule.plans {
        RulePlans::Unlimited => "\"unlimited\"".to_owned(),
        RulePlans::Banned => "\"banned\"".to_owned(),
        RulePlans::Tenant { anonymous: None } => "\"tenant\"".to_owned(),
        RulePlans::Tenant { anonymous: Some(plan) } => format!("\"tenant\"\nanonymous_plan = \"{plan}\""),
        RulePlans::Listed(plans) => {
            format!("{:?}", plans.iter().map(ToString::to_string).collect::<Vec<_>>())
        }
    };
    format!(
        "[[rules]]\nid = {:?}\nmatch = {{ path = \"/{}\" }}\nkey = {:?}\nplans = {plans}\ncost = {}\nmode = {:?}\nalso = {:?}\n",
        rule.id.as_str(),
        rule.id,
        rule.key.words(),
        rule.cost.amount(),
        if rule.shadow { "shadow" } else { "enforce" },
        rule.also.iter().map(SmolStr::as_str).collect::<Vec<_>>(),
    )
}

/// What the policy and the model say, in the words of the table.
async fn modelled(
    policy: &Policy,
    model: &RateLimiter<ModelStore<Arc<FakeClock>>>,
    caller: Caller,
    door: Door,
) -> String {
    if Door::ASKED.contains(&door) {
        return match policy.owed_by_identity("x", &door.payer(caller), None) {
            Err(wrong) => match wrong.field() {
                "identity" => "401".to_owned(),
                "cost" => "never".to_owned(),
                _ => "banned".to_owned(),
            },
            Ok(owed) => words(&model.decide(&owed).await),
        };
    }
    let headers = HeaderMap::new();
    let tenant = (caller == Acme).then(|| policy.tenant_of_claim("acme", None));
    let address = Some([203, 0, 113, 7].into());
    let facts = Facts { address, tenant, ..Facts::new(&Method::GET, "/x", &headers) };
    let named = (door == Door::AuthByRule).then(|| policy.owed_by_rule("x", &facts).expect("a rule"));
    let owed = named.unwrap_or_else(|| policy.owed(&facts));
    let ruling = model.decide(&owed).await;
    match owed.refusal {
        Some(PolicyRefusal::NoKey { .. } | PolicyRefusal::NoTenant { .. }) => "401".to_owned(),
        Some(PolicyRefusal::Banned { .. }) => "banned".to_owned(),
        Some(_) => "never".to_owned(),
        None => words(&ruling),
    }
}

fn words(ruling: &Ruling) -> String {
    let Some(decision) = ruling.enforced.decision() else {
        let Some(watched) = ruling.shadow.first() else { return "free".to_owned() };
        let (verdict, left) = (if watched.would_allow() { "ok" } else { "no" }, watched.decision.remaining());
        return format!("watch {verdict} {left} {}", watched.decision.binding().name().unshadowed());
    };
    let limit = decision.binding().name();
    if decision.allowed() { format!("ok {} {limit}", decision.remaining()) } else { format!("no {limit}") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_policies_give_every_door_the_answer_of_the_model() {
    let seed = std::env::var("SPILE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| SystemClock::wall_now().get());
    println!("SPILE_SEED={seed}");
    let mut dice = Dice(seed);
    for _ in 0..POLICIES {
        let (mut x, mut y, z) = (rule("x", &mut dice), rule("y", &mut dice), rule("z", &mut dice));
        if dice.one_in(2) {
            x.also = vec!["y".into()];
        }
        if dice.one_in(3) {
            x.also.push("z".into());
        }
        y.on_failure = None;
        let text = [&x, &y, &z].map(toml).concat();
        let policy = Policy::builder()
            .plans(plans())
            .plans([Plan::new("free", Limit::per_second(1).burst(10)).expect("a plan")])
            .rules([x, y, z, Rule::new("default", RulePlans::tenant_or("free").expect("a name"))])
            .tenants([Tenant::new("acme", "five".parse().expect("a name"))])
            .build()
            .expect("a sound policy");
        let clock = Arc::new(FakeClock::at(Spile::START));
        // Always asked, as the embedded store is: a repeated denial tells of the limits as they were.
        let model = RateLimiter::builder().store(ModelStore::new(Arc::clone(&clock))).clock(clock);
        let model = model.deny_cache(Duration::ZERO).build();
        let house = House::with(&format!("{}\n{text}", super::row::BASE), &Store::Memory).await;
        for request in 0..REQUESTS {
            let (caller, door) = (dice.of(&[Stranger, Acme]), dice.of(&Door::NOT_GRPC));
            let expected = door.words_for(&modelled(&policy, &model, caller, door).await);
            let told = door.ask(&house, &row("random", "").by(caller)).await;
            assert_eq!(
                told, expected,
                "SPILE_SEED={seed}, request {request} by {caller:?} at {door:?} under\n{text}"
            );
        }
    }
}
