//! A failing store becomes a decision that says so.

#![allow(clippy::disallowed_methods, reason = "tests run on tokio itself")]

use std::time::Duration;

use spile_core::{
    Amount, Answer, Charges, Decision, DecisionSource, FailurePolicy, FailureReason, FakeClock, Limit,
    Operation, Plan, Reason, Reply, Store, StoreError, StoreExt,
};
use spile_limiter::{Ask, RateLimiter, StoreCallError, TokioClock, Wait};
use spile_policy::{Chain, ResolvedKey};
use spile_testkit::store::{CallFault, FaultyStore, ModelStore};

type TestStore = FaultyStore<ModelStore<FakeClock>>;

fn limiter(store: TestStore, policy: FailurePolicy, clock: &FakeClock) -> RateLimiter<TestStore> {
    RateLimiter::builder()
        .store(store)
        .plans([Plan::new("free", Limit::per_second(3).burst(30)).unwrap()])
        .on_failure(policy)
        .replicas(3)
        .clock(clock.clone())
        .build()
}

fn failing(error: StoreError) -> TestStore {
    FaultyStore::always(CallFault::Fail(error))
}

fn down() -> TestStore {
    failing(StoreError::Unavailable { message: "connection refused".into(), may_have_run: false })
}

/// The decision about a question with charges.
async fn decided<'a, S: Store + 'static>(limiter: &'a RateLimiter<S>, ask: impl Into<Ask<'a>>) -> Decision {
    limiter.decide(ask).await.into_decision().expect("it has charges")
}

#[tokio::test]
async fn allow_lets_pass_and_says_so() {
    let limiter = limiter(down(), FailurePolicy::Allow, &FakeClock::default());
    let decision = limiter.allow("ann", ["free"], 1).await.unwrap();
    assert!(decision.allowed() && decision.degraded());
    assert_eq!((decision.reason(), decision.source()), (Reason::FailOpen, DecisionSource::Policy));
    assert_eq!(decision.failure(), Some(FailureReason::RedisError));
    assert_eq!(decision.retry_after(), Duration::ZERO);
}

#[tokio::test]
async fn deny_refuses_for_a_second() {
    let limiter = limiter(down(), FailurePolicy::Deny, &FakeClock::default());
    let decision = limiter.allow("ann", ["free"], 1).await.unwrap();
    assert!(!decision.allowed() && decision.degraded());
    assert_eq!((decision.reason(), decision.source()), (Reason::FailClosed, DecisionSource::Policy));
    assert_eq!(decision.retry_after(), Duration::from_secs(1));
    assert_eq!([decision.remaining(), decision.limits()[0].remaining()], [0, 0]);
    assert_eq!(decision.limited_by(), None, "being down is not being limited");
}

#[tokio::test]
async fn local_enforces_this_instances_share() {
    let clock = FakeClock::default();
    let limiter = limiter(down(), FailurePolicy::Local, &clock);
    for _ in 0..10 {
        let decision = limiter.allow("ann", ["free"], 1).await.unwrap();
        assert!(decision.allowed() && decision.degraded());
        assert_eq!((decision.reason(), decision.source()), (Reason::Local, DecisionSource::Local));
    }
    let denied = limiter.allow("ann", ["free"], 1).await.unwrap();
    assert!(!denied.allowed());
    assert_eq!(denied.limited_by().unwrap().as_str(), "free");
    assert_eq!(denied.retry_after(), Duration::from_secs(1), "a third of three per second");
    clock.advance(Duration::from_secs(1));
    assert!(limiter.allow("ann", ["free"], 1).await.unwrap().allowed());
}

#[tokio::test]
async fn local_lets_a_cost_above_its_share_take_the_whole_share() {
    let clock = FakeClock::default();
    let limiter = limiter(down(), FailurePolicy::Local, &clock);
    assert!(limiter.allow("ann", ["free"], 25).await.unwrap().allowed());
    assert!(!limiter.allow("ann", ["free"], 25).await.unwrap().allowed());
    clock.advance(Duration::from_secs(10));
    assert!(limiter.allow("ann", ["free"], 25).await.unwrap().allowed());
}

