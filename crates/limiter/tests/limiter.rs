//! What the limiter promises over the embedded store.

#![allow(clippy::disallowed_methods, reason = "tests run on tokio itself")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{
    Amount, Answer, Bucket, Charge, ChargeError, Charges, Clock, Decision, DecisionSource, FakeClock,
    InMemoryPlans, KeyError, Limit, LimitName, Operation, Plan, Reason, Reply, Store, StoreError, Verdict,
};
use spile_limiter::{
    Ask, DecisionCounts, LimiterError, Observed, Observer, RateLimiter, RuleName, Series, TokioClock, Wait,
};
use spile_memory::MemoryStore;
use spile_policy::{Chain, ResolvedKey};

fn plans() -> [Plan; 3] {
    [
        Plan::new("free", Limit::per_second(1).burst(10)).unwrap(),
        Plan::chain("gold", [("burst", Limit::per_second(10).burst(20)), ("daily", Limit::per_day(100))])
            .unwrap(),
        Plan::new("extra", Limit::per_minute(30)).unwrap(),
    ]
}

fn limiter() -> (RateLimiter<MemoryStore<FakeClock>>, FakeClock) {
    let clock = FakeClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (RateLimiter::builder().store(store).plans(plans()).build(), clock)
}

/// The decision about a question with charges.
async fn decided<'a, S: Store + 'static>(limiter: &'a RateLimiter<S>, ask: impl Into<Ask<'a>>) -> Decision {
    limiter.decide(ask).await.into_decision().expect("it has charges")
}

#[tokio::test]
async fn ten_pass_and_the_eleventh_is_told_when_to_come_back() {
    let (limiter, clock) = limiter();
    for left in (0..10).rev() {
        let decision = limiter.allow("ann", ["free"], 1).await.unwrap();
        assert!(decision.allowed());
        assert_eq!(
            (decision.remaining(), decision.reason(), decision.source()),
            (Amount::from(left), Reason::Ok, DecisionSource::Store)
        );
    }
    let denied = limiter.allow("ann", ["free"], 1).await.unwrap();
    assert!(!denied.allowed());
    assert_eq!((denied.reason(), denied.retry_after()), (Reason::Limited, Duration::from_secs(1)));
    assert_eq!(denied.limited_by().unwrap().as_str(), "free");
    assert_eq!(denied.reset_after(), Duration::from_secs(10));
    clock.advance(denied.retry_after());
    assert!(limiter.allow("ann", ["free"], 1).await.unwrap().allowed());
}

#[tokio::test]
async fn settling_says_how_every_limit_of_the_chain_stands() {
    let [free, gold, _] = plans();
    let (ann, team) = (ResolvedKey::custom("user", "ann"), ResolvedKey::custom("team", "a"));
    let mut chain = Chain::new(None);
    chain.charge(&ann, &gold, 8).unwrap();
    chain.charge(&team, &free, 1).unwrap();
    for (tokens, left, uncovered) in [
        (0, [20, 100, 10], 0),
        (1, [19, 99, 9], 0),
        (3, [17, 97, 7], 0),
        (8, [12, 92, 2], 0),
        (30, [0, 70, 0], 10),
    ] {
        let (limiter, _) = limiter();
        let decision = decided(&limiter, Ask::from(&chain)).await;
        let settled = limiter.settle(&chain, &decision, tokens).await.unwrap();
        assert_eq!(settled.uncovered, uncovered, "{tokens}");
        let standing = settled.decision.unwrap_or(decision);
        let found: Vec<_> = standing.limits().iter().map(spile_core::LimitStatus::remaining).collect();
        let looked = limiter.peek_charges(chain.charges_at(|_| Amount::ZERO)).await;
        assert_eq!(standing.limits(), looked.limits(), "what a look says, without one");
        assert_eq!(found, left, "{tokens}");
    }
}

#[tokio::test]
async fn settling_with_a_decision_about_another_chain_charges_and_does_not_panic() {
    let [free, gold, _] = plans();
    let (ann, (limiter, _)) = (ResolvedKey::custom("user", "ann"), limiter());
    let [mut asked, mut charged] = [(); 2].map(|()| Chain::new(None));
    asked.charge(&ann, &free, 1).unwrap();
    charged.charge(&ann, &gold, 1).unwrap();
    let decision = decided(&limiter, Ask::from(&asked)).await;
    let settled = limiter.settle(&charged, &decision, 5).await.unwrap();
    assert_eq!(settled.uncovered, 0);
    assert_eq!(limiter.peek_charges(charged.charges_at(|_| Amount::ZERO)).await.limits()[1].remaining(), 96);
}

