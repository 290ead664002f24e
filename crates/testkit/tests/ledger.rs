//! The ledger finds what it is there to find.

use std::time::Duration;

use spile_core::{
    Amount, Bucket, Charge, Charges, Cost, Decision, DecisionSource, FailurePolicy, FailureReason, Key,
    Limit, LimitName, Micros, NamedLimit, Outcome, PlanName,
};
use spile_testkit::ledger::{Account, Breach, Ledger};

fn limit() -> Limit {
    Limit::per_second(10).burst(5).build().expect("within bounds")
}

fn charge() -> Charge<'static> {
    let name = LimitName::from(&PlanName::new("free").expect("a name"));
    let key = Key::new("caller").expect("a key");
    Charge::new(key, NamedLimit::new(name, limit()), Cost::ONE).expect("covered")
}

const fn tokens(tokens: u32) -> Amount {
    Amount::from_tokens(tokens)
}

fn ms(ms: u64) -> Micros {
    Micros::from_secs(1_000).plus_us(ms * 1_000)
}

#[test]
fn a_burst_and_the_refill_are_within_the_limit() {
    let mut account = Account::new(limit());
    account.admitted(tokens(5), ms(0));
    account.admitted(tokens(1), ms(100));
    account.admitted(tokens(5), ms(600));
    assert!(account.overdrawn().abs() < f64::EPSILON);
}

#[test]
fn one_token_too_many_shows_even_where_the_total_is_small() {
    let mut account = Account::new(limit());
    account.admitted(tokens(1), ms(0));
    account.admitted(tokens(5), ms(60_000));
    account.admitted(tokens(1), ms(60_000));
    assert!((account.overdrawn() - 1.0).abs() < 1e-6);
}

#[test]
fn answers_that_arrive_out_of_order_are_put_in_order() {
    let mut account = Account::new(limit());
    account.admitted(tokens(5), ms(500));
    account.admitted(tokens(5), ms(0));
    assert!(account.overdrawn().abs() < f64::EPSILON);
}

#[test]
fn what_was_not_given_shows_in_the_entitlement() {
    let ledger = Ledger::default();
    ledger.admitted(&charge(), tokens(5), ms(0));
    ledger.admitted(&charge(), tokens(0), ms(500));
    assert!((ledger.tokens_admitted() - 5.0).abs() < f64::EPSILON);
    assert!((ledger.entitlement_used("caller") - 0.5).abs() < 1e-9);
    assert!(matches!(ledger.check_entitlement("caller", 0.98), Err(Breach::Entitlement { .. })));
}

#[test]
fn a_key_that_the_store_was_never_asked_about_is_a_breach() {
    let ledger = Ledger::default();
    ledger.admitted(&charge(), tokens(5), ms(0));
    assert_eq!(ledger.check_entitlement("caller", 0.98), Ok(()));
    assert!(matches!(ledger.check_entitlement("stranger", 0.98), Err(Breach::Entitlement { .. })));
}

#[test]
fn an_overdraft_is_a_breach_beyond_what_the_fault_may_cost() {
    let ledger = Ledger::default();
    ledger.admitted(&charge(), tokens(5), ms(0));
    ledger.admitted(&charge(), tokens(3), ms(0));
    assert!(matches!(ledger.check_conserved(0.0), Err(Breach::Conservation { .. })));
    assert_eq!(ledger.check_conserved(5.0), Ok(()));
}

#[test]
fn a_slow_decision_is_a_breach() {
    let ledger = Ledger::default();
    let open = Decision::fail_open(&Charges::from(charge()), FailureReason::Timeout, ms(0));
    ledger.decided("caller", &open, ms(0), Duration::from_millis(71));
    assert!(matches!(ledger.check_bounded(Duration::from_millis(50)), Err(Breach::Bound { .. })));
    assert_eq!(ledger.check_bounded(Duration::from_millis(51)), Ok(()));
    let excused = |from: Micros, to: Micros| Duration::from_micros(to.since_us(from)) / 71;
    assert_eq!(ledger.check_bounded_but_for(Duration::from_millis(50), excused), Ok(()));
    let too_little = |from: Micros, to: Micros| Duration::from_micros(to.since_us(from)) / 72;
    assert!(ledger.check_bounded_but_for(Duration::from_millis(50), too_little).is_err());
}

#[test]
fn a_decision_that_follows_another_policy_is_a_breach() {
    let ledger = Ledger::default();
    let open = Decision::fail_open(&Charges::from(charge()), FailureReason::Timeout, ms(0));
    ledger.decided("caller", &open, ms(0), Duration::ZERO);
    assert_eq!(ledger.check_policy(FailurePolicy::Allow), Ok(()));
    assert!(matches!(ledger.check_policy(FailurePolicy::Deny), Err(Breach::Policy { .. })));
    assert_eq!((ledger.decisions(), ledger.by_policy(), ledger.allowed()), (1, 1, 1));
    assert_eq!(ledger.failures()["timeout"], 1);
    assert_eq!((ledger.last_by_policy(), ledger.calm()), (Some(ms(0)), 0));
}

#[test]
fn what_this_machine_admits_alone_is_held_against_the_limit_too() {
    let local = || {
        let charges = Charges::from(charge());
        let outcome = Outcome {
            allowed: true,
            at: ms(0),
            buckets: [Bucket::full(&limit(), ms(0))].into_iter().collect(),
        };
        Decision::from_outcome(&charges, &outcome, DecisionSource::Local)
            .taken_locally(FailureReason::Timeout)
    };
    let ledger = Ledger::default();
    (0..5).for_each(|_| ledger.decided("caller", &local(), ms(0), Duration::ZERO));
    assert_eq!(ledger.check_conserved_locally(), Ok(()));
    ledger.decided("caller", &local(), ms(0), Duration::ZERO);
    assert!(ledger.check_conserved_locally().is_err());
    assert_eq!(ledger.check_policy(FailurePolicy::Local), Ok(()));
}

#[test]
fn what_a_lease_gave_counts_from_when_its_first_caller_asked() {
    let limit =
        Limit::per_second(10).burst(5).lease(Duration::from_millis(100)).build().expect("within bounds");
    let name = LimitName::from(&PlanName::new("free").expect("a name"));
    let charge = Charge::new(Key::new("caller").expect("a key"), NamedLimit::new(name, limit), Cost::ONE);
    let charges = Charges::from(charge.expect("covered"));
    let buckets = [Bucket::full(&limit, ms(0))].into_iter().collect();
    let outcome = Outcome { allowed: true, at: ms(0), buckets };
    let leased = Decision::from_outcome(&charges, &outcome, DecisionSource::Lease);
    let ledger = Ledger::default();
    // The first caller heard of its token when the next had come back.
    ledger.decided("caller", &leased, ms(100), Duration::from_millis(100));
    (0..5).for_each(|_| ledger.decided("caller", &leased, ms(100), Duration::ZERO));
    assert_eq!(ledger.check_conserved(0.0), Ok(()));
    ledger.decided("caller", &leased, ms(100), Duration::ZERO);
    assert!(matches!(ledger.check_conserved(0.0), Err(Breach::Conservation { .. })));
}
