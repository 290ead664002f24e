//! Permits as a holder meets them: renewed while they are used, released once, and lost only if the holder is told.

#![allow(clippy::disallowed_methods, reason = "tests run on tokio itself")]

use std::sync::Arc;
use std::time::Duration;

use spile_core::{Amount, FailurePolicy, Limit, Plan, Reason, StoreError, StoreExt};
use spile_limiter::{AcquireError, Ask, LimiterError, RateLimiter, RateLimiterBuilder, TokioClock, Wait};
use spile_policy::Chain;
use spile_testkit::store::{CallFault, FaultyStore, ModelStore};

type Model = Arc<ModelStore<TokioClock>>;
type Remote = Arc<FaultyStore<Model>>;

const HOLD: Duration = Duration::from_secs(3);

fn plans() -> [Plan; 3] {
    let jobs = |permits| Limit::concurrent(permits).hold(HOLD).build().expect("a limit");
    let mixed = [("rate", Limit::per_day(1).burst(3).build().expect("a limit")), ("jobs", jobs(2))];
    [
        Plan::new("one", jobs(1)).expect("a plan"),
        Plan::chain("mixed", mixed).expect("a plan"),
        Plan::new("free", Limit::per_second(1)).expect("a plan"),
    ]
}

/// A store behind a network, and what is behind it.
fn remote() -> (Remote, Model, TokioClock) {
    let clock = TokioClock::new();
    let model = Arc::new(ModelStore::new(clock));
    (Arc::new(FaultyStore::new(Arc::clone(&model), |_| CallFault::None)), model, clock)
}

fn limiter_of(remote: &Remote, clock: TokioClock) -> RateLimiterBuilder<Remote> {
    RateLimiter::builder().store(Arc::clone(remote)).plans(plans()).clock(clock)
}

fn down() -> CallFault {
    CallFault::Fail(StoreError::BreakerOpen)
}

/// How many places of `ann` are taken.
fn held(model: &Model, limit: &str) -> usize {
    model.permits("ann", limit).len()
}

