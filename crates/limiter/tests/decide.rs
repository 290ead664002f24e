//! Tests the entry of the doors: what a request owes becomes one ruling.

#![allow(clippy::disallowed_methods, reason = "tests run on tokio itself")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use proptest::prelude::*;
use spile_core::{
    Amount, Charges, Cost, Decision, FailurePolicy, FakeClock, Limit, Plan, Reason, ReservationId,
};
use spile_limiter::{Ask, Observed, Observer, RateLimiter, RuleName, Ruling};
use spile_memory::MemoryStore;
use spile_policy::{Enforced, Facts, KeyList, Matcher, Owed, Policy, Rule, RulePlans};
use spile_testkit::store::{CallFault, FaultyStore, ModelStore};

type Limiter = RateLimiter<MemoryStore<FakeClock>>;

fn plans() -> Vec<Plan> {
    let rate = |capacity: u64| Limit::per_second(1).burst(capacity).build().expect("a limit");
    let jobs = Limit::concurrent(2).build().expect("a limit");
    vec![
        Plan::new("three", rate(3)).expect("a plan"),
        Plan::new("five", rate(5)).expect("a plan"),
        Plan::chain("mixed", [("jobs", jobs), ("rate", rate(4))]).expect("a plan"),
    ]
}

fn rule(id: &str, plan: &str) -> Rule {
    let plans = match plan {
        "unlimited" => RulePlans::Unlimited,
        plan => RulePlans::listed([plan]).expect("a name"),
    };
    Rule { key: KeyList::parse(&["literal:all"]).expect("a key"), ..Rule::new(id, plans) }
}

fn shadow(rule: Rule) -> Rule {
    Rule { shadow: true, ..rule }
}

fn policy(rules: impl IntoIterator<Item = Rule>) -> Policy {
    Policy::builder().plans(plans()).rules(rules).build().expect("a policy")
}

fn owed(policy: &Policy, path: &str) -> Owed {
    let headers = HeaderMap::new();
    policy.owed(&Facts { holds_permits: true, ..Facts::new(&Method::GET, path, &headers) })
}

fn limiter() -> (Limiter, FakeClock) {
    let clock = FakeClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (RateLimiter::builder().store(store).clock(clock.clone()).build(), clock)
}

/// A rule that was reported as unlimited, and the tenant.
type UnlimitedRequest = (String, Option<String>);

/// Counts what an observer hears.
#[derive(Clone, Default)]
struct Heard {
    unlimited: Arc<Mutex<Vec<UnlimitedRequest>>>,
    decisions: Arc<AtomicU64>,
}

impl Observer for Heard {
    fn decided(&self, _: &Observed<'_>) {
        self.decisions.fetch_add(1, Ordering::Relaxed);
    }

    fn unlimited(&self, rule: RuleName<'_>, tenant: Option<&str>) {
        self.unlimited.lock().push((rule.as_str().to_owned(), tenant.map(str::to_owned)));
    }
}

#[tokio::test]
async fn the_enforced_rule_decides_and_the_shadow_rule_is_evaluated_if_it_allows() {
    let (limiter, _) = limiter();
    let policy = policy([rule("enforced", "five"), shadow(rule("tried", "three"))]);
    let owed = owed(&policy, "/");
    assert!(limiter.decide_now(&Ask::from(&owed)).is_none(), "charges in shadow mode need a future");
    let mut would = Vec::new();
    for left in (0..5).rev() {
        let ruling = limiter.decide(&owed).await;
        let decision = ruling.enforced.decision().expect("it is limited");
        assert_eq!((decision.reason(), decision.remaining()), (Reason::Ok, Amount::from_tokens(left)));
        let [tried] = &ruling.shadow[..] else { panic!("one rule in shadow mode: {ruling:?}") };
        assert_eq!(tried.rule, "tried");
        would.push((tried.would_allow(), tried.limited_by().map(str::to_owned), tried.retry_after()));
    }
    let denied = || (false, Some("three".to_owned()), Duration::from_secs(1));
    let allowed = || (true, None, Duration::ZERO);
    assert_eq!(would, [allowed(), allowed(), allowed(), denied(), denied()]);
    let ruling = limiter.decide(&owed).await;
    assert!(!ruling.allowed() && ruling.shadow.is_empty(), "a denied request is not evaluated: {ruling:?}");
}

