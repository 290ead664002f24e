//! Decisions explain themselves: remaining tokens, waits, the binding limit and the source.

use std::time::Duration;

use proptest::prelude::*;
use spile_core::{
    Amount, Bucket, Charge, Charges, Cost, Decision, DecisionSource, FailurePolicy, FailureReason, Key,
    Limit, LimitName, Micros, NamedLimit, OneOrMany, Outcome, QuotaWindows, Reason, Window, Windows,
};

const NOW: Micros = Micros::from_secs(1_700_000_000);

fn named(name: &str, refill: u64, capacity: u64) -> NamedLimit {
    let limit = Limit::per_second(refill).burst(capacity).build().expect("in bounds");
    NamedLimit::new(LimitName::new(name).expect("a name"), limit)
}

/// Charges of this cost under these limits, and the micro-tokens that their buckets hold.
fn chain(limits: &[NamedLimit], cost: u64) -> Charges<'static> {
    let charge = |limit: &NamedLimit| {
        Charge::new(Key::new("ann").expect("a key"), limit.clone(), Cost::new(cost).expect("a cost"))
    };
    Charges::new(limits.iter().map(|limit| charge(limit).expect("it can pass"))).expect("a chain")
}

fn decided(charges: &Charges<'_>, held: &[i64], allowed: bool) -> Decision {
    let buckets = held.iter().map(|&held| Bucket::new(Amount::from_micro(held), NOW)).collect();
    Decision::from_outcome(charges, &Outcome { allowed, at: NOW, buckets }, DecisionSource::Store)
}

proptest! {
    /// The wait is exact to the microsecond.
    #[test]
    fn who_waits_as_told_finds_what_was_missing_and_who_waits_less_does_not(
        refill in 1u64..2_000, capacity in 1u64..2_000, cost in 0u64..2_000, held in -2_000_000_000i64..2_000_000_000,
    ) {
        let limit = named("burst", refill, capacity);
        let (cost, full) = (cost.min(capacity), capacity.cast_signed() * 1_000_000);
        let asked = cost.max(1).cast_signed() * 1_000_000;
        let held = held.min(full);
        let (charges, bucket) = (chain(std::slice::from_ref(&limit), cost), Bucket::new(Amount::from_micro(held), NOW));
        let decision = decided(&charges, &[held], held >= asked);
        let status = decision.binding();
        prop_assert_eq!(status.remaining(), held.max(0).unsigned_abs() / 1_000_000);
        prop_assert_eq!(status.owed().micro(), (-held).max(0));
        prop_assert_eq!(decision.remaining(), status.remaining());
        prop_assert!((status.level() - held.max(0) as f64 / full as f64).abs() < 1e-12);
        prop_assert_eq!((status.cost().amount(), status.at(), decision.at()), (Amount::from(cost), NOW, NOW));
        for (wait, wanted) in [(status.retry_after(), asked), (decision.reset_after(), full)] {
            let there = |wait: Duration| bucket.available(limit.limit(), NOW + wait).micro();
            prop_assert!(there(wait) >= wanted);
            let sooner = wait.checked_sub(Duration::from_micros(1));
            prop_assert!(sooner.is_none_or(|sooner| there(sooner) < wanted), "{:?} for {}", wait, wanted);
        }
        let wait = if decision.allowed() { Duration::ZERO } else { status.retry_after() };
        prop_assert_eq!(decision.retry_after(), wait);
    }

    /// The binding limit has the longest wait, or if all limits allow, it covers the fewest further requests.
    #[test]
    fn the_first_of_the_tightest_limits_binds(
        links in prop::collection::vec((-9_000_000i64..9_000_000, 0u64..6_000_000, 1u64..4, any::<bool>()), 1..6),
        allowed in any::<bool>(),
    ) {
        let limit = |(index, &(_, _, refill, money)): (usize, &(i64, u64, u64, bool))| {
            let limit = Limit::per_second(refill).burst(9);
            let limit = if money { limit.unit("usd".parse().expect("a currency")) } else { limit };
            let name = LimitName::new(&format!("l{index}")).expect("a name");
            NamedLimit::new(name, limit.build().expect("in bounds"))
        };
        let charge = |(limit, &(_, cost, _, _)): (NamedLimit, &(i64, u64, u64, bool))| {
            let cost = Cost::new(Amount::from_micro(cost.cast_signed())).expect("a cost");
            Charge::new(Key::new("ann").expect("a key"), limit, cost).expect("it can pass")
        };
        let limits: Vec<_> = links.iter().enumerate().map(limit).collect();
        let charges = Charges::new(limits.iter().cloned().zip(&links).map(charge)).expect("a chain");
        let held: Vec<_> = links.iter().map(|link| link.0).collect();
        let decision = decided(&charges, &held, allowed);
        let statuses = decision.limits();
        // Requests that the bucket covers, in units of the common denominator of all fractions, which fits 128 bits.
        let parts = |index: usize| i128::from(links[index].1.max(limits[index].limit().quantum().micro().unsigned_abs()));
        let whole: i128 = (0..links.len()).map(parts).product();
        let covered = |index: usize| i128::from(held[index]) * (whole / parts(index));
        let tightness = |index: usize| {
            let wait = if allowed { statuses[index].reset_after() } else { statuses[index].retry_after() };
            (if allowed { -covered(index) } else { 0 }, wait)
        };
        let tightest = (0..links.len()).map(tightness).max().expect("a limit");
        let first = (0..links.len()).position(|index| tightness(index) == tightest).expect("one of them");
        prop_assert_eq!(decision.binding_index(), first);
        prop_assert_eq!(decision.binding(), &statuses[first]);
        prop_assert_eq!(statuses.len(), held.len());
        prop_assert_eq!(decision.limited_by(), (!allowed).then_some(limits[first].name()));
        prop_assert_eq!(decision.reason(), if allowed { Reason::Ok } else { Reason::Limited });
        prop_assert!(!decision.degraded() && decision.failure().is_none() && !decision.may_have_run());
    }
}

