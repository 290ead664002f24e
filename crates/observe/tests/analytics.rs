//! Tests how instances add up their minutes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::{Clock, FakeClock, Limit, Micros, Plan};
use spile_limiter::{Ask, RateLimiter};
use spile_memory::MemoryStore;
use spile_observe::{
    Analytics, AnalyticsQuery, GroupBy, HistoryQuery, MinuteBatch, MinuteRow, MinuteStore, MinuteStoreError,
    MinuteStoreFuture, OutcomeCounts, Scope, Watch, share_minutes,
};

/// A minute store that can be out of reach.
#[derive(Default)]
struct Meeting {
    sums: Mutex<BTreeMap<(u64, GroupBy, String), OutcomeCounts>>,
    away: AtomicBool,
    /// Fails while this is true.
    hangs: AtomicBool,
    /// Adds the next batch, but loses the answer.
    loses_answers: AtomicBool,
    batches: Mutex<Vec<MinuteBatch>>,
}

impl MinuteStore for Meeting {
    fn add<'a>(&'a self, batch: &'a MinuteBatch) -> MinuteStoreFuture<'a, ()> {
        Box::pin(async move {
            while self.hangs.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            if self.away.load(Ordering::SeqCst) {
                return Err(MinuteStoreError("out of reach".to_owned()));
            }
            self.batches.lock().push(batch.clone());
            let mut sums = self.sums.lock();
            for row in batch.rows.clone() {
                *sums.entry((row.minute, row.by, row.name)).or_default() += row.counts;
            }
            if self.loses_answers.swap(false, Ordering::SeqCst) {
                return Err(MinuteStoreError("no answer".to_owned()));
            }
            Ok(())
        })
    }

    fn rows(&self, from: u64, to: u64) -> MinuteStoreFuture<'_, Vec<MinuteRow>> {
        Box::pin(async move {
            if self.away.load(Ordering::SeqCst) {
                return Err(MinuteStoreError("out of reach".to_owned()));
            }
            let sums = self.sums.lock();
            let asked = sums.iter().filter(|((minute, ..), _)| (from..to).contains(minute));
            Ok(asked
                .map(|((minute, by, name), &counts)| MinuteRow {
                    minute: *minute,
                    by: *by,
                    name: name.clone(),
                    counts,
                })
                .collect())
        })
    }
}

/// An instance that has decided `times` times for one rule.
async fn decide(watch: &Watch, clock: &FakeClock, times: usize) {
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let plan = Plan::new("free", Limit::per_second(1).burst(1_000)).unwrap();
    let limiter = RateLimiter::builder().store(store).plans([plan]).observer(watch.clone()).build();
    for _ in 0..times {
        let charges = limiter.charges("ann", ["free"], 1).unwrap();
        let _decision = limiter.decide(Ask::from(charges).rule("api")).await;
    }
}

async fn allowed(meeting: &Meeting) -> u64 {
    meeting.rows(0, u64::MAX).await.unwrap().iter().map(|row| row.counts.allowed).sum()
}

fn instance() -> (Watch, FakeClock) {
    let clock = FakeClock::default();
    (Watch::builder().clock(clock.clone()).without_ticker().build(), clock)
}

#[tokio::test(start_paused = true)]
async fn two_instances_sum_to_what_both_decided_and_nothing_counts_twice() {
    let meeting = Arc::new(Meeting::default());
    let instances = [instance(), instance()];
    let mut sharing = Vec::new();
    for (watch, clock) in &instances {
        decide(watch, clock, 7).await;
        sharing.push(tokio::spawn(share_minutes(watch.clone(), meeting.clone(), Duration::from_secs(10))));
    }
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(allowed(&meeting).await, 14);
    decide(&instances[0].0, &instances[0].1, 3).await;
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(allowed(&meeting).await, 17);
}