#[tokio::test]
async fn settling_tells_every_limit_as_the_decision_scaled_it() {
    let chain = |gold: &Plan, free: &Plan| {
        let mut chain = Chain::new(None);
        chain.charge(&ResolvedKey::custom("user", "ann"), gold, 4).unwrap();
        chain.charge(&ResolvedKey::custom("team", "a"), free, 1).unwrap();
        chain
    };
    let [free, gold, _] = plans();
    let halves = [("burst", Limit::per_second(5).burst(10)), ("daily", Limit::per_day(50))];
    let half_gold = Plan::chain("gold", halves).unwrap();
    let half_free = Plan::new("free", Limit::per_second(1).burst(5)).unwrap();
    for (tokens, left) in
        [(0, [10, 50, 5]), (1, [9, 49, 4]), (2, [8, 48, 3]), (4, [6, 46, 1]), (8, [2, 42, 0])]
    {
        let (limiter, _) = limiter();
        let decision = decided(&limiter, Ask::from(&chain(&half_gold, &half_free))).await;
        let settled = limiter.settle(&chain(&gold, &free), &decision, tokens).await.unwrap();
        let standing = settled.decision.unwrap();
        let limits =
            |decision: &Decision| decision.limits().iter().map(|status| *status.limit()).collect::<Vec<_>>();
        assert_eq!(limits(&standing), limits(&decision), "{tokens}");
        let found: Vec<_> = standing.limits().iter().map(spile_core::LimitStatus::remaining).collect();
        assert_eq!(found, left, "{tokens}");
    }
}

#[tokio::test]
async fn several_plans_are_one_chain() {
    let (limiter, _) = limiter();
    let decision = limiter.allow("ann", ["gold", "extra"], 5).await.unwrap();
    let names: Vec<_> = decision.limits().iter().map(|limit| limit.name().as_str()).collect();
    assert_eq!(names, ["gold/burst", "gold/daily", "extra"]);
    assert_eq!(decision.binding().name().as_str(), "gold/burst");
}

#[tokio::test]
async fn a_plan_that_is_named_twice_is_charged_once() {
    let (limiter, _) = limiter();
    let decision = limiter.allow("ann", ["free", "free"], 3).await.unwrap();
    assert_eq!(decision.limits().len(), 1);
    assert_eq!(decision.remaining(), 7);
}

#[tokio::test]
async fn questions_that_cannot_be_answered_are_typed_errors_and_cost_nothing() {
    let (limiter, _) = limiter();
    let ask = |plans: &'static [&'static str], cost| limiter.allow("ann", plans, cost);
    assert_eq!(ask(&["silver"], 1).await, Err(LimiterError::UnknownPlan("silver".to_owned())));
    assert!(matches!(
        ask(&["free"], 11).await,
        Err(LimiterError::Charge(ChargeError::CostAboveCapacity { .. }))
    ));
    assert!(matches!(ask(&["free"], u64::MAX).await, Err(LimiterError::Cost(_))));
    assert!(matches!(ask(&[], 1).await, Err(LimiterError::Charge(ChargeError::Empty))));
    assert!(matches!(ask(&["free", "silver"], 1).await, Err(LimiterError::UnknownPlan(_))));
    assert_eq!(limiter.allow("", ["free"], 1).await, Err(LimiterError::Key(KeyError::Empty)));
    assert_eq!(limiter.peek("ann", ["free"], 1).await.unwrap().remaining(), 10);
}

#[tokio::test]
async fn peek_refund_reset_and_partial_spends_work_by_plan() {
    let (limiter, _) = limiter();
    let granted = limiter.spend_up_to("ann", ["free"], 1_000).await.unwrap();
    assert_eq!([granted.granted, granted.decision.remaining()], [10, 0]);
    assert_eq!(limiter.spend_up_to("ann", ["free"], 1).await.unwrap().granted, 0);
    assert_eq!(limiter.refund("ann", ["free"], 4, None).await.unwrap().remaining(), 4);
    assert!(limiter.peek("ann", ["free"], 4).await.unwrap().allowed());
    assert!(!limiter.peek("ann", ["free"], 5).await.unwrap().allowed());
    limiter.reset("ann", ["free"]).await.unwrap();
    assert_eq!(limiter.peek("ann", ["free"], 0).await.unwrap().remaining(), 10);
}