/// A limit, the cost under it, and the tokens that are left.
type ChargedLimit = (Limit, u64, i64);

/// The limits of a chain, and the position of the one that binds.
#[test]
fn the_limit_that_will_deny_first_binds_whatever_it_counts() {
    let rate =
        |refill: u64, capacity: u64| Limit::per_minute(refill).burst(capacity).build().expect("in bounds");
    let quota = Limit::per_window(1_000, QuotaWindows::new(Day)).build().expect("in bounds");
    let places = Limit::concurrent(4).build().expect("in bounds");
    let most = Limit::per_second(Limit::MAX_AMOUNT).build().expect("in bounds");
    let table: [(&str, &[ChargedLimit], usize); 8] = [
        ("requests and tokens", &[(rate(60, 60), 1, 48), (rate(200, 200), 100, 100)], 1),
        ("a quota", &[(rate(60, 60), 1, 48), (quota, 100, 4_700)], 1),
        ("a concurrency", &[(rate(60, 60), 1, 4), (places, 1, 3)], 1),
        ("a debt comes first", &[(rate(60, 60), 1, 0), (rate(200, 200), 100, -1)], 1),
        ("a cost of zero asks for a quantum", &[(rate(60, 60), 0, 3), (rate(200, 200), 100, 250)], 1),
        ("a tie takes longer to fill", &[(rate(60, 60), 1, 2), (rate(1, 60), 1, 2)], 1),
        ("a tie in everything", &[(rate(60, 60), 1, 2), (rate(60, 60), 1, 2)], 0),
        ("the largest amounts", &[(most, 999_999_999, 999_999_999), (most, 1_000_000_000, 999_999_999)], 1),
    ];
    for (row, links, binding) in table {
        let charge = |(index, &(limit, cost, _)): (usize, &ChargedLimit)| {
            let name = LimitName::new(&format!("l{index}")).expect("a name");
            let cost = Cost::new(cost).expect("a cost");
            Charge::new(Key::new("ann").expect("a key"), NamedLimit::new(name, limit), cost)
                .expect("it can pass")
        };
        let charges = Charges::new(links.iter().enumerate().map(charge)).expect("a chain");
        let bucket = |(limit, _, left): &ChargedLimit| {
            Bucket::holding(limit, Amount::from_micro(left * 1_000_000), NOW)
        };
        let outcome = Outcome { allowed: true, at: NOW, buckets: links.iter().map(bucket).collect() };
        let decision = Decision::from_outcome(&charges, &outcome, DecisionSource::Store);
        assert_eq!(decision.binding_index(), binding, "{row}");
    }
}