#[tokio::test]
async fn a_call_can_bring_a_policy_of_its_own() {
    let limiter = limiter(down(), FailurePolicy::Allow, &FakeClock::default());
    let charges = limiter.charges("ann", ["free"], 1).unwrap();
    let ask = Ask::from(charges).on_failure(FailurePolicy::Deny).rule("login");
    assert_eq!(decided(&limiter, ask.clone().peeking()).await.reason(), Reason::FailClosed);
    assert_eq!(decided(&limiter, ask).await.reason(), Reason::FailClosed);
}

#[tokio::test]
async fn each_failure_is_counted_by_its_own_reason() {
    for (why, reason) in [
        (StoreError::TimedOut(Duration::from_millis(50)), "timeout"),
        (StoreError::BadResponse("garbage".into()), "badresponse"),
        (StoreError::BadTypes("a list".into()), "badtypes"),
        (StoreError::BreakerOpen, "breakeropen"),
        (StoreError::Overloaded(1_024), "overloaded"),
    ] {
        let limiter = limiter(failing(why), FailurePolicy::Allow, &FakeClock::default());
        let decision = limiter.allow("ann", ["free"], 1).await.unwrap();
        assert_eq!(decision.failure().unwrap().as_str(), reason);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_given_up_on_at_the_deadline() {
    let limiter = limiter(FaultyStore::always(CallFault::Hang), FailurePolicy::Allow, &FakeClock::default());
    let started = tokio::time::Instant::now();
    let decision = limiter.allow("ann", ["free"], 1).await.unwrap();
    assert_eq!(decision.failure(), Some(FailureReason::Timeout));
    let took = started.elapsed();
    assert!((Duration::from_millis(60)..Duration::from_millis(65)).contains(&took), "{took:?}");
}

/// A store with a timeout, after which it knows that a call has not run.
struct Patient(TestStore, Duration);

impl Store for Patient {
    fn call<'a>(
        &'a self,
        operation: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> Answer<impl Future<Output = Result<Reply, StoreError>> + Send + 'a> {
        Answer::Later(async move {
            let _hangs = tokio::time::timeout(self.1, self.0.ask(operation, charges)).await;
            Err(StoreError::Overloaded(1_000))
        })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.1)
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_with_a_timeout_reports_itself_why_it_failed() {
    for timeout in [Duration::from_millis(50), Duration::from_secs(3)] {
        let store = Patient(FaultyStore::always(CallFault::Hang), timeout);
        let plans = [Plan::new("free", Limit::per_second(3)).unwrap()];
        let limiter = RateLimiter::builder().store(store).plans(plans).build();
        let decision = limiter.allow("ann", ["free"], 1).await.unwrap();
        assert_eq!((decision.failure(), decision.may_have_run()), (Some(FailureReason::Overloaded), false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_can_shorten_the_deadline_and_not_lengthen_it() {
    let limiter = limiter(FaultyStore::always(CallFault::Hang), FailurePolicy::Allow, &FakeClock::default());
    for (within, expected) in [(15, 15), (60_000, 60)] {
        let ask =
            Ask::from(limiter.charges("ann", ["free"], 1).unwrap()).within(Duration::from_millis(within));
        for looks in [false, true] {
            let started = tokio::time::Instant::now();
            let ask = ask.clone();
            let decision = decided(&limiter, if looks { ask.peeking() } else { ask }).await;
            assert_eq!(decision.failure(), Some(FailureReason::Timeout));
            let (took, expected) = (started.elapsed(), Duration::from_millis(expected));
            assert!((expected..expected + Duration::from_millis(5)).contains(&took), "{took:?}");
        }
    }
}

#[tokio::test]
async fn partial_spends_and_peeks_follow_the_policy_too() {
    let clock = FakeClock::default();
    let open = limiter(down(), FailurePolicy::Allow, &clock);
    assert_eq!(open.spend_up_to("ann", ["free"], 12).await.unwrap().granted, 12);
    assert!(open.peek("ann", ["free"], 1).await.unwrap().degraded());
    let closed = limiter(down(), FailurePolicy::Deny, &clock);
    assert_eq!(closed.spend_up_to("ann", ["free"], 12).await.unwrap().granted, 0);
    assert!(!closed.peek("ann", ["free"], 1).await.unwrap().allowed());
    let local = limiter(down(), FailurePolicy::Local, &clock);
    assert_eq!(local.spend_up_to("ann", ["free"], 12).await.unwrap().granted, 10);
    assert!(!local.peek("ann", ["free"], 1).await.unwrap().allowed());
}

#[tokio::test]
async fn what_no_policy_can_do_fails() {
    let limiter = limiter(down(), FailurePolicy::Allow, &FakeClock::default());
    assert!(matches!(limiter.refund("ann", ["free"], 1, None).await, Err(StoreCallError::Store(_))));
    assert!(matches!(limiter.reset("ann", ["free"]).await, Err(StoreCallError::Store(_))));
    assert!(matches!(limiter.refund("ann", ["silver"], 1, None).await, Err(StoreCallError::Asked(_))));
}

#[tokio::test]
async fn shadow_mode_counts_a_denial_and_lets_it_pass() {
    let limiter = limiter(down(), FailurePolicy::Local, &FakeClock::default());
    for _ in 0..10 {
        let _ = limiter.allow("ann", ["free"], 1).await.unwrap();
    }
    let charges = limiter.charges("ann", ["free"], 1).unwrap();
    let decision = decided(&limiter, Ask::from(charges).shadow(true)).await;
    assert!(decision.allowed());
    assert_eq!(decision.reason(), Reason::Shadow);
    assert_eq!(decision.limited_by().unwrap().as_str(), "free");
}

#[tokio::test]
async fn shadow_mode_never_blocks_and_blames_no_limit_for_a_failing_store() {
    let limiter = limiter(down(), FailurePolicy::Deny, &FakeClock::default());
    let charges = limiter.charges("ann", ["free"], 1).unwrap();
    let decision = decided(&limiter, Ask::from(charges).shadow(true)).await;
    assert!(decision.allowed());
    assert_eq!((decision.reason(), decision.limited_by()), (Reason::FailOpen, None));
}

#[tokio::test]
async fn a_rule_that_only_watches_decides_as_allow_would_where_the_policy_is_deny() {
    let [deny, allow] = [FailurePolicy::Deny, FailurePolicy::Allow]
        .map(|policy| limiter(down(), policy, &FakeClock::default()));
    let mut chain = Chain::new(None).shadow(true);
    deny.extend_chain(&mut chain, &ResolvedKey::custom("user", "ann"), "free", 12).unwrap();
    let watching = || Ask::from(&chain);
    let passed = decided(&deny, watching()).await;
    assert_eq!((passed.remaining(), passed.retry_after()), (Amount::from(30), Duration::ZERO));
    assert_eq!(passed, decided(&allow, watching()).await);
    assert_eq!(deny.peek_charges(&chain).await, allow.peek_charges(&chain).await);
    assert_eq!(deny.spend_up_to_charges(&chain).await.granted, 12);
}

#[tokio::test]
async fn how_much_the_store_behind_local_holds_is_told() {
    let limiter = limiter(down(), FailurePolicy::Local, &FakeClock::default());
    assert_eq!(limiter.local_usage().keys, 0);
    for key in ["ann", "bob"] {
        assert!(limiter.allow(key, ["free"], 1).await.unwrap().allowed());
    }
    assert_eq!(limiter.local_usage().keys, 2);
}

/// A store that loses its first answers: after the call has run, if the error says that it may have.
fn losing(lost: u32, error: StoreError) -> TestStore {
    FaultyStore::new(ModelStore::new(FakeClock::default()), move |call| {
        assert!(call < 1_000, "the store is asked without end");
        match call {
            call if call >= lost => CallFault::None,
            _ if error.may_have_run() => CallFault::LoseAnswer(error.clone()),
            _ => CallFault::Fail(error.clone()),
        }
    })
}

fn reset_by_peer(may_have_run: bool) -> StoreError {
    StoreError::Unavailable { message: "connection reset".into(), may_have_run }
}

/// A limiter that refuses while the store fails, and tells callers to come back after `wait`.
fn refusing(store: TestStore, policy: FailurePolicy, wait: Duration) -> RateLimiter<TestStore> {
    RateLimiter::builder()
        .store(store)
        .plans([Plan::new("free", Limit::per_second(3).burst(30)).unwrap()])
        .on_failure(policy)
        .replicas(30)
        .fail_closed_retry_after(wait)
        .build()
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_waits_is_never_charged_twice_for_an_answer_that_was_lost() {
    for policy in [FailurePolicy::Deny, FailurePolicy::Local] {
        // Alone, this instance's share is one token. The first of two calls takes it, so that the second is denied.
        let lost = if policy == FailurePolicy::Local { 2 } else { 1 };
        let limiter = refusing(losing(lost, reset_by_peer(true)), policy, Duration::from_secs(1));
        if policy == FailurePolicy::Local {
            assert!(limiter.allow("ann", ["free"], 3).await.unwrap().may_have_run());
        }
        let decision = limiter.until_ready("ann", ["free"], 3, Wait::forever()).await.unwrap();
        assert!(!decision.allowed() && decision.may_have_run(), "{policy}");
        assert_eq!(
            limiter.peek("ann", ["free"], 0).await.unwrap().remaining(),
            30 - 3 * u64::from(lost),
            "{policy}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_waits_is_denied_at_once_while_the_store_fails() {
    let errors =
        [reset_by_peer(false), reset_by_peer(true), StoreError::BreakerOpen, StoreError::Overloaded(9)];
    for (policy, why) in [FailurePolicy::Allow, FailurePolicy::Deny]
        .into_iter()
        .flat_map(|policy| errors.iter().map(move |why| (policy, why.clone())))
    {
        let limiter = refusing(failing(why.clone()), policy, Duration::from_secs(1));
        let started = tokio::time::Instant::now();
        let decision = limiter.until_ready("ann", ["free"], 3, Wait::forever()).await.unwrap();
        assert_eq!((decision.allowed(), decision.reason()), (false, Reason::FailClosed), "{policy}, {why}");
        assert_eq!(decision.failure(), Some(why.reason()));
        assert_eq!((limiter.store().calls(), started.elapsed()), (1, Duration::ZERO));
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_waits_passes_while_the_store_fails_only_if_it_and_the_policy_say_so() {
    for (policy, reason) in [
        (FailurePolicy::Allow, Reason::FailOpen),
        (FailurePolicy::Deny, Reason::FailClosed),
        (FailurePolicy::Local, Reason::Local),
    ] {
        let limiter = refusing(down(), policy, Duration::from_secs(1));
        let wait = Wait::forever().fail_open();
        let decision = limiter.until_ready("ann", ["free"], 1, wait).await.unwrap();
        assert_eq!((decision.reason(), decision.allowed()), (reason, policy != FailurePolicy::Deny));
    }
}

/// How often a worker that waits its turn under five a second is let in during a second of an outage.
async fn let_in_during_an_outage(policy: FailurePolicy) -> u32 {
    let plans = [Plan::new("work", Limit::per_second(5)).unwrap()];
    let builder = RateLimiter::builder().store(down()).plans(plans).on_failure(policy);
    let limiter = builder.clock(TokioClock::new()).build();
    let until = tokio::time::Instant::now() + Duration::from_secs(1);
    let mut let_in = 0;
    while tokio::time::Instant::now() < until {
        let turn = limiter.until_ready("worker", "work", 1, Wait::forever()).await.unwrap();
        let_in += u32::from(turn.allowed());
        assert!(let_in < 100, "it is not limited at all");
        if !turn.allowed() {
            tokio::time::sleep(turn.retry_after()).await;
        }
    }
    let_in
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_its_turn_makes_no_more_calls_than_allowed_while_the_store_is_down() {
    assert_eq!(let_in_during_an_outage(FailurePolicy::Allow).await, 0);
    assert_eq!(let_in_during_an_outage(FailurePolicy::Deny).await, 0);
    let alone = let_in_during_an_outage(FailurePolicy::Local).await;
    assert!((5..=10).contains(&alone), "its share is a burst of five, and five a second: {alone}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_waits_for_a_permit_is_denied_at_once_while_the_store_fails() {
    let limiter = |policy| {
        let builder =
            RateLimiter::builder().store(down()).plans([Plan::new("jobs", Limit::concurrent(1)).unwrap()]);
        builder.on_failure(policy).build()
    };
    for policy in [FailurePolicy::Allow, FailurePolicy::Deny] {
        let started = tokio::time::Instant::now();
        let refused = limiter(policy).acquire_when_ready("ann", "jobs", Wait::forever()).await.unwrap_err();
        assert_eq!(refused.decision().map(spile_core::Decision::reason), Some(Reason::FailClosed));
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
    let open = limiter(FailurePolicy::Allow);
    assert!(open.acquire_when_ready("ann", "jobs", Wait::forever().fail_open()).await.is_ok());
    let local = limiter(FailurePolicy::Local);
    let _held = local.acquire_when_ready("ann", "jobs", Wait::forever()).await.unwrap();
    let wait = Wait::at_most(Duration::from_millis(20));
    let denied = local.acquire_when_ready("ann", "jobs", wait).await.unwrap_err();
    assert_eq!(denied.decision().map(spile_core::Decision::reason), Some(Reason::Local));
}

/// Asks a store that is too busy for the first `busy` calls. Returns the decision, the calls and how long it took.
async fn asked_with_patience(busy: u32, patience: Duration) -> (spile_core::Decision, u32, Duration) {
    let store = losing(busy, StoreError::Overloaded(1_024));
    let limiter = refusing(store, FailurePolicy::Deny, Duration::from_secs(1));
    let started = tokio::time::Instant::now();
    let ask = Ask::from(limiter.charges("ann", ["free"], 3).unwrap()).retry_overloaded_for(patience);
    let decision = decided(&limiter, ask).await;
    (decision, limiter.store().calls(), started.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_patient_caller_is_let_in_and_charged_once_when_the_store_is_less_busy() {
    let (decision, asked, _) = asked_with_patience(3, Duration::from_millis(20)).await;
    assert!(decision.allowed());
    assert_eq!((decision.remaining(), asked), (Amount::from(27), 4));
}

#[tokio::test(start_paused = true)]
async fn a_patient_caller_asks_until_the_patience_is_over_and_not_later() {
    let patience = Duration::from_millis(20);
    let (decision, asked, took) = asked_with_patience(u32::MAX, patience).await;
    assert_eq!(decision.failure(), Some(FailureReason::Overloaded));
    assert!(asked > 2, "{asked}");
    assert_eq!(took, patience);
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_patience_asks_a_busy_store_once() {
    let (decision, asked, took) = asked_with_patience(1, Duration::ZERO).await;
    assert_eq!((decision.reason(), asked, took), (Reason::FailClosed, 1, Duration::ZERO));
}

#[tokio::test]
async fn whether_the_store_may_have_charged_is_told_by_the_decision_that_is_made_in_its_place() {
    for (why, may_have_run) in [
        (StoreError::TimedOut(Duration::from_millis(50)), true),
        (StoreError::BadResponse("garbage".into()), true),
        (StoreError::BreakerOpen, false),
        (StoreError::Overloaded(1_024), false),
    ] {
        for policy in [FailurePolicy::Allow, FailurePolicy::Deny, FailurePolicy::Local] {
            let limiter = limiter(failing(why.clone()), policy, &FakeClock::default());
            let told = |decision: &spile_core::Decision| decision.may_have_run();
            assert_eq!(told(&limiter.allow("ann", ["free"], 1).await.unwrap()), may_have_run);
            assert_eq!(told(&limiter.spend_up_to("ann", ["free"], 1).await.unwrap().decision), may_have_run);
            assert!(!told(&limiter.peek("ann", ["free"], 1).await.unwrap()), "a look charges nothing");
        }
    }
}

#[tokio::test]
async fn a_partial_spend_that_is_granted_nothing_locally_learns_when_there_is_a_token() {
    let limiter = limiter(down(), FailurePolicy::Local, &FakeClock::default());
    assert_eq!(limiter.spend_up_to("ann", ["free"], 30).await.unwrap().granted, 10);
    let nothing = limiter.spend_up_to("ann", ["free"], 30).await.unwrap();
    assert_eq!((nothing.granted, nothing.decision.retry_after()), (Amount::ZERO, Duration::from_secs(1)));
}

#[tokio::test]
async fn a_partial_spend_follows_the_policy_of_its_rule() {
    let limiter = limiter(down(), FailurePolicy::Allow, &FakeClock::default());
    let under = |policy| {
        let mut chain = Chain::new(None).on_failure(Some(policy));
        limiter.extend_chain(&mut chain, &ResolvedKey::custom("user", "ann"), "free", 12).unwrap();
        chain
    };
    let refused = limiter.spend_up_to_charges(&under(FailurePolicy::Deny)).await;
    assert_eq!((refused.granted, refused.decision.reason()), (Amount::ZERO, Reason::FailClosed));
    let shared = limiter.spend_up_to_charges(&under(FailurePolicy::Local)).await;
    assert_eq!((shared.granted, shared.decision.reason()), (Amount::from(10), Reason::Local));
}