#[tokio::test]
async fn a_refund_with_an_id_is_given_once_and_says_when_it_had_been() {
    let (limiter, _) = limiter();
    assert_eq!(limiter.allow("ann", ["free"], 8).await.unwrap().remaining(), 2);
    for given in [true, false, false] {
        let refunded = limiter.refund_once("ann", ["free"], 3, None, "order 7").await.unwrap();
        assert_eq!((refunded.given, refunded.decision.remaining()), (given, Amount::from(5)));
    }
    let why = limiter.refund_once("ann", ["free"], 3, None, "").await.unwrap_err();
    assert_eq!(why.to_string(), "the id of a refund has 0 bytes; it takes 1 to 128");
}

#[tokio::test]
async fn a_replaced_plan_takes_effect_on_the_next_decision_and_tokens_carry_over() {
    let registry = Arc::new(InMemoryPlans::new(plans()));
    let store = MemoryStore::builder().clock(FakeClock::default()).build();
    let limiter = RateLimiter::builder().store(store).registry(Arc::clone(&registry)).build();
    assert_eq!(limiter.allow("ann", ["free"], 4).await.unwrap().remaining(), 6);
    registry.put(&Plan::new("free", Limit::per_second(1).burst(100)).unwrap());
    assert_eq!(limiter.allow("ann", ["free"], 1).await.unwrap().remaining(), 5);
    registry.put(&Plan::new("free", Limit::per_second(1).burst(3)).unwrap());
    assert_eq!(limiter.allow("ann", ["free"], 1).await.unwrap().remaining(), 2, "clamped to three, less one");
}

#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<(String, bool, Reason)>>>);

impl Observer for Heard {
    fn decided(&self, observed: &Observed<'_>) {
        let (key, decision) = (observed.key().expect("somebody pays"), observed.decision());
        self.0.lock().push((key.as_str().to_owned(), decision.allowed(), decision.reason()));
    }
}

#[tokio::test]
async fn observers_hear_of_every_decision_and_who_pays() {
    let heard = Heard::default();
    let store = MemoryStore::builder().clock(FakeClock::default()).build();
    let limiter = RateLimiter::builder().store(store).plans(plans()).observer(heard.clone()).build();
    let _ = limiter.allow("ann", ["free"], 10).await.unwrap();
    let _ = limiter.allow("ann", ["free"], 1).await.unwrap();
    assert_eq!(
        *heard.0.lock(),
        [("ann".to_owned(), true, Reason::Ok), ("ann".to_owned(), false, Reason::Limited)]
    );
}

/// The rule, the tenant and every key of what it hears.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Vec<[String; 3]>>>);

impl Observer for Names {
    fn decided(&self, observed: &Observed<'_>) {
        let keys: Vec<_> = observed.keys().map(|key| key.as_str().to_owned()).collect();
        let name = |name: Option<&str>| name.unwrap_or("-").to_owned();
        self.0.lock().push([name(observed.rule()), name(observed.tenant()), keys.join(" ")]);
    }
}

#[tokio::test]
async fn observers_are_told_the_rule_the_tenant_and_each_key_that_pays() {
    let names = Names::default();
    let store = MemoryStore::builder().clock(FakeClock::default()).build();
    let limiter = RateLimiter::builder().store(store).plans(plans()).observer(names.clone()).build();
    let charges = limiter.charges("ann", ["gold"], 1).unwrap();
    let _decision = decided(&limiter, Ask::from(charges.clone())).await;
    let _decision = decided(&limiter, Ask::from(charges).rule("login").tenant("acme")).await;
    assert_eq!(*names.0.lock(), [["-", "-", "ann ann"], ["login", "acme", "ann ann"]]);
    assert!(names.counts().is_none(), "it hears of every decision unless it has counts of its own");
}

/// Counts what it hears of, and lets the limiter count the rest.
#[derive(Clone, Default)]
struct Counting(Arc<DecisionCounts>, Arc<Mutex<Vec<Series>>>);

impl Observer for Counting {
    fn decided(&self, observed: &Observed<'_>) {
        let series = Series::of(observed);
        assert!(self.0.add(series) || (self.0.make_room(series) && self.0.add(series)));
        self.0.pick(observed);
        self.1.lock().push(series);
    }