#[tokio::test]
async fn a_peek_at_the_enforced_charges_spends_those_in_shadow_mode() {
    let (limiter, _) = limiter();
    let policy = policy([rule("enforced", "five"), shadow(rule("tried", "three"))]);
    let owed = owed(&policy, "/");
    for left in [2, 1, 0] {
        let ruling = limiter.decide(Ask::from(&owed).peeking_enforced()).await;
        let each: Vec<_> = ruling.decisions().map(Decision::remaining).collect();
        assert_eq!(each, [Amount::from(5), Amount::from(left)]);
    }
}

#[tokio::test]
async fn a_request_that_a_rule_does_not_limit_is_counted_by_that_rule() {
    let heard = Heard::default();
    let limiter = RateLimiter::builder().store(MemoryStore::new()).observer(heard.clone()).build();
    let open = policy([rule("health", "unlimited")]);
    let ruling = limiter.decide_now(&Ask::from(&owed(&open, "/"))).expect("no store is asked");
    assert_eq!((ruling.allowed(), ruling.reason(), ruling.decisions().count()), (true, "unlimited", 0));
    assert!(limiter.decide(&owed(&open, "/")).await.into_decision().is_none());
    let peeked = owed(&open, "/");
    assert!(limiter.decide(Ask::from(&peeked).peeking()).await.allowed(), "a peek is not counted");
    assert!(limiter.decide(&owed(&policy([]), "/")).await.allowed(), "no rule says so");
    assert_eq!(*heard.unlimited.lock(), [("health".to_owned(), None), ("health".to_owned(), None)]);
    assert_eq!(heard.decisions.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_rule_in_shadow_mode_is_unlimited_beside_its_own_decision_and_takes_no_permit() {
    let (limiter, _) = limiter();
    let policy = policy([shadow(rule("tried", "mixed"))]);
    let owed = policy.owed_by_identity("tried", "ann", None).expect("a rule");
    let ruling = limiter.decide(Ask::from(&owed).holder("ann").leaving_permit()).await;
    assert_eq!((ruling.reason(), ruling.permit.is_none()), ("unlimited", true));
    let limits: Vec<_> =
        ruling.shadow[0].decision.limits().iter().map(|limit| limit.name().to_string()).collect();
    assert_eq!(limits, ["shadow:mixed/rate"]);
}

#[tokio::test]
async fn what_was_reserved_in_shadow_mode_is_settled_like_an_enforced_charge() {
    let (limiter, _) = limiter();
    for (random, rules) in [(7, [rule("x", "five")]), (8, [shadow(rule("x", "five"))])] {
        let owed = policy(rules).owed_by_identity("x", "ann", Some(Amount::from(4))).expect("a rule");
        let id = ReservationId::new(random, Duration::from_secs(60)).expect("an id");
        let ruling = limiter.decide(Ask::from(&owed).reserving(id)).await;
        let left = |ruling: &Ruling| ruling.decisions().map(Decision::remaining).collect::<Vec<_>>();
        assert_eq!(left(&ruling), [Amount::TOKEN]);
        let chain = owed.chains().next().expect("one chain");
        let settled = limiter.settle_chain(chain, id, |_| Amount::from(2)).await.expect("it is open");
        assert!(!settled.already);
        assert_eq!(left(&limiter.decide(Ask::from(&owed).peeking()).await), [Amount::from(3)]);
    }
}

#[tokio::test]
async fn a_request_is_settled_in_both_modes() {
    let (limiter, _) = limiter();
    let policy = policy([rule("enforced", "five"), shadow(rule("tried", "three"))]);
    let owed = owed(&policy, "/");
    let Ruling { enforced, shadow, .. } = limiter.decide(&owed).await;
    let settled =
        limiter.settle_owed(&owed, &enforced, &shadow, |_| Amount::from(3)).await.expect("it answers");
    assert_eq!(settled.decision.expect("it changed").remaining(), 2);
    let ruling = limiter.decide(Ask::from(&owed).peeking()).await;
    let left: Vec<_> = ruling.decisions().map(Decision::remaining).collect();
    assert_eq!(left, [Amount::from(2), Amount::ZERO]);
}

#[tokio::test(start_paused = true)]
async fn both_modes_share_one_deadline_and_a_failure_in_shadow_mode_changes_nothing() {
    let policy = policy([
        Rule { on_failure: Some(FailurePolicy::Allow), ..rule("enforced", "five") },
        Rule { on_failure: Some(FailurePolicy::Deny), ..shadow(rule("tried", "three")) },
    ]);
    let (owed, heard) = (owed(&policy, "/"), Heard::default());
    let store: FaultyStore<ModelStore<FakeClock>> = FaultyStore::always(CallFault::Hang);
    let limiter =
        RateLimiter::builder().store(store).deadline(Duration::from_millis(50)).observer(heard.clone());
    let limiter = limiter.build();
    let started = tokio::time::Instant::now();
    let ruling = limiter.decide(Ask::from(&owed).within(Duration::from_millis(30))).await;
    assert!(started.elapsed() <= Duration::from_millis(32), "{:?}", started.elapsed());
    let decision = ruling.enforced.decision().expect("it is limited");
    assert_eq!((decision.reason(), ruling.shadow[0].decision.reason()), (Reason::FailOpen, Reason::FailOpen));
    assert!(ruling.shadow[0].would_allow(), "no limit denied it");
    assert_eq!(heard.decisions.load(Ordering::Relaxed), 2, "both failures are counted");
}

/// A decision as callers see it: a bucket that is full may be stored or not.
fn shown(decision: &Decision) -> (Reason, Vec<(String, Amount, Duration, Duration)>) {
    let limits = decision.limits().iter();
    let shown =
        limits.map(|one| (one.name().to_string(), one.remaining(), one.retry_after(), one.reset_after()));
    (decision.reason(), shown.collect())
}

/// A random rule for one of three paths.
fn any_rule(id: &'static str) -> impl Strategy<Value = Rule> {
    let plans = prop::sample::select(vec!["three", "five", "mixed", "unlimited"]);
    let paths = prop::sample::select(vec!["/*", "/a", "/b"]);
    (plans, paths, 0_u64..4, any::<bool>()).prop_map(move |(plan, path, cost, shadow)| {
        let path = Some(path.parse().expect("a pattern"));
        let matcher = Matcher { path, ..Matcher::default() };
        Rule { matcher, shadow, cost: Cost::new(cost).expect("a cost"), ..rule(id, plan) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Turning a rule to shadow never lets an enforced limit admit more or less than without that rule.
    #[test]
    fn decisions_are_those_without_the_shadow_rules(
        rules in (any_rule("x"), any_rule("y"), any_rule("z")),
        requests in prop::collection::vec((prop::sample::select(vec!["/", "/a", "/b"]), 0_u64..800, 0_u64..3), 1..40),
    ) {
        let rules = [rules.0, rules.1, rules.2];
        let enforced = rules.iter().filter(|rule| !rule.shadow).cloned();
        let policies = [policy(rules.clone()), policy(enforced)];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let [mut with, mut without] = [limiter(), limiter()].map(|one| (one, Vec::new()));
            for (path, pause_ms, cost) in requests {
                let mut rulings = Vec::new();
                for (((limiter, clock), held), policy) in [&mut with, &mut without].into_iter().zip(&policies) {
                    clock.advance(Duration::from_millis(pause_ms));
                    let owed = owed(policy, path);
                    let mut ruling = limiter.decide(&owed).await;
                    held.extend(ruling.permit.take());
                    let costs = |bucket: &spile_policy::BucketCharge| bucket.cost_at(Amount::from(cost));
                    let settled =
                        limiter.settle_owed(&owed, &ruling.enforced, &ruling.shadow, costs).await.expect("it answers");
                    let settled = settled.decision.as_ref().map(shown);
                    rulings.push((ruling.enforced.decision().map(shown), settled));
                }
                let [whole, stripped] = &rulings[..] else { unreachable!("there are two policies") };
                prop_assert_eq!(whole, stripped);
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn charges_that_a_caller_made_are_asked_through_the_same_entry() {
    let limiter = RateLimiter::builder().store(MemoryStore::new()).plans(plans()).build();
    let charges = |cost: u64| -> Charges<'_> { limiter.charges("ann", "three", cost).expect("a question") };
    assert!(limiter.decide(charges(2)).await.allowed());
    let denied = limiter.decide_now(&Ask::from(charges(2))).expect("the store is in memory");
    assert_eq!((denied.allowed(), denied.reason()), (false, "limited"));
    let mixed = limiter.charges("ann", "mixed", 1).expect("a question");
    assert!(limiter.decide_now(&Ask::from(mixed.clone())).is_none(), "a permit needs a future");
    let permit = limiter.decide(Ask::from(mixed).holder("worker-7")).await.permit.expect("a place");
    assert_eq!(permit.id().holder(), Some("worker-7"));
    let owed = Owed::default();
    assert!(matches!(owed.enforced, Enforced::Unlimited { rule: None, .. }));
    assert!(limiter.decide(&owed).await.allowed());
}