/// One day after the other.
#[derive(Debug)]
struct Day;

impl std::fmt::Display for Day {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("day")
    }
}

impl Windows for Day {
    fn window_at(&self, now: Micros) -> Window {
        let start = Micros::new(now.get() / 86_400_000_000 * 86_400_000_000);
        Window { start, end: start + self.longest() }
    }

    fn period(&self) -> Duration {
        self.longest()
    }

    fn longest(&self) -> Duration {
        Duration::from_secs(86_400)
    }
}

#[test]
fn a_policy_that_lets_pass_shows_full_buckets_and_why() {
    let charges = chain(&[named("a", 1, 10), named("b", 1, 7)], 2);
    let open = Decision::fail_open(&charges, FailureReason::Timeout, NOW);
    assert_eq!(
        (open.allowed(), open.reason(), open.source()),
        (true, Reason::FailOpen, DecisionSource::Policy)
    );
    assert_eq!((open.degraded(), open.failure()), (true, Some(FailureReason::Timeout)));
    assert_eq!(
        (open.remaining().whole_tokens(), open.retry_after(), open.limited_by()),
        (7, Duration::ZERO, None)
    );
}

#[test]
fn a_policy_that_refuses_shows_empty_buckets_and_the_wait_that_was_set() {
    let charges = chain(&[named("a", 1, 10)], 2);
    let wait = Duration::from_millis(1_500);
    let closed = Decision::fail_closed(&charges, FailureReason::RedisError, NOW, wait);
    assert_eq!(
        (closed.allowed(), closed.reason(), closed.source()),
        (false, Reason::FailClosed, DecisionSource::Policy)
    );
    assert_eq!((closed.remaining(), closed.retry_after(), closed.limited_by()), (Amount::ZERO, wait, None));
    assert_eq!(closed.reset_after(), Duration::from_secs(10));
    let endless = Decision::fail_closed(&charges, FailureReason::RedisError, NOW, Duration::MAX);
    assert_eq!(endless.retry_after(), Duration::from_micros(u64::MAX));
}

#[test]
fn a_shadow_lets_pass_and_tells_whom_it_would_not_have() {
    let charges = chain(&[named("a", 1, 10)], 2);
    let denied = decided(&charges, &[0], false).shadowed();
    assert_eq!((denied.allowed(), denied.reason()), (true, Reason::Shadow));
    assert_eq!(denied.limited_by().map(ToString::to_string).as_deref(), Some("a"));
    assert_eq!(denied.retry_after(), Duration::ZERO);
    let closed =
        Decision::fail_closed(&charges, FailureReason::Timeout, NOW, Duration::from_secs(1)).shadowed();
    assert_eq!((closed.allowed(), closed.reason()), (true, Reason::FailOpen));
    let passed = decided(&charges, &[5_000_000], true);
    assert_eq!(passed.clone().shadowed(), passed);
}