    fn counts(&self) -> Option<Arc<DecisionCounts>> {
        Some(Arc::clone(&self.0))
    }
}

#[tokio::test]
async fn what_an_observer_with_counts_does_not_hear_of_is_counted_for_it_exactly() {
    let counting = Counting::default();
    let store = MemoryStore::builder().clock(FakeClock::default()).build();
    let limiter = RateLimiter::builder().store(store).plans(plans()).observer(counting.clone()).build();
    for question in 0..50_000 {
        let charges = limiter.charges("ann", ["free"], 1).unwrap();
        let rule = RuleName::new(if question % 5 == 0 { "login" } else { "search" });
        let _decision = decided(&limiter, Ask::from(charges).rule(rule)).await;
    }
    let mut counts = Vec::new();
    counting.0.drain(|_, more| counts.push(more));
    counts.sort_unstable();
    assert_eq!(counts, [2, 8, 9_998, 39_992], "two rules, each let pass and denied");
    assert!(counting.1.lock().len() >= 4, "of each it hears of the first");
    counting.0.drain(|_, more| panic!("{more} were handed over twice"));
}

#[tokio::test]
async fn an_observer_with_counts_hears_of_few_that_are_like_others_before_them() {
    let counting = Counting::default();
    let store = MemoryStore::builder().clock(FakeClock::default()).build();
    let limiter = RateLimiter::builder().store(store).plans(plans()).observer(counting.clone()).build();
    for _ in 0..50_000 {
        let _decision = limiter.allow("ann", ["free"], 1).await.unwrap();
    }
    let heard = counting.1.lock().len();
    assert!((2..5_000).contains(&heard), "{heard}");
}

#[tokio::test]
async fn an_observer_with_counts_hears_of_each_decision_for_a_tenant_and_of_a_rule_that_only_watches() {
    let counting = Counting::default();
    let store = MemoryStore::builder().clock(FakeClock::default()).build();
    let limiter = RateLimiter::builder().store(store).plans(plans()).observer(counting.clone()).build();
    for _ in 0..3_000 {
        let charges = limiter.charges("ann", ["free"], 1).unwrap();
        let _decision = decided(&limiter, Ask::from(charges.clone()).tenant("acme")).await;
        let _decision = decided(&limiter, Ask::from(charges).shadow(true)).await;
    }
    assert_eq!(counting.1.lock().len(), 6_000);
}

/// A store behind a network that always lets pass. Its nodes answer in turn, each by a clock of its own.
struct Nodes {
    clock: FakeClock,
    ahead_us: [u64; 3],
    turn: AtomicUsize,
}

impl Nodes {
    fn answer(&self, charges: &Charges<'_>) -> Reply {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let at = self.clock.now().plus_us(self.ahead_us[turn % self.ahead_us.len()]);
        let full = |charge: &Charge<'_>| Bucket::full(charge.limit().limit(), at);
        Reply::new(Verdict::Done, at, charges.iter().map(full).collect())
    }
}

