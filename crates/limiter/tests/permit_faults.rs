//! Permits while something goes wrong: a release that is cancelled, questions that are late, a store that comes back.

#![allow(clippy::disallowed_methods, reason = "tests run on tokio itself")]

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{
    Answer, Charges, Cost, Decision, FailurePolicy, Key, Limit, Operation, PermitStep, Plan, Reason, Reply,
    Store, StoreError, StoreExt,
};
use spile_limiter::{Ask, RateLimiter, RateLimiterBuilder, TokioClock, Wait};
use spile_policy::Chain;
use spile_testkit::store::{CallFault, FaultyStore, ModelStore};

type Model = Arc<ModelStore<TokioClock>>;
type Remote = Arc<FaultyStore<Model>>;
const HOLD: Duration = Duration::from_secs(3);

fn plans() -> Vec<Plan> {
    let jobs = |permits| Limit::concurrent(permits).hold(HOLD);
    vec![
        Plan::new("one", jobs(1)).unwrap(),
        Plan::new("two", jobs(2)).unwrap(),
        Plan::new("day", Limit::concurrent(1).hold(Duration::from_secs(86_400))).unwrap(),
        Plan::new("slow", Limit::per_day(1)).unwrap(),
        Plan::new("free", Limit::per_second(1)).unwrap(),
    ]
}
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
fn held(model: &Model, limit: &str) -> usize {
    model.permits("ann", limit).len()
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_cancelled_happens_all_the_same() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let permit = limiter.acquire("ann", "one").await.unwrap();
    remote.set_fault(CallFault::Hang);
    let _late = tokio::time::timeout(Duration::from_millis(1), permit.release()).await;
    remote.set_fault(CallFault::None);
    tokio::time::sleep(HOLD / 2).await;
    assert_eq!(held(&model, "one"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_local_permit_for_which_the_store_has_no_place_is_lost() {
    let (one, model, clock) = remote();
    let two = Arc::new(FaultyStore::new(Arc::clone(&model), |_| CallFault::None));
    let a = limiter_of(&one, clock).on_failure(FailurePolicy::Local).replicas(2).build();
    let b = limiter_of(&two, clock).on_failure(FailurePolicy::Local).replicas(2).build();
    one.set_fault(down());
    let local = a.acquire("ann", "two").await.unwrap();
    let theirs = [b.acquire("ann", "two").await.unwrap(), b.acquire("ann", "two").await.unwrap()];
    one.set_fault(CallFault::None);
    tokio::time::sleep(20 * HOLD).await;
    let all = theirs.iter().chain([&local]).filter(|permit| permit.is_held()).count();
    assert!(all <= 2, "{all} hold 2 places, 20 hold times after recovery");
}

#[tokio::test(start_paused = true)]
async fn what_never_reached_the_store_is_not_released_there() {
    let (remote, _, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    remote.set_fault(down());
    for _ in 0..10_000 {
        drop(limiter.acquire("ann", "one").await.unwrap());
    }
    let calls = remote.calls();
    tokio::time::sleep(HOLD).await;
    assert_eq!(remote.calls() - calls, 0, "calls after the work is done");
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_entered_in_the_store_is_not_released_there() {
    let (remote, _, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    remote.set_fault(down());
    let permit = limiter.acquire("ann", "day").await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let tried = remote.calls();
    assert!(tried > 2, "it was tried to enter it");
    drop(permit);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(remote.calls() - tried, 0, "calls after the work is done");
}

#[tokio::test(start_paused = true)]
async fn what_may_be_in_the_store_is_released_there() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    remote.set_fault(down());
    let permit = limiter.acquire("ann", "day").await.unwrap();
    remote.set_fault(CallFault::LoseAnswer(StoreError::TimedOut(HOLD)));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(held(&model, "day"), 1, "its entry arrived, and the answer was lost");
    remote.set_fault(down());
    tokio::time::sleep(Duration::from_secs(10)).await;
    drop(permit);
    remote.set_fault(CallFault::None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(held(&model, "day"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_longest_wait_is_a_wait() {
    let (remote, _, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    assert!(limiter.acquire_when_ready("ann", "one", Wait::at_most(Duration::MAX)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_for_a_rate_does_not_keep_others_from_free_places() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    drop(limiter.acquire("ann", ["two", "slow"]).await.unwrap());
    let other = limiter.clone();
    let waits =
        tokio::spawn(async move { other.acquire_when_ready("ann", ["two", "slow"], Wait::forever()).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let answer = limiter.acquire_when_ready("ann", "two", Wait::at_most(Duration::from_secs(5))).await;
    waits.abort();
    if let Err(why) = answer {
        panic!(
            "{} free places; decision says allowed={}",
            2 - held(&model, "two"),
            why.decision().unwrap().allowed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_held_any_more_stays_so() {
    let (remote, _, clock) = remote();
    let limiter = limiter_of(&remote, clock).deadline(Duration::from_millis(400)).build();
    remote.set_fault(CallFault::Delay(Duration::from_millis(350)));
    let started = tokio::time::Instant::now();
    let permit = limiter.acquire("ann", "one").await.unwrap();
    remote.set_fault(down());
    permit.lost().await;
    remote.set_fault(CallFault::None);
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!permit.is_held(), "held again at {:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_chain_without_a_concurrency_is_just_allowed() {
    let (remote, _, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let charges = limiter.charges("ann", "free", 1).unwrap();
    let ruling = limiter.decide(Ask::from(charges).leaving_permit()).await;
    assert!(ruling.permit.is_none());
    assert_eq!(ruling.reason(), "ok");
}

#[tokio::test(start_paused = true)]
async fn what_the_policy_let_pass_is_entered_soon_after_the_store_is_back() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    remote.set_fault(down());
    let _permit = limiter.acquire("ann", "day").await.unwrap();
    remote.set_fault(CallFault::None);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(held(&model, "day"), 1, "an hour after the store is back");
}

#[tokio::test(start_paused = true)]
async fn what_was_given_back_at_the_end_is_not_held() {
    let (remote, _, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let mine = limiter.acquire("ann", "one").await.unwrap();
    limiter.release_permits().await;
    let theirs = limiter.acquire("ann", "one").await.unwrap();
    assert!(theirs.is_held() && !mine.is_held());
}

#[tokio::test(start_paused = true)]
async fn renewals_go_on_when_the_runtime_that_made_them_ends() {
    let (remote, _, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let other = limiter.clone();
    let first = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let permit = runtime.block_on(other.acquire("bob", "one")).unwrap();
        (runtime, permit)
    });
    let (runtime, _bobs) = first.join().unwrap();
    let permit = limiter.acquire("ann", "one").await.unwrap();
    runtime.shutdown_background();
    tokio::time::sleep(3 * HOLD).await;
    assert!(permit.is_held());
}

#[test]
fn permits_may_outlive_every_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let runtimes = [runtime(), runtime(), runtime()];
    let (limiter, _remote) = runtimes[0].block_on(async {
        let (remote, _, clock) = remote();
        (limiter_of(&remote, clock).build(), remote)
    });
    let permits: Vec<_> = (runtimes.iter().zip(["ann", "bob", "eve"]))
        .map(|(runtime, key)| runtime.block_on(limiter.acquire(key, "one")).unwrap())
        .collect();
    drop(runtimes);
    drop(permits);
}

#[tokio::test(start_paused = true)]
async fn a_free_place_is_found_within_a_pause_by_those_that_wait_for_it_among_others() {
    let (remote, _, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let full = limiter.acquire("ann", "one").await.unwrap();
    let other = limiter.clone();
    let waits = tokio::spawn(async move {
        other.acquire_when_ready("ann", ["two", "one"], Wait::forever()).await.unwrap()
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(full);
    let started = tokio::time::Instant::now();
    let _permit = waits.await.unwrap();
    assert!(started.elapsed() <= Duration::from_millis(10), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_handed_out_is_held() {
    // A process that was suspended between question and answer.
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).deadline(Duration::from_secs(10)).build();
    remote.set_fault(CallFault::Delay(Duration::from_secs(4)));
    let permit = limiter.acquire("ann", "one").await.unwrap();
    assert_eq!(permit.decision().reason(), Reason::FailOpen, "the answer came when its hold time was over");
    remote.set_fault(CallFault::None);
    tokio::time::sleep(HOLD).await;
    assert_eq!((permit.is_held(), held(&model, "one")), (true, 1), "it is taken again");
}

/// When a question arrives.
enum Arrival {
    InTime,
    Late(Duration),
    /// It is not sent.
    Never,
}

/// When a question arrives, by its step and by how many of that step were asked before.
type Arrivals = fn(PermitStep, usize) -> Arrival;

/// A store at which some questions arrive late: the packet is sent again, and other connections overtake it.
struct LateStore {
    model: Model,
    arrivals: Arrivals,
    asked: Mutex<Vec<PermitStep>>,
}

impl LateStore {
    fn new(model: &Model, arrivals: Arrivals) -> Self {
        Self { model: Arc::clone(model), arrivals, asked: Mutex::default() }
    }

    fn arrival(&self, step: PermitStep) -> Arrival {
        let mut asked = self.asked.lock();
        let before = asked.iter().filter(|other| **other == step).count();
        asked.push(step);
        (self.arrivals)(step, before)
    }
}

impl Store for LateStore {
    fn call<'a>(
        &'a self,
        operation: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> Answer<impl Future<Output = Result<Reply, StoreError>> + Send + 'a> {
        Answer::Later(async move {
            let Operation::Permit(id, step) = operation else {
                return self.model.ask(operation, charges).await;
            };
            tokio::task::yield_now().await;
            let late = match self.arrival(step) {
                Arrival::InTime => return self.model.ask(operation, charges).await,
                Arrival::Never => return Err(StoreError::BreakerOpen),
                Arrival::Late(late) => late,
            };
            let (model, id) = (Arc::clone(&self.model), id.clone());
            let limit = charges.first_permit().unwrap().limit().clone();
            tokio::spawn(async move {
                tokio::time::sleep(late).await;
                let charges = Charges::one(Key::new("ann").unwrap(), &limit, Cost::ONE).unwrap();
                model.permit(&charges, &id, step).await
            });
            std::future::pending().await
        })
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// The first acquisition is late by so many milliseconds.
fn late_by<const MS: u64>(step: PermitStep, before: usize) -> Arrival {
    match step {
        PermitStep::Acquire if before == 0 => Arrival::Late(Duration::from_millis(MS)),
        _ => Arrival::InTime,
    }
}

async fn leaked(policy: FailurePolicy, late: Arrivals, cancelled: bool) -> bool {
    let clock = TokioClock::new();
    let model = Arc::new(ModelStore::new(clock));
    let store = LateStore::new(&model, late);
    let limiter = RateLimiter::builder().store(store).plans(plans()).clock(clock).on_failure(policy).build();
    if cancelled {
        drop(tokio::time::timeout(Duration::from_millis(1), limiter.acquire("ann", "day")).await);
    } else {
        drop(limiter.acquire("ann", "day").await);
    }
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    held(&model, "day") > 0
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_late_leaves_no_place_taken() {
    let mut bad = Vec::new();
    let times: [Arrivals; 5] =
        [late_by::<10>, late_by::<60>, late_by::<90>, late_by::<200>, late_by::<1_000>];
    for (number, late) in times.into_iter().enumerate() {
        for policy in [FailurePolicy::Allow, FailurePolicy::Deny, FailurePolicy::Local] {
            for cancelled in [false, true] {
                if leaked(policy, late, cancelled).await {
                    bad.push((number, policy, if cancelled { "cancelled" } else { "answered by policy" }));
                }
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

/// Holds a permit for so long at a store with late questions, and tells how many places are taken an hour later.
async fn left_taken(late: Arrivals, work: Duration, waits: bool) -> usize {
    let clock = TokioClock::new();
    let model = Arc::new(ModelStore::new(clock));
    let limiter =
        RateLimiter::builder().store(LateStore::new(&model, late)).plans(plans()).clock(clock).build();
    let permit = limiter.acquire("ann", "day").await.unwrap();
    tokio::time::sleep(work).await;
    if waits {
        permit.release().await.unwrap();
    } else {
        drop(permit);
    }
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    held(&model, "day")
}

#[tokio::test(start_paused = true)]
async fn a_late_question_leaves_no_place_taken_after_a_release_that_is_waited_for() {
    assert_eq!(left_taken(late_by::<200>, Duration::ZERO, true).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_entry_of_a_permit_leaves_no_place_taken() {
    // The store is down, and when it is back, the first entry arrives after the release.
    let late = |step, before| match step {
        PermitStep::Acquire => Arrival::Never,
        PermitStep::Retake if before == 0 => Arrival::Late(Duration::from_secs(1)),
        _ => Arrival::InTime,
    };
    for waits in [false, true] {
        assert_eq!(
            left_taken(late, Duration::from_millis(1_500), waits).await,
            0,
            "release waited for: {waits}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_question_leaves_no_place_taken_by_a_permit_that_was_entered_since() {
    for waits in [false, true] {
        let left = left_taken(late_by::<2_000>, Duration::from_millis(1_500), waits).await;
        assert_eq!(left, 0, "release waited for: {waits}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_question_after_a_denial_leaves_no_place_taken() {
    let clock = TokioClock::new();
    let model = Arc::new(ModelStore::new(clock));
    let late = |step, before| match step {
        PermitStep::Acquire if before == 2 => Arrival::Late(Duration::from_millis(200)),
        _ => Arrival::InTime,
    };
    let limiter =
        RateLimiter::builder().store(LateStore::new(&model, late)).plans(plans()).clock(clock).build();
    drop(limiter.acquire("ann", "day").await.unwrap());
    // The place is still being released, so that the store is asked once more, which is late.
    let denied = limiter.acquire("ann", "day").await.unwrap_err();
    assert!(denied.decision().is_some_and(Decision::may_have_run));
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(held(&model, "day"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_permit_whose_question_was_answered_is_released_by_one_call() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let permit = limiter.acquire("ann", ["day", "two"]).await.unwrap();
    let calls = remote.calls();
    drop(permit);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!((remote.calls() - calls, held(&model, "day"), held(&model, "two")), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_place_that_was_counted_here_is_free_once_the_store_counts_the_permit() {
    let (remote, _, clock) = remote();
    let limiter = limiter_of(&remote, clock).on_failure(FailurePolicy::Local).build();
    let mut chain = Chain::new(None);
    limiter.extend_chain(&mut chain, &spile_policy::identity("ann").unwrap(), "one", 1).unwrap();
    remote.set_fault(down());
    let kept = limiter.decide(Ask::from(&chain).leaving_permit()).await.permit.unwrap().leave();
    assert!(limiter.acquire("ann", "one").await.is_err());
    remote.set_fault(CallFault::None);
    assert!(limiter.renew_permit(&chain, &kept, true).await.unwrap());
    remote.set_fault(down());
    assert!(limiter.acquire("ann", "one").await.is_ok());
}

/// A store behind a network: each answer takes a while, and a release takes longer than a question.
#[tokio::test(start_paused = true)]
async fn a_caller_that_asks_one_after_the_other_is_never_denied() {
    let (remote, _, clock) = remote();
    remote.set_fault(CallFault::Delay(Duration::from_millis(5)));
    let limiter = limiter_of(&remote, clock).build();
    for _ in 0..100 {
        drop(limiter.acquire("ann", "one").await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_of_an_outage_is_entered_while_it_is_renewed_and_not_after_it_has_ended() {
    let (remote, model, clock) = remote();
    let limiter = limiter_of(&remote, clock).build();
    let mut chain = Chain::new(None);
    limiter.extend_chain(&mut chain, &spile_policy::identity("ann").unwrap(), "one", 1).unwrap();
    remote.set_fault(down());
    let taken = async || limiter.decide(Ask::from(&chain).leaving_permit()).await.permit.unwrap().leave();
    let (kept, left) = (taken().await, taken().await);
    for _ in 0..9 {
        tokio::time::sleep(HOLD / 3).await;
        assert!(limiter.renew_permit(&chain, &kept, true).await.unwrap(), "while the policy lets pass");
    }
    remote.set_fault(CallFault::None);
    assert!(!limiter.renew_permit(&chain, &left, true).await.unwrap(), "it was not renewed in time");
    assert!(limiter.renew_permit(&chain, &kept, true).await.unwrap());
    assert_eq!(held(&model, "one"), 1);
    tokio::time::sleep(HOLD).await;
    assert!(!limiter.renew_permit(&chain, &kept, true).await.unwrap());
}
