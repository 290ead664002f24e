//! Tokens that are taken in advance are spent here, given back, and never too many.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use spile_core::{
    Amount, Decision, DecisionSource, InMemoryPlans, Limit, Plan, RateBuilder, Reason, Store, StoreError,
    StoreExt,
};
use spile_limiter::{Ask, RateLimiter, TokioClock};
use spile_testkit::ledger::Account;
use spile_testkit::store::{CallFault, FaultyStore, ModelStore};

use crate::network::{Clocks, RemoteStore, Trip, now};

const LEASE: Duration = Duration::from_millis(100);

fn leased(rate: u64, burst: u64) -> RateBuilder {
    Limit::per_second(rate).burst(burst).lease(LEASE)
}

/// Instances that share a store and one plan, and the clocks of all.
struct Fleet {
    clocks: Clocks,
    store: RemoteStore,
    instances: Vec<RateLimiter<RemoteStore>>,
    account: Account,
    sources: [u32; 5],
}

impl Fleet {
    fn new(instances: u64, limit: RateBuilder) -> Self {
        Self::with_plan(instances, &Plan::new("hot", limit).unwrap(), limit.build().unwrap())
    }

    fn with_plan(instances: u64, plan: &Plan, limit: Limit) -> Self {
        let clocks = Clocks::apart(instances + 1);
        let store = RemoteStore::new(&clocks);
        let instance = |machine: u64| {
            let builder = RateLimiter::builder().store(store.clone()).plans([plan.clone()]);
            builder.clock(clocks.of(usize::try_from(machine).unwrap())).build()
        };
        let instances = (1..=instances).map(instance).collect();
        Self { instances, store, clocks, account: Account::new(limit), sources: [0; 5] }
    }

    async fn ask(&mut self, instance: usize, cost: u64) -> Decision {
        let decision = self.instances[instance].allow("ann", ["hot"], cost).await.unwrap();
        let spent = if decision.allowed() { Amount::from(cost) } else { Amount::ZERO };
        // What the store decided, it decided before its answer came.
        let is_asked = decision.source() == DecisionSource::Store;
        self.account.admitted(spent, if is_asked { decision.at() } else { now(&self.clocks, 0) });
        self.sources[decision.source() as usize] += 1;
        // Background work finishes before the next question.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        decision
    }

    /// So many questions a second to each instance, for so many milliseconds.
    async fn load(&mut self, per_second: u64, ms: u64) {
        let pause = Duration::from_micros(1_000_000 / per_second);
        for _ in 0..per_second * ms / 1_000 {
            for instance in 0..self.instances.len() {
                let _ = self.ask(instance, 1).await;
            }
            self.clocks.advance(pause);
        }
    }

    /// Makes the bucket hot at the first instance, and waits until it has a lease.
    async fn warm_up(&mut self) {
        while self.instances[0].lease_stats().tokens == 0 {
            assert!(self.decisions() < 1_000, "no lease is taken");
            let _ = self.ask(0, 1).await;
        }
    }

    /// Lets time pass, also for tasks that sleep.
    async fn pass(&self, time: Duration) {
        self.clocks.advance(time);
        tokio::time::sleep(time + Duration::from_millis(1)).await;
    }

    fn here(&self, instance: usize) -> u64 {
        self.instances[instance].lease_stats().tokens
    }

    /// What the store has left.
    async fn left(&self) -> u64 {
        let charges = self.instances[0].charges("ann", ["hot"], 1).unwrap();
        let shown = self.store.model.peek(&charges).await.unwrap();
        Decision::from_outcome(&charges, &shown, DecisionSource::Store).remaining().whole_tokens()
    }

    /// What the store has left under this limit of the plan.
    async fn left_of(&self, limit: &str) -> u64 {
        let charges = self.instances[0].charges("ann", ["hot"], 1).unwrap();
        let shown = self.store.model.peek(&charges).await.unwrap();
        let shown = Decision::from_outcome(&charges, &shown, DecisionSource::Store);
        shown
            .limits()
            .iter()
            .find(|status| status.name().as_str() == limit)
            .unwrap()
            .remaining()
            .whole_tokens()
    }

    fn decisions(&self) -> u32 {
        self.sources.iter().sum()
    }
}

/// The decision about a question with charges.
async fn decided<'a, S: Store + 'static>(limiter: &'a RateLimiter<S>, ask: impl Into<Ask<'a>>) -> Decision {
    limiter.decide(ask).await.into_decision().expect("it has charges")
}