async fn settle_down() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn denial(answer: Result<spile_limiter::Permit, AcquireError>) -> spile_core::Decision {
    answer.expect_err("it is denied").decision().expect("a decision").clone()
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_held_until_it_is_dropped() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let permit = limiter.acquire("ann", "one").await.unwrap();
    let denied = denial(limiter.acquire("ann", "one").await);
    assert_eq!(denied.limited_by().map(ToString::to_string).as_deref(), Some("one"));
    assert_eq!((denied.remaining(), denied.retry_after()), (Amount::ZERO, Duration::from_secs(1)));
    assert_eq!(limiter.permit_stats().values().map(|counts| counts.held).sum::<u64>(), 1);
    drop(permit);
    settle_down().await;
    assert_eq!(held(&model, "one"), 0);
    let permit = limiter.acquire("ann", "one").await.unwrap();
    permit.release().await.unwrap();
    assert_eq!(held(&model, "one"), 0, "a release that is waited for is done");
    let counts = limiter.permit_stats().into_values().next().unwrap();
    assert_eq!((counts.held, counts.acquired, counts.released, counts.lost), (0, 2, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_permit_renews_itself_for_as_long_as_it_is_used() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let permit = limiter.acquire("ann", "mixed").await.unwrap();
    for _ in 0..50 {
        tokio::time::sleep(HOLD).await;
        assert!(permit.is_held());
        assert_eq!(held(&model, "mixed/jobs"), 1);
    }
    let calls = remote.calls();
    assert!((100..=250).contains(&calls), "a renewal for each third of the hold time: {calls}");
    assert_eq!(limiter.peek("ann", "mixed", 1).await.unwrap().limits()[0].remaining(), 2, "no more tokens");
    drop(permit);
    tokio::time::sleep(HOLD).await;
    let calls = remote.calls();
    tokio::time::sleep(10 * HOLD).await;
    assert_eq!(remote.calls(), calls, "nothing is asked when nothing is held");
}

#[tokio::test(start_paused = true)]
async fn many_permits_are_renewed_together() {
    let (remote, model, clock) = remote();
    let plan = Plan::new("many", Limit::concurrent(10_000).hold(HOLD)).unwrap();
    let limiter = RateLimiter::builder().store(Arc::clone(&remote)).plans([plan]).clock(clock).build();
    let mut permits = Vec::new();
    for _ in 0..1_200 {
        permits.push(limiter.acquire("ann", "many").await.unwrap());
    }
    tokio::time::sleep(3 * HOLD).await;
    assert!(permits.iter().all(spile_limiter::Permit::is_held));
    assert_eq!(held(&model, "many"), 1_200);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_in_time_learns_it() {
    let (remote, _, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let permit = limiter.acquire("ann", "one").await.unwrap();
    remote.set_fault(down());
    tokio::time::sleep(Duration::from_millis(2_990)).await;
    assert!(permit.is_held(), "until its hold time is over it is held without the store");
    let lost = tokio::time::timeout(Duration::from_secs(1), permit.lost()).await;
    assert!(lost.is_ok() && !permit.is_held());
    remote.set_fault(CallFault::None);
    tokio::time::sleep(HOLD).await;
    assert!(!permit.is_held(), "another may have had the place meanwhile");
    assert_eq!(limiter.permit_stats().values().map(|counts| counts.lost).sum::<u64>(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_costs_no_permit() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let permit = limiter.acquire("ann", "one").await.unwrap();
    for _ in 0..20 {
        remote.set_fault(down());
        tokio::time::sleep(HOLD / 2).await;
        remote.set_fault(CallFault::None);
        tokio::time::sleep(HOLD / 2).await;
        assert!(permit.is_held());
        assert_eq!(held(&model, "one"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_work_that_goes_on_is_counted_again_and_never_twice() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let permits =
        [limiter.acquire("ann", "mixed").await.unwrap(), limiter.acquire("ann", "mixed").await.unwrap()];
    // A failover that loses everything, within the hold time, while no other caller asks.
    let all = limiter.charges("ann", "mixed", 0).unwrap();
    model.reset(&all).await.unwrap();
    tokio::time::sleep(HOLD).await;
    assert_eq!(held(&model, "mixed/jobs"), 2);
    assert!(permits.iter().all(spile_limiter::Permit::is_held));
    // And one in which another instance was faster.
    model.reset(&all).await.unwrap();
    let other = limiter_of(&remote, clock).build();
    let theirs = other.acquire("ann", "mixed").await.unwrap();
    tokio::time::sleep(HOLD).await;
    assert_eq!(held(&model, "mixed/jobs"), 2, "no more than may be");
    assert_eq!(permits.iter().filter(|permit| permit.is_held()).count(), 1);
    drop((permits, theirs));
    settle_down().await;
    assert_eq!(held(&model, "mixed/jobs"), 0, "each is released");
}

#[tokio::test(start_paused = true)]
async fn each_policy_decides_while_the_store_is_down() {
    let (remote, model, clock) = remote();
    remote.set_fault(down());
    let open = limiter_of(&remote, clock).build();
    let passed = open.acquire("ann", "one").await.unwrap();
    assert_eq!(passed.decision().reason(), Reason::FailOpen);
    let closed = limiter_of(&remote, clock).on_failure(FailurePolicy::Deny).build();
    assert_eq!(denial(closed.acquire("ann", "one").await).reason(), Reason::FailClosed);
    let plan = Plan::new("six", Limit::concurrent(6).hold(HOLD)).unwrap();
    let local = RateLimiter::builder().store(Arc::clone(&remote)).plans(plans().into_iter().chain([plan]));
    let local = local.clock(clock).on_failure(FailurePolicy::Local).replicas(3).build();
    let first = local.acquire("ann", "six").await.unwrap();
    let second = local.acquire("ann", "six").await.unwrap();
    assert_eq!(first.decision().reason(), Reason::Local);
    assert!(!denial(local.acquire("ann", "six").await).allowed(), "a third of six is two");
    assert!(local.acquire("ann", "one").await.is_ok(), "at least one");
    drop(second);
    let third = local.acquire("ann", "six").await.unwrap();
    tokio::time::sleep(5 * HOLD).await;
    assert!(first.is_held() && third.is_held(), "what is counted here is renewed here");
    remote.set_fault(CallFault::None);
    tokio::time::sleep(HOLD).await;
    assert_eq!(held(&model, "six"), 2, "after recovery the store counts them");
    assert_eq!(held(&model, "one"), 1, "also those that the policy let pass");
    drop((first, third, passed));
    settle_down().await;
    assert_eq!((held(&model, "six"), held(&model, "one")), (0, 0));
    assert_eq!(local.local_usage().permits, 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_while_it_asks_leaves_no_place_taken() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    for fault in [CallFault::Delay(Duration::from_millis(20)), CallFault::None] {
        remote.set_fault(fault);
        let asking = tokio::time::timeout(Duration::from_millis(5), limiter.acquire("ann", "one"));
        drop(asking.await);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(held(&model, "one"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_whose_answer_is_lost_leaves_no_place_taken() {
    let (remote, model, clock) = remote();
    let closed = limiter_of(&remote, clock).on_failure(FailurePolicy::Deny).build();
    let lost = StoreError::TimedOut(Duration::from_millis(50));
    remote.set_fault(CallFault::LoseAnswer(lost.clone()));
    assert_eq!(denial(closed.acquire("ann", "one").await).reason(), Reason::FailClosed);
    assert_eq!(held(&model, "one"), 1, "the store has taken it all the same");
    remote.set_fault(CallFault::None);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(held(&model, "one"), 0);
    // Whom the policy lets pass keeps the place that the store has noted, once.
    let open = limiter_of(&remote, clock).build();
    remote.set_fault(CallFault::LoseAnswer(lost));
    let permit = open.acquire("ann", "one").await.unwrap();
    remote.set_fault(CallFault::None);
    tokio::time::sleep(HOLD).await;
    assert_eq!(held(&model, "one"), 1);
    drop(permit);
    settle_down().await;
    assert_eq!(held(&model, "one"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_reaches_a_store_that_was_down() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let permit = limiter.acquire("ann", "one").await.unwrap();
    remote.set_fault(down());
    drop(permit);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(held(&model, "one"), 1);
    remote.set_fault(CallFault::None);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(held(&model, "one"), 0, "long before its hold time is over");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_releases_what_it_holds() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let permits =
        [limiter.acquire("ann", "one").await.unwrap(), limiter.acquire("ann", "mixed").await.unwrap()];
    limiter.release_permits().await;
    assert_eq!((held(&model, "one"), held(&model, "mixed/jobs")), (0, 0));
    drop(permits);
    remote.set_fault(CallFault::Hang);
    drop(limiter.acquire("ann", "one").await);
    let started = tokio::time::Instant::now();
    limiter.release_permits().await;
    assert!(started.elapsed() <= Duration::from_secs(1), "a store that hangs does not hold it up");
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_meets_a_release_ends_by_its_deadline() {
    let (remote, _, clock) = remote();
    let limiter = limiter_of(&remote, clock).deadline(Duration::from_millis(60)).build();
    let permit = limiter.acquire("ann", "one").await.unwrap();
    remote.set_fault(CallFault::Delay(Duration::from_millis(40)));
    drop(permit);
    let started = tokio::time::Instant::now();
    let denied = denial(limiter.acquire("ann", "one").await);
    assert_eq!(denied.reason(), Reason::Limited, "the store said so, and had no time to say more");
    assert!(started.elapsed() <= Duration::from_millis(61), "{:?}", started.elapsed());
    remote.set_fault(CallFault::None);
    tokio::time::sleep(HOLD / 2).await;
    assert!(limiter.acquire("ann", "one").await.is_ok(), "what was asked for late is released");
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_left_to_its_caller_stays_until_its_hold_time_is_over() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let id = limiter.acquire("ann", "one").await.unwrap().leave();
    let held_now = || limiter.permit_stats().values().map(|counts| counts.held).sum::<u64>();
    tokio::time::sleep(Duration::from_millis(2_900)).await;
    assert_eq!((held(&model, "one"), held_now()), (1, 1), "{id}");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(held_now(), 0);
    assert!(limiter.acquire("ann", "one").await.is_ok(), "it is not renewed here");
}

#[tokio::test(start_paused = true)]
async fn those_that_wait_in_one_process_with_its_own_store_wait_for_no_other() {
    let plan = Plan::new("two", Limit::concurrent(2)).unwrap();
    let limiter = RateLimiter::builder().store(spile_memory::MemoryStore::new()).plans([plan]).build();
    let started = tokio::time::Instant::now();
    let jobs = (0..100).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let permit = limiter.acquire_when_ready("ann", "two", Wait::forever()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
            drop(permit);
        })
    });
    for job in jobs.collect::<Vec<_>>() {
        job.await.unwrap();
    }
    assert!(started.elapsed() < Duration::from_millis(150), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn those_that_wait_are_served_in_order_and_one_of_them_asks() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let first = limiter.acquire("ann", "one").await.unwrap();
    let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..50 {
        let (limiter, served) = (limiter.clone(), served.clone());
        tokio::spawn(async move {
            let permit = limiter.acquire_when_ready("ann", "one", Wait::forever()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
            served.send(number).unwrap();
            drop(permit);
        });
        settle_down().await;
    }
    let calls = remote.calls();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = remote.calls() - calls;
    assert!((250..=500).contains(&asked), "fifty wait, and one of them asks now and then: {asked}");
    drop(first);
    let started = tokio::time::Instant::now();
    for number in 0..50 {
        assert_eq!(order.recv().await, Some(number));
    }
    assert!(started.elapsed() < Duration::from_millis(1_500), "{:?}", started.elapsed());
    settle_down().await;
    assert_eq!(held(&model, "one"), 0);
}

/// How long each of two processes takes for its jobs of 50 ms on two places.
async fn time_of_jobs(jobs: [usize; 2]) -> [Duration; 2] {
    let (remote, _, clock) = remote();
    let plan = Plan::new("two", Limit::concurrent(2).hold(HOLD)).unwrap();
    let started = tokio::time::Instant::now();
    let process = |jobs: usize| {
        let builder = RateLimiter::builder().store(Arc::clone(&remote)).plans([plan.clone()]);
        let limiter = builder.clock(clock).build();
        let job = move || {
            let limiter = limiter.clone();
            async move {
                let permit = limiter.acquire_when_ready("ann", "two", Wait::forever()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                permit.release().await.unwrap();
            }
        };
        async move {
            let all: Vec<_> = std::iter::repeat_with(|| tokio::spawn(job())).take(jobs).collect();
            for one in all {
                one.await.unwrap();
            }
            started.elapsed()
        }
    };
    let (one, other) = tokio::join!(process(jobs[0]), process(jobs[1]));
    [one, other]
}

#[tokio::test(start_paused = true)]
async fn processes_that_wait_for_the_same_places_get_equal_shares_and_leave_few_idle() {
    const ROUNDS: u32 = 20;
    let ideal = 24 * Duration::from_millis(50);
    let mut sums = [Duration::ZERO; 2];
    for _ in 0..ROUNDS {
        let shared = time_of_jobs([24, 24]).await;
        let ratio = shared[0].as_secs_f64() / shared[1].as_secs_f64();
        assert!((0.7..1.43).contains(&ratio), "{shared:?}");
        sums = [sums[0] + shared[0], sums[1] + shared[1]];
        let alone = time_of_jobs([48, 0]).await;
        for time in [shared[0].max(shared[1]), alone[0]] {
            assert!(time <= ideal.mul_f64(1.3), "{time:?} where {ideal:?} is ideal");
        }
    }
    let [one, other] = sums.map(|sum| sum.as_secs_f64());
    assert!((0.9..1.11).contains(&(one / other)), "{one} and {other} seconds");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_no_longer_than_allowed_gets_the_denial() {
    let (remote, _, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let permit = limiter.acquire("ann", "one").await.unwrap();
    let started = tokio::time::Instant::now();
    let wait = Wait::at_most(Duration::from_secs(2));
    let denied = denial(limiter.acquire_when_ready("ann", "one", wait).await);
    assert!(!denied.allowed() && denied.binding().limit().is_concurrency());
    let waited = started.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_millis(2_100)).contains(&waited), "{waited:?}");
    // One whose time is over leaves its turn to the next.
    let short = limiter.acquire_when_ready("ann", "one", Wait::at_most(Duration::from_millis(100)));
    let long = limiter.acquire_when_ready("ann", "one", Wait::forever());
    let release = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(permit);
    };
    let (short, long, ()) = tokio::join!(short, long, release);
    assert!(short.is_err() && long.is_ok());
    // A denial by a rate is told at once if its wait would be longer.
    let _spent = limiter.spend_up_to("ann", "free", 1).await.unwrap();
    for _ in 0..3 {
        drop(limiter.acquire("ann", "mixed").await);
        settle_down().await;
    }
    let started = tokio::time::Instant::now();
    let denied = denial(limiter.acquire_when_ready("ann", "mixed", wait).await);
    assert_eq!(denied.limited_by().map(ToString::to_string).as_deref(), Some("mixed/rate"));
    assert!(started.elapsed() < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_could_not_release_a_permit_is_a_mistake() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let needs = |answer: Result<_, LimiterError>| {
        assert!(matches!(answer, Err(LimiterError::NeedsPermit(limit)) if limit.as_str() == "mixed/jobs"));
    };
    needs(limiter.allow("ann", "mixed", 1).await.map(drop));
    needs(limiter.spend_up_to("ann", "mixed", 1).await.map(drop));
    needs(limiter.until_ready("ann", "mixed", 1, Wait::forever()).await.map(drop));
    match limiter.reserve("ann", "mixed", 1, HOLD).await.map(drop) {
        Err(AcquireError::Asked(why)) => needs(Err(why)),
        answer => panic!("{answer:?}"),
    }
    let none = limiter.acquire("ann", "free").await.unwrap_err().to_string();
    assert_eq!(none, "no limit of free is a concurrency, so that there is no permit to take");
    assert!(RateLimiter::per_key(Limit::concurrent(1)).is_err());
    assert_eq!(limiter.peek("ann", "mixed", 1).await.unwrap().limits()[0].remaining(), 3);
    assert_eq!(held(&model, "mixed/jobs"), 0);
}

/// A limiter may outlive a runtime, as one in a `static` does in tests.
#[test]
fn permits_are_renewed_after_the_runtime_of_earlier_ones_has_ended() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (first, second) = (runtime(), runtime());
    let (remote, model, limiter) = first.block_on(async {
        let (remote, model, clock) = remote();
        (Arc::clone(&remote), model, limiter_of(&remote, clock).build())
    });
    let early = first.block_on(limiter.acquire("ann", "mixed")).unwrap();
    drop(first);
    second.block_on(async {
        let late = limiter.acquire("ann", "mixed").await.unwrap();
        let calls = remote.calls();
        tokio::time::sleep(3 * HOLD).await;
        assert!(remote.calls() > calls + 5, "they are renewed: {}", remote.calls() - calls);
        assert!(late.is_held());
        drop((early, late));
        settle_down().await;
        assert_eq!(held(&model, "mixed/jobs"), 0);
    });
}

/// A runtime that nothing drives, such as one of a thread that is busy, must not hold up the renewals of others.
#[test]
fn permits_are_renewed_while_the_runtime_of_earlier_ones_is_idle() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (first, second) = (runtime(), runtime());
    let (_remote, model, limiter) = first.block_on(async {
        let (remote, model, clock) = remote();
        (Arc::clone(&remote), model, limiter_of(&remote, clock).build())
    });
    let early = first.block_on(async {
        let early = limiter.acquire("ann", "mixed").await.unwrap();
        tokio::time::sleep(HOLD).await;
        early
    });
    second.block_on(async {
        tokio::time::sleep(HOLD).await;
        let late = limiter.acquire("ann", "mixed").await.unwrap();
        tokio::time::sleep(3 * HOLD).await;
        assert!(late.is_held() && early.is_held());
        assert_eq!(held(&model, "mixed/jobs"), 2);
    });
}

#[test]
fn a_permit_of_an_embedded_store_needs_no_runtime() {
    let limiter = RateLimiter::builder().store(spile_memory::MemoryStore::new()).plans(plans()).build();
    let mut asking = Box::pin(limiter.acquire("ann", "one"));
    let waker = std::task::Waker::noop();
    let std::task::Poll::Ready(Ok(permit)) = asking.as_mut().poll(&mut std::task::Context::from_waker(waker))
    else {
        panic!("the embedded store answers at once");
    };
    assert_eq!(limiter.store().usage().permits, 1);
    let mut denied = Box::pin(limiter.acquire("ann", "one"));
    let denied = denied.as_mut().poll(&mut std::task::Context::from_waker(waker));
    assert!(matches!(denied, std::task::Poll::Ready(Err(_))));
    drop(permit);
    assert_eq!(limiter.store().usage().permits, 0);
}

#[tokio::test(start_paused = true)]
async fn the_keys_that_hold_most_are_told_the_first_of_them_first() {
    let (remote, _model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let mut held = Vec::new();
    for (key, plan) in [("ann", "mixed"), ("bob", "mixed"), ("bob", "mixed"), ("cid", "one")] {
        held.push(limiter.acquire(key, plan).await.unwrap());
    }
    let told = |count| limiter.holding_most(count);
    assert_eq!(told(9), [("bob".to_owned(), 2), ("ann".to_owned(), 1), ("cid".to_owned(), 1)]);
    assert_eq!(told(1), [("bob".to_owned(), 2)]);
    drop(held);
    settle_down().await;
    assert_eq!(told(9), []);
}

#[tokio::test(start_paused = true)]
async fn permits_that_callers_keep_are_counted_as_held_until_they_end() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let mut chain = Chain::new(None);
    limiter.extend_chain(&mut chain, &spile_policy::identity("ann").unwrap(), "mixed", 1).unwrap();
    let held_here = || limiter.permit_stats().values().map(|counts| counts.held).sum::<u64>();
    let left = async |holder| {
        let ask = Ask::from(&chain).holder(holder).leaving_permit();
        limiter.decide(ask).await.permit.unwrap().leave()
    };
    let (first, second) = (left("worker-7").await, left("").await);
    assert_eq!((held_here(), held(&model, "mixed/jobs")), (2, 2));
    assert_eq!(limiter.holding_most(9), [("ann".to_owned(), 2)]);
    tokio::time::sleep(HOLD / 2).await;
    assert!(limiter.renew_permit(&chain, &first, false).await.unwrap());
    tokio::time::sleep(HOLD / 2).await;
    assert_eq!(held_here(), 1, "the second has ended");
    assert!(!limiter.renew_permit(&chain, &second, false).await.unwrap());
    assert!(limiter.release_permit(&chain, &first).await.unwrap());
    assert_eq!(held_here(), 0);
    assert!(!limiter.release_permit(&chain, &first).await.unwrap());
}