impl Store for Nodes {
    fn call<'a>(
        &'a self,
        _: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> Answer<impl Future<Output = Result<Reply, StoreError>> + Send + 'a> {
        Answer::Later(async move { Ok(self.answer(charges)) })
    }

    fn is_shared(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn nodes_whose_clocks_differ_do_not_make_an_observer_hear_of_more() {
    for ahead_us in [[0, 2_500, 0], [0, 60_000_000, 5_000], [3_600_000_000, 0, 10]] {
        let (counting, clock) = (Counting::default(), FakeClock::default());
        let nodes = Nodes { clock: clock.clone(), ahead_us, turn: AtomicUsize::new(0) };
        let limiter = RateLimiter::builder().store(nodes).plans(plans()).clock(clock.clone());
        let limiter = limiter.observer(counting.clone()).build();
        for _ in 0..50_000 {
            let _decision = limiter.allow("ann", ["free"], 1).await.unwrap();
            clock.advance(Duration::from_micros(10));
        }
        let heard = counting.1.lock().len();
        assert!((1_000..2_500).contains(&heard), "{heard} with nodes ahead by {ahead_us:?}");
        let mut counted = 0;
        counting.0.drain(|_, more| counted += more);
        assert_eq!(counted, 50_000);
    }
}

#[tokio::test]
async fn an_embedded_store_decides_at_once_and_one_behind_a_network_does_not() {
    let (embedded, _) = limiter();
    let charges = embedded.charges("ann", ["free"], 4).unwrap();
    assert!(!embedded.store().is_shared());
    assert_eq!(
        embedded.decide_now(&Ask::from(charges.clone())).unwrap().into_decision().unwrap().remaining(),
        6
    );
    assert_eq!(embedded.peek("ann", ["free"], 0).await.unwrap().remaining(), 6);
    let nodes = Nodes { clock: FakeClock::default(), ahead_us: [0; 3], turn: AtomicUsize::new(0) };
    let remote = RateLimiter::builder().store(nodes).plans(plans()).build();
    assert!(remote.store().is_shared());
    assert!(remote.decide_now(&Ask::from(charges)).is_none());
    assert_eq!(remote.store().turn.load(Ordering::Relaxed), 0, "it was not asked");
}

#[tokio::test]
async fn a_chain_is_charged_under_the_plans_that_the_registry_has() {
    let (limiter, _) = limiter();
    let (ann, mut chain) = (ResolvedKey::custom("user", "ann"), Chain::new(None));
    limiter.extend_chain(&mut chain, &ann, "free", 3).unwrap();
    limiter.extend_chain(&mut chain, &ann, "gold", 3).unwrap();
    let decision = decided(&limiter, Ask::from(&chain)).await;
    let left: Vec<_> =
        decision.limits().iter().map(|limit| (limit.name().as_str(), limit.remaining())).collect();
    let expected = [("free", 7), ("gold/burst", 17), ("gold/daily", 97)];
    assert_eq!(left, expected.map(|(name, left)| (name, Amount::from_tokens(left))));
    let unknown = limiter.extend_chain(&mut chain, &ann, "silver", 1);
    assert_eq!(unknown, Err(LimiterError::UnknownPlan("silver".to_owned())));
}

#[test]
fn a_limiter_is_printed_with_its_failure_policy_and_its_deadline() {
    let (limiter, _) = limiter();
    assert_eq!(format!("{limiter:?}"), "RateLimiter { on_failure: Allow, deadline: 60ms, .. }");
}

/// A limiter whose buckets refill as tokio's paused time passes.
fn paused_limiter() -> RateLimiter<MemoryStore<TokioClock>> {
    let store = MemoryStore::builder().clock(TokioClock::new()).build();
    RateLimiter::builder().store(store).plans(plans()).build()
}

#[tokio::test(start_paused = true)]
async fn until_ready_waits_exactly_as_long_as_it_must() {
    let (limiter, started) = (paused_limiter(), tokio::time::Instant::now());
    for _ in 0..13 {
        assert!(limiter.until_ready("ann", ["free"], 1, Wait::forever()).await.unwrap().allowed());
    }
    let waited = started.elapsed();
    assert!((Duration::from_secs(3)..Duration::from_millis(3_010)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn until_ready_gives_the_denial_back_at_once_where_admission_lies_beyond_the_deadline() {
    let (limiter, started) = (paused_limiter(), tokio::time::Instant::now());
    let _ = limiter.allow("ann", ["free"], 10).await.unwrap();
    let wait = Wait::at_most(Duration::from_secs(2));
    assert!(!limiter.until_ready("ann", ["free"], 5, wait).await.unwrap().allowed());
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(limiter.until_ready("ann", ["free"], 2, wait).await.unwrap().allowed());
}

#[tokio::test(start_paused = true)]
async fn jitter_spreads_those_who_wait_but_never_past_their_deadline() {
    let wait = Wait::at_most(Duration::from_millis(1_500)).with_jitter(Duration::from_millis(400));
    let mut waits = Vec::new();
    for caller in 0..8 {
        let (limiter, key) = (paused_limiter(), format!("caller {caller}"));
        let _ = limiter.allow(&key, ["free"], 10).await.unwrap();
        let started = tokio::time::Instant::now();
        assert!(limiter.until_ready(&key, ["free"], 1, wait).await.unwrap().allowed());
        waits.push(started.elapsed());
    }
    assert!(waits.iter().all(|waited| *waited <= Duration::from_millis(1_501)), "{waits:?}");
    let (soonest, latest) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
    assert!(*latest > *soonest + Duration::from_millis(20), "{waits:?} wake together");
}

#[tokio::test(start_paused = true)]
async fn endless_waits_and_jitters_do_not_overflow() {
    let limiter = paused_limiter();
    let _ = limiter.allow("ann", ["free"], 10).await.unwrap();
    let wait = Wait::at_most(Duration::from_secs(2)).with_jitter(Duration::MAX);
    assert!(limiter.until_ready("ann", ["free"], 1, wait).await.unwrap().allowed());
}

#[tokio::test]
async fn whoever_gets_no_token_learns_when_there_is_one() {
    let (limiter, clock) = limiter();
    assert_eq!(limiter.spend_up_to("ann", ["free"], 10).await.unwrap().granted, 10);
    clock.advance(Duration::from_millis(400));
    let nothing = limiter.spend_up_to("ann", ["free"], 10).await.unwrap();
    assert_eq!((nothing.granted, nothing.decision.retry_after()), (Amount::ZERO, Duration::from_millis(600)));
    let looked = limiter.spend_up_to("bob", ["free"], 0).await.unwrap();
    assert_eq!((looked.granted, looked.decision.allowed()), (Amount::ZERO, true));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_costs_nothing() {
    let limiter = paused_limiter();
    let _ = limiter.allow("ann", ["free"], 10).await.unwrap();
    let waiting = limiter.until_ready("ann", ["free"], 5, Wait::forever());
    assert!(tokio::time::timeout(Duration::from_secs(4), waiting).await.is_err());
    assert_eq!(limiter.peek("ann", ["free"], 0).await.unwrap().remaining(), 4);
}

#[test]
fn a_decision_of_a_limiter_per_key_can_outlive_it() {
    let limiter = RateLimiter::per_key(Limit::per_hour(1).burst(2)).unwrap();
    let kept = limiter.check_n("ann", 2).unwrap().into_owned();
    let denied = limiter.check("ann").unwrap().into_owned();
    drop(limiter);
    assert!(kept.allowed() && kept.limited_by().is_none());
    assert_eq!(
        (denied.allowed(), denied.reason(), denied.remaining()),
        (false, Reason::Limited, Amount::ZERO)
    );
    assert_eq!(denied.limited_by().map(LimitName::as_str), Some("per_key"));
    assert_eq!(denied.binding().limit().capacity(), 2);
    assert!(denied.retry_after() > Duration::from_secs(3_500));
}

#[test]
fn a_limiter_per_key_takes_two_lines_and_no_runtime() {
    let limiter = RateLimiter::per_key(Limit::per_hour(1).burst(2)).unwrap();
    let allowed = |key| limiter.check(key).unwrap().allowed();
    assert_eq!([allowed("ann"), allowed("ann"), allowed("ann")], [true, true, false]);
    assert!(limiter.clone().check_n("ben", 2).unwrap().allowed(), "each key has its own bucket");
    assert!(!allowed("ben"));

    assert_eq!(limiter.check("").unwrap_err(), KeyError::Empty);
    assert!(matches!(limiter.check_n("ann", 3), Err(LimiterError::Charge(_))), "it could never pass");
    assert!(RateLimiter::per_key(Limit::per_hour(0)).is_err());
}

#[test]
fn plans_are_named_one_by_one_or_as_a_list_and_without_a_future() {
    let plans = ["free", "gold"].map(|name| Plan::new(name, Limit::per_hour(100)).unwrap());
    let (free, gold) = (plans[0].name().clone(), plans[1].name().clone());
    let limiter = RateLimiter::builder().store(Arc::new(MemoryStore::new())).plans(plans).build();
    let charged = |decision: Result<Decision, LimiterError>| decision.unwrap().limits().len();
    assert_eq!(charged(limiter.try_allow("ann", "free", 1)), 1);
    assert_eq!(charged(limiter.try_allow("ann", String::from("free"), 1)), 1);
    assert_eq!(charged(limiter.try_allow("ann", &free, 1)), 1);
    assert_eq!(charged(limiter.try_allow("ann", ["free", "gold"], 1)), 2);
    assert_eq!(charged(limiter.try_allow("ann", [&free, &gold], 1)), 2);
    assert_eq!(charged(limiter.try_allow("ann", vec![free.clone(), gold], 1)), 2);
    assert_eq!(charged(limiter.try_allow("ann", &[String::from("free")][..], 1)), 1);
    assert_eq!(limiter.try_allow("ann", "free", 0).unwrap().remaining(), 93);
    let unknown = limiter.try_allow("ann", ["free", "silver"], 1);
    assert_eq!(unknown, Err(LimiterError::UnknownPlan("silver".to_owned())));
}