/// A limiter may outlive a runtime, as one in a `static` does in tests.
#[test]
fn what_is_left_of_a_lease_is_returned_by_a_later_runtime_if_its_own_has_ended() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (first, second) = (runtime(), runtime());
    let mut fleet = Fleet::new(1, leased(10, 1_000));
    first.block_on(fleet.warm_up());
    let leased = fleet.here(0);
    drop(first);
    second.block_on(async {
        fleet.pass(2 * LEASE).await;
        assert_eq!(fleet.here(0), leased, "nobody has asked since");
        assert!(fleet.instances[0].allow("bob", ["hot"], 1).await.unwrap().allowed());
        fleet.pass(2 * LEASE).await;
        assert_eq!(fleet.here(0), 0);
        assert_eq!(fleet.instances[0].lease_stats().returned, leased);
        fleet.warm_up().await;
        fleet.pass(2 * LEASE).await;
        assert_eq!(fleet.here(0), 0, "the next lease of this bucket is returned, too");
    });
}

#[tokio::test]
async fn a_saturated_bucket_gives_what_it_has_and_not_more_with_few_calls() {
    for (instances, per_second) in [(1, 20_000), (3, 8_000), (3, 4_000)] {
        let mut fleet = Fleet::new(instances, leased(10_000, 10_000));
        fleet.store.takes(Trip { there: Duration::from_micros(100), back: Duration::from_micros(100) });
        fleet.load(per_second, 6_000).await;
        let (calls, used) = (fleet.store.calls(), fleet.account.entitlement_used());
        assert!(fleet.account.overdrawn() <= 0.0);
        assert!(used >= 0.98, "{used} of the entitlement");
        assert!(fleet.decisions() > 20 * calls);
    }
}

#[tokio::test]
async fn a_bucket_with_enough_for_all_denies_no_one() {
    for (instances, per_second) in [(1, 8_000), (1, 1_000), (3, 2_000), (3, 200)] {
        let mut fleet = Fleet::new(instances, leased(10_000, 10_000));
        fleet.store.takes(Trip { there: Duration::from_micros(100), back: Duration::from_micros(100) });
        fleet.load(per_second, 3_000).await;
        assert!(fleet.decisions() > 3 * fleet.store.calls(), "{} calls", fleet.store.calls());
        assert!(fleet.account.overdrawn() <= 0.0);
        let denied = f64::from(fleet.decisions()) - fleet.account.tokens_admitted();
        assert!(denied.abs() < 1e-6, "{denied} were denied");
    }
}

#[tokio::test]
async fn a_bucket_that_is_rarely_asked_for_has_no_lease() {
    let mut fleet = Fleet::new(1, leased(1_000, 1_000));
    fleet.load(50, 2_000).await;
    assert_eq!(fleet.store.calls(), fleet.decisions());
    assert_eq!(fleet.instances[0].lease_stats().portions, 0);
}

#[tokio::test]
async fn a_lease_says_where_it_comes_from_and_what_is_left_in_all() {
    let mut fleet = Fleet::new(1, leased(10, 1_000));
    fleet.warm_up().await;
    let (calls, spent) = (fleet.store.calls(), u64::from(fleet.decisions()));
    let decision = fleet.ask(0, 1).await;
    assert_eq!((decision.source(), decision.reason()), (DecisionSource::Lease, Reason::Ok));
    assert_eq!(decision.remaining(), 1_000 - spent - 1);
    assert_eq!(decision.at(), now(&fleet.clocks, 0), "times are those of the store");
    assert_eq!(fleet.store.calls(), calls);
    let shown = fleet.instances[0].peek("ann", ["hot"], 1).await.unwrap();
    assert_eq!(shown.remaining(), decision.remaining(), "a look shows what is here too");
}