#[test]
fn a_local_decision_says_so_and_which_limit_denied() {
    let charges = chain(&[named("a", 1, 10)], 2);
    for (held, allowed) in [(5_000_000, true), (0, false)] {
        let local = decided(&charges, &[held], allowed).taken_locally(FailureReason::BreakerOpen);
        assert_eq!((local.reason(), local.source()), (Reason::Local, DecisionSource::Local));
        assert_eq!(local.failure(), Some(FailureReason::BreakerOpen));
        assert_eq!(local.limited_by().is_some(), !allowed);
    }
    let maybe = Decision::fail_open(&charges, FailureReason::Timeout, NOW).with_may_have_run(true);
    assert!(maybe.may_have_run());
    assert!(!maybe.with_may_have_run(false).may_have_run());
}

#[test]
fn how_limits_stand_is_an_allowed_decision_of_no_cost() {
    let charges = chain(&[named("a", 1, 10), named("b", 1, 7)], 2);
    let denied = decided(&charges, &[9_000_000, 1_000_000], false);
    let standing = Decision::standing(denied.limits().iter().cloned()).expect("there are limits");
    assert_eq!(
        (standing.allowed(), standing.reason(), standing.remaining()),
        (true, Reason::Ok, Amount::TOKEN)
    );
    assert!(standing.limits().iter().all(|status| status.cost() == Cost::ZERO));
    assert_eq!(Decision::standing([]), None);
}

#[test]
fn a_status_can_be_shown_under_the_limit_of_another() {
    let (own, other) = (named("own", 1, 10), named("other", 5, 20));
    let tag = other.tag();
    let decision = decided(&chain(&[own, other], 2), &[3_000_000, 4_000_000], true);
    let [own, other] = decision.limits() else { panic!("two limits") };
    let shown = own.under_limit_of(other);
    assert_eq!((shown.name().as_str(), shown.limit(), shown.tag()), ("other", other.limit(), tag));
    assert_eq!(shown.remaining(), 3);
    assert_ne!(own.tag(), tag, "another name has another tag");
}

/// Metrics, logs and the API use these words.
#[test]
fn reasons_sources_and_failures_keep_their_words() {
    let reasons =
        [Reason::Ok, Reason::Limited, Reason::FailOpen, Reason::FailClosed, Reason::Local, Reason::Shadow];
    assert_eq!(reasons.map(Reason::as_str), ["ok", "limited", "fail_open", "fail_closed", "local", "shadow"]);
    let words = [
        DecisionSource::Store,
        DecisionSource::Local,
        DecisionSource::Policy,
        DecisionSource::DenyCache,
        DecisionSource::Lease,
    ]
    .map(DecisionSource::as_str);
    assert_eq!(words, ["store", "local", "policy", "deny_cache", "lease"]);
    let failures = [
        (FailureReason::RedisError, "rediserror"),
        (FailureReason::Timeout, "timeout"),
        (FailureReason::BadResponse, "badresponse"),
        (FailureReason::BadTypes, "badtypes"),
        (FailureReason::BreakerOpen, "breakeropen"),
        (FailureReason::Overloaded, "overloaded"),
    ];
    for (failure, word) in failures {
        assert_eq!(failure.as_str(), word);
    }
}

#[test]
fn of_two_failure_policies_the_stricter_holds() {
    use FailurePolicy::{Allow, Deny, Local};
    for (policy, rank) in [(Allow, 0), (Local, 1), (Deny, 2)] {
        for (other, other_rank) in [(Allow, 0), (Local, 1), (Deny, 2)] {
            assert_eq!(policy.stricter(other), if rank > other_rank { policy } else { other });
        }
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    assert_eq!([Allow, Deny, Local].map(|policy| policy.to_string()), ["allow", "deny", "local"]);
    let unknown = "panic".parse::<FailurePolicy>().unwrap_err();
    assert_eq!(unknown.to_string(), "`panic` is not a failure policy: write `allow`, `deny` or `local`");
}

#[test]
fn a_few_are_walked_and_shown_like_a_list() {
    for count in [0, 1, 3] {
        let (few, list): (OneOrMany<u32>, Vec<u32>) = ((0..count).collect(), (0..count).collect());
        assert!((&few).into_iter().eq(&list));
        assert_eq!(format!("{few:?}"), format!("{list:?}"));
    }
}