#[tokio::test(start_paused = true)]
async fn a_chart_sums_all_instances_and_shows_this_one_while_the_others_are_out_of_reach() {
    let meeting = Arc::new(Meeting::default());
    let instances = [instance(), instance()];
    let sharing: Vec<_> = instances
        .iter()
        .map(|(watch, _)| share_minutes(watch.clone(), meeting.clone(), Duration::from_secs(10)))
        .map(tokio::spawn)
        .collect();
    for (watch, clock) in &instances {
        clock.advance(Duration::from_secs(86_400));
        decide(watch, clock, 4).await;
        watch.flush();
        clock.advance(Duration::from_secs(60));
        decide(watch, clock, 3).await;
    }
    tokio::time::sleep(Duration::from_secs(25)).await;
    let (watch, clock) = &instances[0];
    let analytics = Analytics::summed(watch.clone(), meeting.clone());
    let shown = async |query: HistoryQuery| {
        let history = analytics.history(&query).await;
        (history.scope, history.rows.iter().map(|row| row.counts.allowed).collect::<Vec<_>>())
    };
    let other = HistoryQuery { name: Some("other".to_owned()), ..HistoryQuery::default() };
    let last = HistoryQuery { minutes: Some(1), ..HistoryQuery::default() };
    assert_eq!(shown(HistoryQuery::default()).await, (Scope::All, vec![8, 6]));
    assert_eq!(shown(last.clone()).await, (Scope::All, vec![6]));
    assert_eq!(shown(other).await, (Scope::All, vec![]));
    meeting.away.store(true, Ordering::SeqCst);
    clock.advance(Duration::from_secs(10));
    assert_eq!(shown(HistoryQuery::default()).await, (Scope::Instance, vec![4, 3]));
    assert_eq!(shown(last).await, (Scope::Instance, vec![3]));
    for task in sharing {
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_brought_is_brought_later() {
    let meeting = Arc::new(Meeting::default());
    meeting.away.store(true, Ordering::SeqCst);
    let (watch, clock) = instance();
    let sharing = tokio::spawn(share_minutes(watch.clone(), meeting.clone(), Duration::from_secs(10)));
    decide(&watch, &clock, 5).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(meeting.sums.lock().is_empty());
    meeting.away.store(false, Ordering::SeqCst);
    decide(&watch, &clock, 2).await;
    watch.close();
    sharing.await.unwrap();
    assert_eq!(allowed(&meeting).await, 7);
}

#[tokio::test(start_paused = true)]
async fn decisions_do_not_wait_for_a_flush_that_hangs_and_are_counted_after_it() {
    let meeting = Arc::new(Meeting::default());
    meeting.hangs.store(true, Ordering::SeqCst);
    let (watch, clock) = instance();
    let sharing = tokio::spawn(share_minutes(watch.clone(), meeting.clone(), Duration::from_secs(10)));
    decide(&watch, &clock, 5).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert!(meeting.batches.lock().is_empty(), "the flush is under way");
    let asked = tokio::time::Instant::now();
    decide(&watch, &clock, 400).await;
    // The clock is paused: it moves only when all tasks wait.
    assert_eq!(asked.elapsed(), Duration::ZERO);
    meeting.hangs.store(false, Ordering::SeqCst);
    watch.close();
    sharing.await.unwrap();
    assert_eq!(allowed(&meeting).await, 405);
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_answer_was_lost_is_brought_again_unchanged_under_its_number() {
    let meeting = Arc::new(Meeting::default());
    meeting.loses_answers.store(true, Ordering::SeqCst);
    let (watch, clock) = instance();
    decide(&watch, &clock, 5).await;
    let sharing = tokio::spawn(share_minutes(watch.clone(), meeting.clone(), Duration::from_secs(10)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    decide(&watch, &clock, 2).await;
    watch.close();
    sharing.await.unwrap();
    let batches = meeting.batches.lock();
    assert_eq!(batches[0], batches[1]);
    let numbers: Vec<_> = batches.iter().map(|batch| batch.number).collect();
    assert_eq!(numbers, [1, 1, 2]);
    assert_eq!(batches[2].rows.iter().map(|row| row.counts.allowed).sum::<u64>(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_asks_gets_the_sums_or_is_told_and_can_ask_for_one_instance() {
    let meeting = Arc::new(Meeting::default());
    let (watch, clock) = instance();
    let counts = OutcomeCounts { allowed: 40, denied: 2, shadow: 0 };
    let minute = watch.now().get() / 60_000_000 * 60;
    meeting.sums.lock().insert((minute, GroupBy::Rule, "api".to_owned()), counts);
    decide(&watch, &clock, 3).await;
    let analytics = Analytics::summed(watch, meeting.clone());
    let allowed = async |scope| {
        let rows = analytics.rows(&AnalyticsQuery { scope, ..AnalyticsQuery::default() }).await;
        rows.map(|rows| rows.iter().map(|row| row.counts.allowed).sum::<u64>())
    };
    assert_eq!(allowed(Scope::All).await, Ok(40));
    assert_eq!(allowed(Scope::Instance).await, Ok(3));
    assert_eq!(analytics.day().await.scope, Scope::All);
    meeting.away.store(true, Ordering::SeqCst);
    assert!(allowed(Scope::All).await.is_err());
    assert_eq!(allowed(Scope::Instance).await, Ok(3));
    assert_eq!(analytics.day().await.scope, Scope::All, "as it was read a moment ago");
    clock.advance(Duration::from_secs(10));
    let day = analytics.day().await;
    assert_eq!((day.scope, day.rows[0].counts.allowed), (Scope::Instance, 3));
}

/// The clocks of a machine: a monotonic clock, and a wall clock that can be set.
#[derive(Clone, Default)]
struct Clocks {
    runs: FakeClock,
    wall: FakeClock,
}

impl Clock for Clocks {
    fn now(&self) -> Micros {
        self.runs.now()
    }

    fn wall(&self) -> Micros {
        self.wall.now()
    }
}

impl Clocks {
    fn advance_hours(&self, hours: u64) {
        for clock in [&self.runs, &self.wall] {
            clock.advance(Duration::from_secs(hours * 3_600));
        }
    }
}

#[tokio::test]
async fn the_last_day_is_that_of_the_wall_clock_though_nothing_happens_and_though_it_is_put_right() {
    let clocks = Clocks::default();
    let watch = Watch::builder().clock(clocks.clone()).without_ticker().build();
    let analytics = Analytics::from(watch.clone());
    let allowed = async || {
        let rows = analytics.rows(&AnalyticsQuery::default()).await.unwrap();
        let day = analytics.day().await;
        let sum = day.rows.iter().map(|row| row.counts.allowed).sum::<u64>();
        assert_eq!(sum, rows.iter().map(|row| row.counts.allowed).sum::<u64>());
        let (last, wall) = (rows.last().map_or(0, |row| row.minute), clocks.wall.now().get() / 1_000_000);
        assert!(last == 0 || (last <= wall && wall - last < 24 * 3_600), "{last} at {wall}");
        let snapshot = watch.snapshot();
        assert_eq!(
            (snapshot.at_ms, snapshot.seconds.last().map(|second| second.at)),
            (wall * 1_000, Some(wall))
        );
        sum
    };
    decide(&watch, &clocks.runs, 3).await;
    watch.tick();
    clocks.advance_hours(23);
    assert_eq!(allowed().await, 3);
    clocks.advance_hours(2);
    assert_eq!(allowed().await, 0, "days without a request leave nothing to show");
    decide(&watch, &clocks.runs, 5).await;
    assert_eq!(allowed().await, 5);
    clocks.wall.step_back(Duration::from_secs(10 * 3_600));
    assert_eq!(allowed().await, 5, "they happened a moment ago, whatever the clock said then");
    clocks.wall.advance(Duration::from_secs(5 * 24 * 3_600));
    decide(&watch, &clocks.runs, 2).await;
    assert_eq!(allowed().await, 2, "the day is the one before the time that it is");
    watch.config_reloaded();
    assert_eq!(watch.snapshot().events[0].at_ms, clocks.wall.now().get() / 1_000);
    assert_eq!(watch.snapshot().up_ms, 25 * 3_600_000);
}