#[tokio::test]
async fn no_more_than_a_tenth_of_what_is_left_is_here_unless_another_part_is_set() {
    let mut fleet = Fleet::new(1, leased(1, 1_000));
    fleet.load(5_000, 50).await;
    assert!(fleet.here(0) <= 100);
    let store = RemoteStore::new(&fleet.clocks);
    let plan = Plan::new("hot", leased(1, 1_000)).unwrap();
    let builder = RateLimiter::builder().store(store).plans([plan]).clock(fleet.clocks.of(1));
    fleet.instances[0] = builder.lease_share(0.02).build();
    for _ in 0..50 {
        let _ = fleet.ask(0, 1).await;
        assert!(fleet.here(0) <= 20);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_goes_back_when_the_lease_ends() {
    let mut fleet = Fleet::new(2, leased(1, 1_000));
    fleet.warm_up().await;
    let (here, left) = (fleet.here(0), fleet.left().await);
    assert_eq!(here + left + u64::from(fleet.decisions()), 1_000);
    fleet.pass(LEASE).await;
    assert_eq!((fleet.here(0), fleet.left().await), (0, left + here));
    let stats = fleet.instances[0].lease_stats();
    assert_eq!((stats.buckets, stats.returned), (0, here));
    let _ = fleet.ask(0, 1).await;
    assert_eq!(fleet.here(0) + fleet.left().await, left + here - 1);
}

#[tokio::test]
async fn all_leases_go_back_before_the_process_ends() {
    let mut fleet = Fleet::new(1, leased(1, 1_000));
    fleet.warm_up().await;
    fleet.instances[0].return_leases().await;
    assert_eq!(fleet.here(0), 0);
    assert_eq!(fleet.left().await + u64::from(fleet.decisions()), 1_000);
}

#[tokio::test(start_paused = true)]
async fn all_leases_return_at_once_however_many_there_are_and_far_away_the_store_is() {
    let clock = TokioClock::new();
    let store = Arc::new(FaultyStore::new(ModelStore::new(clock), |_| CallFault::None));
    let plans = [Plan::new("hot", leased(1, 1_000)).unwrap()];
    let limiter = RateLimiter::builder().store(Arc::clone(&store)).plans(plans).clock(clock).build();
    for key in 0..640 {
        for _ in 0..20 {
            assert!(limiter.allow(&key.to_string(), "hot", 1).await.unwrap().allowed());
        }
        tokio::task::yield_now().await;
    }
    let leased = limiter.lease_stats();
    assert_eq!(leased.buckets, 640);
    store.set_fault(CallFault::Delay(Duration::from_millis(55)));
    let started = tokio::time::Instant::now();
    limiter.return_leases().await;
    assert!(started.elapsed() < Duration::from_millis(70), "{:?}", started.elapsed());
    assert_eq!(limiter.lease_stats().returned, leased.tokens);
}

#[tokio::test]
async fn an_instance_that_dies_takes_one_portion_with_it() {
    let mut fleet = Fleet::new(2, leased(1, 1_000));
    fleet.warm_up().await;
    let here = fleet.here(0);
    assert!(here <= 100);
    fleet.instances.remove(0);
    let left = fleet.left().await;
    for _ in 0..left {
        assert!(fleet.ask(0, 1).await.allowed());
    }
    assert!(!fleet.ask(0, 1).await.allowed());
    assert_eq!(left + here + u64::from(fleet.decisions()) - left - 1, 1_000);
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_down_leases_serve_until_they_end() {
    let mut fleet = Fleet::new(1, leased(1, 1_000));
    fleet.warm_up().await;
    fleet.store.set_down(true);
    assert_eq!(fleet.ask(0, 1).await.reason(), Reason::Ok);
    fleet.pass(LEASE).await;
    assert_eq!(fleet.ask(0, 1).await.reason(), Reason::FailOpen);
    fleet.store.set_down(false);
    assert_eq!(fleet.ask(0, 1).await.source(), DecisionSource::Store);
}

#[tokio::test]
async fn a_store_that_has_lost_its_buckets_gets_no_more_than_a_portion_spent_twice() {
    let mut fleet = Fleet::new(1, leased(1, 1_000));
    fleet.warm_up().await;
    let here = fleet.here(0);
    let charges = fleet.instances[0].charges("ann", ["hot"], 1).unwrap();
    fleet.store.model.reset(&charges).await.unwrap();
    let mut allowed = 0;
    while fleet.ask(0, 1).await.allowed() {
        allowed += 1;
    }
    assert!((1_000..=1_000 + here).contains(&allowed), "{allowed}");
}

#[tokio::test]
async fn a_reset_leaves_nothing_here() {
    let mut fleet = Fleet::new(1, leased(1, 1_000));
    fleet.warm_up().await;
    fleet.instances[0].reset("ann", ["hot"]).await.unwrap();
    assert_eq!((fleet.here(0), fleet.left().await), (0, 1_000));
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_was_not_sent_leaves_the_tokens_and_one_that_may_have_run_does_not() {
    let clock = TokioClock::new();
    let store = FaultyStore::new(ModelStore::new(clock), |_| CallFault::None);
    let hot = Plan::new("hot", leased(1, 1_000)).unwrap();
    let limiter = RateLimiter::builder().store(store).plans([hot]).clock(clock).build();
    while limiter.lease_stats().tokens == 0 {
        assert!(limiter.allow("ann", "hot", 1).await.unwrap().allowed());
        tokio::task::yield_now().await;
    }
    let here = limiter.lease_stats().tokens;
    for (fault, left) in [(StoreError::BreakerOpen, here), (StoreError::TimedOut(LEASE), 0)] {
        limiter.store().set_fault(CallFault::Fail(fault));
        limiter.reset("ann", "hot").await.unwrap_err();
        assert_eq!(limiter.lease_stats().tokens, left);
    }
}

#[tokio::test]
async fn a_leased_bucket_that_is_drained_or_in_debt_denies_a_cost_of_zero() {
    for used_later in [0, 500] {
        let mut fleet = Fleet::new(1, leased(1, 1_000));
        fleet.warm_up().await;
        let all = fleet.here(0) + fleet.left().await;
        assert!(fleet.ask(0, all).await.allowed());
        fleet.instances[0].charge("ann", ["hot"], used_later).await.unwrap();
        for _ in 0..20 {
            let denied = fleet.ask(0, 0).await;
            assert_eq!((denied.allowed(), denied.limited_by().is_some()), (false, true));
            assert_eq!(denied.retry_after(), Duration::from_secs(used_later + 1), "until there is one token");
            assert!(!fleet.instances[0].peek("ann", ["hot"], 0).await.unwrap().allowed());
        }
    }
}

#[tokio::test]
async fn leased_tokens_cover_nothing_while_the_bucket_owes_more_than_they_are() {
    let mut fleet = Fleet::new(1, leased(1, 1_000));
    fleet.warm_up().await;
    let all = fleet.here(0) + fleet.left().await;
    assert!(fleet.here(0) > 0);
    fleet.instances[0].charge("ann", ["hot"], all + 5).await.unwrap();
    for cost in [0, 1] {
        let denied = fleet.ask(0, cost).await;
        assert!(!denied.allowed() && denied.retry_after() >= Duration::from_secs(6), "{cost}");
        assert!(!fleet.instances[0].peek("ann", ["hot"], cost).await.unwrap().allowed());
    }
}

#[tokio::test]
async fn questions_of_cost_zero_whose_use_is_charged_later_are_limited_by_a_lease_too() {
    let mut fleet = Fleet::new(1, leased(1, 60));
    fleet.warm_up().await;
    let left = fleet.here(0) + fleet.left().await;
    let mut passed = 0;
    for _ in 0..40 {
        if fleet.ask(0, 0).await.allowed() {
            passed += 1;
            fleet.instances[0].charge("ann", ["hot"], 3).await.unwrap();
        }
    }
    assert_eq!(passed, left.div_ceil(3));
}

#[tokio::test]
async fn a_peek_and_a_question_of_cost_zero_agree_at_every_level_of_a_leased_bucket() {
    let mut fleet = Fleet::new(1, leased(1, 200));
    let mut denied = 0;
    for _ in 0..230 {
        let shown = fleet.instances[0].peek("ann", ["hot"], 0).await.unwrap();
        let asked = fleet.ask(0, 0).await;
        assert_eq!(asked.allowed(), shown.allowed(), "{} are left", shown.remaining());
        denied += u32::from(!asked.allowed());
        let _ = fleet.ask(0, 1).await;
    }
    assert_eq!(denied, 30);
}

/// An instance whose plan can be changed, with a lease under 1000 tokens a second.
async fn changing() -> (Fleet, Arc<InMemoryPlans>) {
    let mut fleet = Fleet::new(2, leased(1_000, 1_000));
    let registry = Arc::new(InMemoryPlans::new([Plan::new("hot", leased(1_000, 1_000)).unwrap()]));
    let builder = RateLimiter::builder().store(fleet.store.clone()).registry(Arc::clone(&registry));
    fleet.instances[0] = builder.clock(fleet.clocks.of(1)).build();
    // Of a bucket that is nearly full nothing would go back.
    assert!(fleet.ask(1, 600).await.allowed());
    fleet.warm_up().await;
    assert!(fleet.here(0) > 0);
    (fleet, registry)
}

/// Takes everything that the store has under this limit.
async fn drain(fleet: &Fleet, limit: RateBuilder) {
    let plan = Plan::new("hot", limit).unwrap();
    let other = RateLimiter::builder().store(fleet.store.clone()).plans([plan]).build();
    assert!(other.spend_up_to("ann", ["hot"], 1_000).await.unwrap().granted > Amount::from(300));
}

#[tokio::test(start_paused = true)]
async fn tokens_leased_under_a_limit_that_has_changed_since_are_dropped() {
    let per_hour = Limit::per_hour(1_000);
    for (tightened, asks_again) in
        [(per_hour.lease(LEASE), false), (per_hour.lease(LEASE), true), (per_hour, false)]
    {
        let (mut fleet, registry) = changing().await;
        registry.put(&Plan::new("hot", tightened).unwrap());
        drain(&fleet, tightened).await;
        if asks_again {
            assert!(!fleet.ask(0, 1).await.allowed(), "what is here is of another limit");
            assert_eq!(fleet.here(0), 0);
        }
        fleet.pass(LEASE).await;
        fleet.pass(LEASE).await;
        assert_eq!((fleet.here(0), fleet.left().await), (0, 0), "a fifth of a second brings no token");
        assert_eq!(fleet.instances[0].lease_stats().returned, 0);
    }
}

#[tokio::test]
async fn a_process_that_ends_returns_no_tokens_of_a_former_limit() {
    let (fleet, registry) = changing().await;
    registry.put(&Plan::new("hot", Limit::per_hour(1_000).lease(LEASE)).unwrap());
    drain(&fleet, Limit::per_hour(1_000)).await;
    fleet.instances[0].return_leases().await;
    assert_eq!((fleet.here(0), fleet.left().await), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn tokens_of_limits_outside_the_registry_go_back_only_while_they_are_known_to_be_in_force() {
    let (per_second, per_hour) = (leased(1, 1_000), Limit::per_hour(1_000).lease(LEASE));
    for (limit, is_confirmed) in [(per_second, true), (per_second, false), (per_hour, false)] {
        let fleet = Fleet::new(1, per_second);
        let limiter = RateLimiter::builder().store(fleet.store.clone()).clock(fleet.clocks.of(1)).build();
        let charged = fleet.instances[0].charges("ann", ["hot"], 1).unwrap();
        while limiter.lease_stats().tokens == 0 {
            let _ = decided(&limiter, charged.clone()).await;
            tokio::task::yield_now().await;
        }
        limiter.limits_changed();
        if is_confirmed {
            assert_eq!(decided(&limiter, charged.clone()).await.source(), DecisionSource::Lease);
        } else {
            drain(&fleet, limit).await;
        }
        let here = limiter.lease_stats().tokens;
        fleet.pass(LEASE).await;
        let stats = limiter.lease_stats();
        assert_eq!((stats.tokens, stats.returned), (0, if is_confirmed { here } else { 0 }));
    }
}

#[tokio::test]
async fn a_plan_that_loses_its_lease_asks_the_store() {
    let (mut fleet, registry) = changing().await;
    registry.put(&Plan::new("hot", Limit::per_second(1_000)).unwrap());
    assert_eq!(fleet.ask(0, 1).await.source(), DecisionSource::Store);
}

fn user_and_all() -> Plan {
    Plan::chain("hot", [("user", Limit::per_second(1).burst(30)), ("all", leased(10, 1_000))]).unwrap()
}

#[tokio::test]
async fn a_chain_asks_the_store_for_what_has_no_lease_and_a_denial_leaves_the_lease_as_it_was() {
    let plan = user_and_all();
    let mut fleet = Fleet::with_plan(1, &plan, *plan.limits()[0].limit());
    fleet.warm_up().await;
    let warm = u64::from(fleet.decisions());
    for spent in warm + 1..=30 {
        let decision = fleet.ask(0, 1).await;
        assert_eq!((decision.allowed(), decision.source()), (true, DecisionSource::Store));
        let remaining: Vec<_> = decision.limits().iter().map(spile_core::LimitStatus::remaining).collect();
        assert_eq!(remaining, [30 - spent, 1_000 - spent]);
    }
    let here = fleet.here(0);
    assert!(here > 0);
    for _ in 0..5 {
        let denied = fleet.ask(0, 1).await;
        assert_eq!(denied.limited_by().unwrap().as_str(), "hot/user");
        assert_eq!(denied.limits()[1].remaining(), 970);
        assert_eq!(fleet.here(0), here);
    }
}

#[tokio::test]
async fn a_chain_of_leases_needs_no_store() {
    let plan = Plan::chain("hot", [("user", leased(1, 500)), ("all", leased(10, 1_000))]).unwrap();
    let mut fleet = Fleet::with_plan(1, &plan, *plan.limits()[0].limit());
    for _ in 0..20 {
        assert!(fleet.ask(0, 1).await.allowed());
    }
    let calls = fleet.store.calls();
    let decision = fleet.ask(0, 1).await;
    assert_eq!((decision.source(), fleet.store.calls()), (DecisionSource::Lease, calls));
    let remaining: Vec<_> = decision.limits().iter().map(spile_core::LimitStatus::remaining).collect();
    assert_eq!(remaining, [479, 979]);
}

#[tokio::test]
async fn a_cost_above_what_is_here_is_paid_from_both() {
    let mut fleet = Fleet::new(1, leased(1, 1_000));
    fleet.warm_up().await;
    let all = fleet.here(0) + fleet.left().await;
    assert!(fleet.ask(0, all).await.allowed(), "everything that is left anywhere");
    assert_eq!((fleet.here(0), fleet.left().await), (0, 0));
    assert!(!fleet.ask(0, 1).await.allowed());
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_what_was_set_aside_for_it() {
    let plan = user_and_all();
    let mut fleet = Fleet::with_plan(1, &plan, *plan.limits()[0].limit());
    fleet.warm_up().await;
    let here = fleet.here(0);
    let charges = fleet.instances[0].charges("ann", ["hot"], 1).unwrap();
    let asked = decided(&fleet.instances[0], charges);
    drop(asked);
    assert_eq!(fleet.here(0), here);
}

#[tokio::test]
async fn a_full_bucket_can_be_spent_at_once_however_hot_it_is() {
    let mut fleet = Fleet::new(1, leased(1_000, 10_000));
    fleet.store.takes(Trip { there: Duration::from_micros(100), back: Duration::from_micros(100) });
    fleet.load(2_000, 500).await;
    let left = fleet.left().await + fleet.here(0);
    let mut allowed = 0;
    while fleet.ask(0, 1).await.allowed() {
        allowed += 1;
    }
    // Of a bucket that is nearly empty, the last tenth is handed out in portions.
    assert!(allowed >= left * 9 / 10, "{allowed} of {left}");
    assert!(fleet.account.overdrawn() <= 0.0);
}

/// What happens to a fleet: a burst of questions at one instance, then a pause.
#[derive(Clone, Debug)]
struct Burst {
    instance: usize,
    questions: u32,
    cost: u64,
    pause_us: u64,
    trip_us: u64,
}

fn bursts(longest_pause_us: u64) -> impl Strategy<Value = Vec<Burst>> {
    let cost = prop_oneof![8 => 1..4_u64, 1 => 1..5_000_u64];
    let pause = prop_oneof![3 => 0..30_000_u64, 1 => 0..longest_pause_us];
    let burst = (0..3_usize, 1..60_u32, cost, pause, 0..1_500_u64).prop_map(
        |(instance, questions, cost, pause_us, trip_us)| Burst {
            instance,
            questions,
            cost,
            pause_us,
            trip_us,
        },
    );
    prop::collection::vec(burst, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_period_gives_more_than_the_capacity_and_its_refill(
        rate in 1..20_000_u64,
        capacity in 4..5_000_u64,
        lease_ms in prop_oneof![Just(100_u64), 5..3_000_u64],
        bursts in bursts(2_000_000),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let overdrawn = runtime.block_on(async {
            let limit = Limit::per_second(rate).burst(capacity).lease(Duration::from_millis(lease_ms));
            let mut fleet = Fleet::new(3, limit);
            for Burst { instance, questions, cost, pause_us, trip_us } in bursts {
                let trip = Duration::from_micros(trip_us);
                fleet.store.takes(Trip { there: trip, back: trip });
                for _ in 0..questions {
                    let _ = fleet.ask(instance, cost.min(capacity)).await;
                }
                fleet.pass(Duration::from_micros(pause_us)).await;
            }
            fleet.account.overdrawn()
        });
        prop_assert!(overdrawn <= 0.0, "overdrawn by {overdrawn}");
    }
}

#[tokio::test]
async fn what_is_set_aside_when_a_bucket_is_reset_does_not_come_back() {
    let plan = user_and_all();
    let mut fleet = Fleet::with_plan(1, &plan, *plan.limits()[0].limit());
    fleet.warm_up().await;
    let limiter = fleet.instances[0].clone();
    let charges = limiter.charges("ann", ["hot"], 1).unwrap();
    // Polled once: the tokens are set aside, and the store is being asked.
    fleet.store.set_hanging(true);
    let mut asked = Box::pin(decided(&limiter, charges));
    assert!(futures_now(asked.as_mut()).await.is_none());
    fleet.store.set_hanging(false);
    limiter.reset("ann", ["hot"]).await.unwrap();
    drop(asked);
    assert_eq!(fleet.here(0), 0);
    for _ in 0..5 {
        assert!(fleet.ask(0, 1).await.allowed());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_put_back_late_still_goes_back_to_the_store() {
    let plan = user_and_all();
    let mut fleet = Fleet::with_plan(1, &plan, *plan.limits()[0].limit());
    fleet.warm_up().await;
    let all = fleet.here(0) + fleet.left_of("hot/all").await;
    let limiter = fleet.instances[0].clone();
    fleet.store.set_hanging(true);
    let charges = limiter.charges("ann", ["hot"], 1).unwrap();
    let mut asked = Box::pin(decided(&limiter, charges));
    assert!(futures_now(asked.as_mut()).await.is_none());
    fleet.store.set_hanging(false);
    drop(asked);
    fleet.pass(LEASE).await;
    fleet.pass(LEASE).await;
    // Two tokens come back in two tenths of a second.
    assert_eq!((fleet.here(0), fleet.left_of("hot/all").await), (0, all + 2));
}

/// What a future says if it is asked once.
async fn futures_now<T>(mut future: std::pin::Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        std::task::Poll::Ready(answer) => std::task::Poll::Ready(Some(answer)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

/// Asks this often at each instance, at a cost, while calls take this long there and back.
async fn ask_all(fleet: &mut Fleet, bursts: &[(usize, u32, u64, u64)]) {
    for &(instance, questions, cost, trip_us) in bursts {
        let trip = Duration::from_micros(trip_us);
        fleet.store.takes(Trip { there: trip, back: trip });
        for _ in 0..questions {
            let _ = fleet.ask(instance, cost).await;
        }
    }
}

/// The lease has more tokens than the bucket has room, and a denied question sets a part of them aside.
#[tokio::test(start_paused = true)]
async fn tokens_that_return_from_a_denied_question_share_the_room_of_the_rest() {
    let mut fleet = Fleet::new(2, Limit::per_second(958).burst(1_331).lease(Duration::from_millis(550)));
    ask_all(&mut fleet, &[(1, 10, 1, 458), (1, 2, 1_328, 833)]).await;
    fleet.pass(Duration::from_micros(12_382)).await;
    ask_all(&mut fleet, &[(0, 31, 1, 211)]).await;
    assert!(fleet.account.overdrawn() <= 0.0);
}

#[tokio::test(start_paused = true)]
async fn tokens_that_are_set_aside_take_room_from_the_rest() {
    let mut fleet = Fleet::new(1, Limit::per_second(958).burst(1_331).lease(Duration::from_millis(550)));
    ask_all(&mut fleet, &[(0, 10, 1, 458)]).await;
    let leased = fleet.here(0);
    fleet.store.set_hanging(true);
    let limiter = fleet.instances[0].clone();
    let mut asked = Box::pin(limiter.allow("ann", ["hot"], 1_300));
    assert!(futures_now(asked.as_mut()).await.is_none());
    let rest = fleet.here(0);
    assert!(rest > 0 && rest < leased, "{rest} of {leased}");
    // The bucket gains a few tokens meanwhile, and may be drained by the question in flight.
    fleet.clocks.advance(Duration::from_millis(5));
    let mut second = Box::pin(limiter.allow("ann", ["hot"], rest));
    assert!(futures_now(second.as_mut()).await.is_none(), "the rest was spent, too");
}
