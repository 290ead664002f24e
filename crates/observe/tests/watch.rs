//! Tests the figures and events of a watch.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use parking_lot::Mutex;
use spile_calendar::CalendarLimit;
use spile_core::{
    Charges, Cost, FailurePolicy, FakeClock, Key, Limit, Micros, Operation, PermitId, PermitStep, Plan,
    ReservationId, SpendTime, StoreError, StoreExt,
};
use spile_limiter::{Ask, RateLimiter};
use spile_memory::MemoryStore;
use spile_observe::{
    EventKind, GroupBy, LimitPermits, PermitFigures, StoreHealth, StoreState, StorelessCounts, TimedStore,
    TopKey, Watch, WatchBuilder,
};
use spile_testkit::store::{CallFault, FaultyStore, ModelStore};
use spile_testkit::table::axes::OperationKind;

/// A watch with its own recorder, on a clock that does not move, without a thread.
fn watch(set_up: impl FnOnce(WatchBuilder) -> WatchBuilder) -> (Watch, PrometheusHandle, FakeClock) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let (handle, clock) = (recorder.handle(), FakeClock::default());
    let builder = Watch::builder().recorder(Arc::new(recorder)).clock(clock.clone()).without_ticker();
    (set_up(builder).build(), handle, clock)
}

fn limiter(watch: &Watch, clock: &FakeClock) -> RateLimiter<MemoryStore<FakeClock>> {
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let free = Plan::new("free", Limit::per_second(1).burst(10)).unwrap();
    let wide = Plan::new("wide", Limit::per_second(1_000_000_000)).unwrap();
    let never = Plan::new("never", Limit::per_day(1)).unwrap();
    RateLimiter::builder()
        .store(store)
        .plans([free, wide, never])
        .clock(clock.clone())
        .observer(watch.clone())
        .build()
}

/// A store whose answers make no sense.
fn down() -> FaultyStore<ModelStore<FakeClock>> {
    FaultyStore::always(CallFault::Fail(StoreError::BadResponse("nonsense".into())))
}

fn kinds(watch: &Watch) -> Vec<&'static str> {
    watch.snapshot().events.iter().map(|event| event.kind.name()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_decision_of_every_thread_is_counted_exactly() {
    let (watch, metrics, clock) = watch(|builder| builder);
    let limiter = limiter(&watch, &clock);
    let workers = (0..8).map(|worker| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            for _ in 0..25_000 {
                let _decision = limiter.allow(&format!("user:{worker}"), ["wide"], 1).await.unwrap();
                tokio::task::consume_budget().await;
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    watch.flush();
    let line =
        "ratelimit_decisions_total{rule=\"\",limit=\"wide\",outcome=\"allowed\",source=\"store\"} 200000";
    assert!(metrics.render().contains(line), "{}", metrics.render());
    assert_eq!(watch.snapshot().totals.allowed, 200_000);
}

#[tokio::test]
async fn a_million_keys_add_no_series_and_show_ten() {
    let (watch, metrics, clock) = watch(|builder| builder);
    let limiter = limiter(&watch, &clock);
    let _first = limiter.allow("first", ["wide"], 1).await.unwrap();
    watch.flush();
    let before = metrics.render().lines().count();
    for user in 0..1_000_000 {
        let _decision = limiter.allow(&format!("user:{user}"), ["wide"], 1).await.unwrap();
        if user % 1_000 == 0 {
            clock.advance(Duration::from_millis(100));
        }
    }
    watch.flush();
    assert_eq!(metrics.render().lines().count(), before);
    assert_eq!(watch.snapshot().top_spending.len(), 10);
}

#[tokio::test]
async fn invented_rules_end_up_in_the_overflow_and_none_is_lost() {
    let (watch, metrics, clock) = watch(|builder| builder);
    let limiter = limiter(&watch, &clock);
    for rule in 0..5_000 {
        let charges = limiter.charges("ann", ["wide"], 1).unwrap();
        let _decision = limiter.decide(Ask::from(charges).rule(format!("rule-{rule}").as_str())).await;
    }
    watch.flush();
    let shown = metrics.render();
    let series = shown.lines().filter(|line| line.starts_with("ratelimit_decisions_total{")).count();
    assert_eq!(series, 2_001);
    assert!(
        shown.contains(
            "rule=\"__overflow__\",limit=\"__overflow__\",outcome=\"allowed\",source=\"store\"} 3000"
        )
    );
    assert_eq!(watch.snapshot().totals.allowed, 5_000);
}

#[tokio::test]
async fn the_key_that_is_denied_most_leads_the_list_under_a_hash_that_the_operator_can_look_up() {
    let (watch, metrics, clock) = watch(|builder| builder);
    let limiter = limiter(&watch, &clock);
    for (key, times) in [("quiet", 12), ("noisy", 100), ("calm", 5)] {
        for _ in 0..times {
            let _decision = limiter.allow(key, ["free"], 1).await.unwrap();
        }
    }
    let top = watch.snapshot().top_denied;
    let mask = |key| watch.mask(Key::new(key).unwrap());
    assert_eq!(top.iter().map(|top| top.count).collect::<Vec<_>>(), [90, 2]);
    assert_eq!(top[0].key, mask("noisy"));
    watch.flush();
    let everything = format!("{}{:?}", metrics.render(), watch.snapshot());
    assert!(!everything.contains("noisy"), "a key is shown by name: {everything}");
}

#[tokio::test]
async fn under_load_those_denied_most_are_shown_near_the_truth_though_callers_come_in_turn() {
    let (watch, _, clock) = watch(|builder| builder.show_keys(true));
    let limiter = limiter(&watch, &clock);
    let quiet: Vec<_> = (0..80).map(|key| format!("quiet:{key}")).collect();
    // A hundred thousand denials per second, of which a thread samples two thousand.
    for turn in 0..1_000_000_usize {
        let key = if turn % 5 == 0 { "noisy" } else { quiet[turn / 5 * 4 % 80 + turn % 5 - 1].as_str() };
        let charges = limiter.charges(key, ["never"], 1).unwrap();
        let _decision = limiter.decide(charges).await;
        clock.advance(Duration::from_micros(10));
    }
    let top = watch.snapshot().top_denied;
    assert_eq!(top[0].key, "noisy");
    let near = |count: u64, truth: u64, error: u64| count.abs_diff(truth) <= error;
    assert!(near(top[0].count, 200_000, 20_000), "a fifth of all is within a tenth: {top:?}");
    assert!(top[1..].iter().all(|top| near(top.count, 10_000, 5_000)), "a hundredth within a half: {top:?}");
}

#[test]
fn who_holds_permits_is_shown_by_the_same_names() {
    for shown in [false, true] {
        let (watch, _, _clock) = watch(|builder| builder.show_keys(shown));
        assert!(watch.snapshot().permits.is_empty());
        let jobs = LimitPermits { limit: "jobs".to_owned(), of: 5, held: 3, ..LimitPermits::default() };
        let figures =
            PermitFigures { limits: vec![jobs.clone()], holding_most: vec![("noisy".to_owned(), 3)] };
        watch.set_permit_probe(Arc::new(move || figures.clone()));
        let snapshot = watch.snapshot();
        assert_eq!(snapshot.permits, [jobs]);
        let key = if shown { "noisy".to_owned() } else { watch.mask(Key::new("noisy").unwrap()) };
        assert_eq!(snapshot.top_holding, [TopKey { key, count: 3, error: 0 }]);
    }
}

#[tokio::test]
async fn names_are_shown_where_the_operator_allows_them() {
    let (watch, _, clock) = watch(|builder| builder.show_keys(true));
    let limiter = limiter(&watch, &clock);
    for _ in 0..11 {
        let _decision = limiter.allow("noisy", ["free"], 1).await.unwrap();
    }
    let snapshot = watch.snapshot();
    assert_eq!((snapshot.top_denied[0].key.as_str(), snapshot.top_spending[0].count), ("noisy", 10));
    assert_eq!(kinds(&watch), ["key_denied"]);
}

#[tokio::test]
async fn a_request_that_a_shadow_rule_would_deny_spends_nothing() {
    let (watch, _, clock) = watch(|builder| builder.show_keys(true));
    let limiter = limiter(&watch, &clock);
    for _ in 0..15 {
        let charges = limiter.charges("noisy", ["free"], 1).unwrap();
        let _ruling = limiter.decide(Ask::from(charges).shadow(true)).await;
    }
    let snapshot = watch.snapshot();
    assert_eq!((snapshot.top_denied.len(), snapshot.top_spending[0].count), (0, 10));
}

#[tokio::test]
async fn a_key_is_told_of_once_a_minute_however_often_it_is_denied() {
    let (watch, _, clock) = watch(|builder| builder);
    let limiter = limiter(&watch, &clock);
    for _ in 0..2 {
        for _ in 0..50 {
            let _decision = limiter.allow("noisy", ["free"], 1).await.unwrap();
        }
        clock.advance(Duration::from_secs(60));
    }
    assert_eq!(kinds(&watch), ["key_denied", "key_denied"]);
}

#[tokio::test]
async fn a_flood_of_denied_keys_and_tenants_is_told_within_a_budget_and_the_rest_as_a_count() {
    let (watch, metrics, clock) = watch(|builder| builder);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let one = Plan::new("one", Limit::per_hour(1).burst(1)).unwrap();
    let limiter = RateLimiter::builder().store(store).plans([one]).observer(watch.clone()).build();
    let mut events = watch.subscribe();
    for _ in 0..3 {
        for user in 0..5_000 {
            let name = format!("user:{user}");
            let charges = limiter.charges(&name, ["one"], 1).unwrap();
            let _decision = limiter.decide(Ask::from(charges).tenant(&name)).await;
            clock.advance(Duration::from_millis(1));
        }
    }
    let mut told: HashMap<&'static str, HashSet<String>> = HashMap::new();
    while let Ok(event) = events.try_recv() {
        let name = match &event.kind {
            EventKind::KeyDenied { key: name, .. }
            | EventKind::TenantNear { tenant: name, .. }
            | EventKind::TenantOver { tenant: name, .. } => name.clone(),
            other => panic!("{other:?}"),
        };
        assert!(told.entry(event.kind.name()).or_default().insert(name), "once in a minute");
    }
    for kind in ["key_denied", "tenant_near", "tenant_over"] {
        assert!((100..=200).contains(&told[kind].len()), "{kind}: {}", told[kind].len());
    }
    clock.advance(Duration::from_secs(60));
    watch.tick();
    let mut left_out = HashMap::new();
    while let Ok(event) = events.try_recv() {
        if let EventKind::EventsSuppressed { kind, count } = event.kind {
            left_out.insert(kind, count);
        }
    }
    assert_eq!(left_out.len(), 3, "{left_out:?}");
    for (kind, count) in left_out {
        assert!((500..5_000).contains(&count), "{kind}: {count}");
        let line = format!("ratelimit_events_suppressed_total{{kind=\"{kind}\"}} {count}\n");
        assert!(metrics.render().contains(&line), "{line} in {}", metrics.render());
    }
}

#[tokio::test]
async fn a_store_whose_clock_is_put_right_repeats_no_event() {
    let (watch, _, _) = watch(|builder| builder);
    let store_clock = FakeClock::default();
    let limiter = limiter(&watch, &store_clock);
    for hour in 0..24 {
        for _ in 0..20 {
            let _decision = limiter.allow("noisy", ["free"], 1).await.unwrap();
        }
        let hours = Duration::from_secs(3_600);
        if hour % 2 == 0 { store_clock.advance(hours) } else { store_clock.step_back(hours) }
    }
    assert_eq!(kinds(&watch), ["key_denied"]);
}

#[tokio::test]
async fn a_tenant_is_told_of_at_eighty_percent_and_at_the_limit() {
    let (watch, _, clock) = watch(|builder| builder);
    let limiter = limiter(&watch, &clock);
    for _ in 0..20 {
        let charges = limiter.charges("tenant:acme", ["free"], 1).unwrap();
        let _decision = limiter.decide(Ask::from(charges).rule("api").tenant("acme")).await;
    }
    assert_eq!(kinds(&watch), ["tenant_over", "key_denied", "tenant_near"]);
    let (acme, limit) = ("acme".to_owned(), "free".to_owned());
    let near = EventKind::TenantNear { tenant: acme, limit, used_percent: 80, window_end_ms: None };
    assert_eq!(watch.snapshot().events[2].kind, near);
}

#[tokio::test]
async fn a_tenant_is_told_of_its_quota_once_in_each_window_at_eighty_percent_and_at_its_end() {
    let (watch, _, clock) = watch(|builder| builder);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    // The rate has fewer tokens, so that the quota does not bind before it is used up.
    let limits = [
        ("burst", Limit::per_minute(4).build().unwrap()),
        ("day", Limit::quota(10).per_day().zone("Europe/Berlin").unwrap().build().unwrap()),
    ];
    let plan = Plan::chain("gold", limits).unwrap();
    let limiter = RateLimiter::builder()
        .store(store)
        .plans([plan])
        .observer(watch.clone())
        .clock(clock.clone())
        .build();
    let mut events = watch.subscribe();
    let mut told = Vec::new();
    for minute in 0..2 * 1_440 {
        let charges = limiter.charges("tenant:acme", ["gold"], 1).unwrap();
        let _decision = limiter.decide(Ask::from(charges).tenant("acme")).await;
        clock.advance(Duration::from_secs(60));
        while let Ok(event) = events.try_recv() {
            match event.kind {
                EventKind::TenantNear { limit, used_percent, window_end_ms, .. } => {
                    told.push((minute, limit, used_percent, window_end_ms));
                }
                EventKind::TenantOver { limit, window_end_ms, .. } => {
                    told.push((minute, limit, 100, window_end_ms));
                }
                _ => {}
            }
        }
    }
    // The clock starts on 12 January 1970 at 13:46:40 UTC, and Berlin is an hour ahead.
    let ends = [0, 1, 2].map(|day| Some((12 * 86_400 - 3_600 + day * 86_400) * 1_000));
    let first = [554, 554 + 1_440];
    let day = |minute: u64, percent, end| (minute, "gold/day".to_owned(), percent, end);
    let expected = [
        day(7, 80, ends[0]),
        day(9, 100, ends[0]),
        day(first[0] + 7, 80, ends[1]),
        day(first[0] + 9, 100, ends[1]),
        day(first[1] + 7, 80, ends[2]),
        day(first[1] + 9, 100, ends[2]),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn minutes_sum_what_rules_and_tenants_were_allowed_and_denied() {
    let (watch, _, clock) = watch(|builder| builder);
    let limiter = limiter(&watch, &clock);
    for _ in 0..15 {
        let charges = limiter.charges("tenant:acme", ["free"], 1).unwrap();
        let _decision = limiter.decide(Ask::from(charges).rule("api").tenant("acme")).await;
    }
    let rows = watch.minutes(0, u64::MAX);
    let sums: Vec<_> =
        rows.iter().map(|row| (row.by, row.name.as_str(), row.counts.allowed, row.counts.denied)).collect();
    assert_eq!(sums, [(GroupBy::Rule, "api", 10, 5), (GroupBy::Tenant, "acme", 10, 5)]);
}

#[tokio::test]
async fn failures_are_counted_by_policy_and_reason() {
    let (watch, metrics, clock) = watch(|builder| builder);
    let free = Plan::new("free", Limit::per_second(1).burst(10)).unwrap();
    let limiter = RateLimiter::builder().store(down()).plans([free]).observer(watch.clone()).build();
    let local = [FailurePolicy::Local; 12];
    for policy in [FailurePolicy::Allow, FailurePolicy::Deny, FailurePolicy::Deny].into_iter().chain(local) {
        let charges = limiter.charges("ann", ["free"], 1).unwrap();
        let _decision = limiter.decide(Ask::from(charges).on_failure(policy)).await;
    }
    watch.tick();
    let shown = metrics.render();
    for line in [
        "ratelimit_failopen_total{reason=\"badresponse\"} 1",
        "ratelimit_failclosed_total{reason=\"badresponse\"} 2",
        "ratelimit_failclosed_total{reason=\"rediserror\"} 0",
        "ratelimit_local_total{reason=\"badresponse\"} 12",
        "ratelimit_local_total{reason=\"breakeropen\"} 0",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    assert_eq!(watch.store_state(), (StoreState::Well, None), "no breaker is open, and no answer was late");
    let decisions = StorelessCounts { passed: 1, refused: 2, local: 12 };
    assert_eq!(watch.store_seconds()[0].storeless, decisions);
    clock.advance(Duration::from_secs(1));
    watch.tick();
    let minutes: u64 = watch.store_minutes().iter().map(|row| row.storeless.all()).sum();
    assert_eq!(minutes, 15, "the minutes keep what was decided without the store");
    assert_eq!(kinds(&watch), ["key_denied"]);
}

#[tokio::test]
async fn a_late_decision_makes_the_store_slow_and_only_trouble_makes_it_lost() {
    let trouble = Arc::new(Mutex::new(None::<String>));
    let asked = Arc::clone(&trouble);
    let health =
        move || StoreHealth { timeout_ms: 50, trouble: asked.lock().clone(), ..StoreHealth::default() };
    let (watch, metrics, clock) = watch(|builder| builder.health(health));
    let free = Plan::new("free", Limit::per_second(1).burst(10)).unwrap();
    let up = RateLimiter::builder()
        .store(MemoryStore::new())
        .plans([free.clone()])
        .observer(watch.clone())
        .build();
    let timed_out = FaultyStore::<ModelStore<FakeClock>>::always(CallFault::Fail(StoreError::TimedOut(
        Duration::from_millis(50),
    )));
    let late = RateLimiter::builder().store(timed_out).plans([free]).observer(watch.clone()).build();
    let tick = || {
        clock.advance(Duration::from_secs(1));
        watch.tick();
        let shown = metrics.render();
        let one = StoreState::ALL.iter().filter(|state| {
            shown.contains(&format!("ratelimit_store_state{{state=\"{}\"}} 1", state.as_str()))
        });
        assert_eq!(one.collect::<Vec<_>>(), [&watch.store_state().0], "{shown}");
        watch.store_state()
    };
    for user in 0..1_499 {
        let _decision = up.allow(&user.to_string(), "free", 1).await.unwrap();
    }
    let _decision = late.allow("ann", "free", 1).await.unwrap();
    let slow = "1 of 1,500 decisions got no answer within 50 ms in the last 10 s";
    assert_eq!(tick(), (StoreState::Slow, Some(slow.to_owned())));
    for _ in 1..10 {
        assert_eq!(tick().0, StoreState::Slow);
    }
    assert_eq!(tick(), (StoreState::Well, None), "ten seconds later");
    let _decision = late.allow("ann", "free", 1).await.unwrap();
    assert_eq!(tick().0, StoreState::Slow, "again, and reported once a minute");
    *trouble.lock() = Some("the last 5 requests got no answer in time".to_owned());
    let _decision = late.allow("ann", "free", 1).await.unwrap();
    assert_eq!(tick(), (StoreState::Lost, trouble.lock().clone()));
    let outage = watch.snapshot().outage.expect("since the loss");
    assert_eq!(outage.decisions, StorelessCounts { passed: 1, ..StorelessCounts::default() });
    *trouble.lock() = None;
    assert_eq!(tick().0, StoreState::Lost, "not yet convinced");
    assert_eq!(tick(), (StoreState::Well, None), "what was decided during the outage makes nothing slow");
    assert!(watch.snapshot().outage.is_none());
    let mut events = kinds(&watch);
    events.reverse();
    assert_eq!(events, ["store_slow", "store_lost", "store_recovered"]);
}

#[tokio::test]
async fn a_slow_cluster_names_the_nodes_that_were_late() {
    let late = Arc::new(Mutex::new([0_u64; 3]));
    let asked = Arc::clone(&late);
    let nodes = ["10.0.0.1:7001", "10.0.0.2:7001", "10.0.0.3:7001"];
    let health = move || StoreHealth {
        timeout_ms: 50,
        late_by_node: nodes
            .iter()
            .zip(*asked.lock())
            .map(|(node, late)| ((*node).to_owned(), late))
            .collect(),
        ..StoreHealth::default()
    };
    let (watch, _, clock) = watch(|builder| builder.health(health));
    let free = Plan::new("free", Limit::per_second(1).burst(10)).unwrap();
    let timed_out = FaultyStore::<ModelStore<FakeClock>>::always(CallFault::Fail(StoreError::TimedOut(
        Duration::from_millis(50),
    )));
    let limiter = RateLimiter::builder().store(timed_out).plans([free]).observer(watch.clone()).build();
    let tick = || {
        clock.advance(Duration::from_secs(1));
        watch.tick();
        watch.store_state()
    };
    assert_eq!(tick(), (StoreState::Well, None));
    for _ in 0..3 {
        let _decision = limiter.allow("ann", "free", 1).await.unwrap();
    }
    *late.lock() = [0, 1, 2];
    let told =
        "3 of 3 decisions got no answer within 50 ms in the last 10 s (10.0.0.3:7001: 2, 10.0.0.2:7001: 1)";
    assert_eq!(tick(), (StoreState::Slow, Some(told.to_owned())));
    for _ in 0..10 {
        let _later = tick();
    }
    assert_eq!(tick(), (StoreState::Well, None));
    let _decision = limiter.allow("ann", "free", 1).await.unwrap();
    *late.lock() = [1, 1, 2];
    let told = "1 of 1 decisions got no answer within 50 ms in the last 10 s (10.0.0.1:7001: 1)";
    assert_eq!(tick(), (StoreState::Slow, Some(told.to_owned())), "what is past is not named again");
}

#[tokio::test]
async fn an_open_breaker_is_a_gauge_and_an_event() {
    let trouble = Some("the last 5 requests got no answer in time".to_owned());
    let open = move || StoreHealth {
        breakers_open: 1,
        waiting: 7,
        trouble: trouble.clone(),
        ..StoreHealth::default()
    };
    let (watch, metrics, _) = watch(|builder| builder.health(open));
    watch.tick();
    let shown = metrics.render();
    assert!(
        shown.contains("ratelimit_breaker_state 1") && shown.contains("ratelimit_queue_depth 7"),
        "{shown}"
    );
    assert_eq!(kinds(&watch), ["store_lost"]);
}

#[tokio::test]
async fn a_refused_configuration_is_counted_and_told() {
    let (watch, metrics, _) = watch(|builder| builder);
    watch.config_reloaded();
    watch.config_refused("line 3: no such plan");
    assert!(metrics.render().contains("ratelimit_config_reloads_total{result=\"refused\"} 1"));
    assert_eq!(kinds(&watch), ["config_refused", "config_reloaded"]);
}

#[tokio::test]
async fn a_timed_store_shows_its_latency_by_operation() {
    let (watch, metrics, clock) = watch(|builder| builder);
    let store = TimedStore::every_call(MemoryStore::builder().clock(clock).build(), watch.clone());
    let free = Plan::new("free", Limit::per_second(1).burst(10)).unwrap();
    let limiter = RateLimiter::builder().store(store).plans([free]).build();
    let _spent = limiter.allow("ann", ["free"], 1).await.unwrap();
    let _looked = limiter.peek("ann", ["free"], 1).await.unwrap();
    watch.tick();
    assert_eq!(watch.snapshot().store_latency.calls, 2);
    assert!(metrics.render().contains("ratelimit_store_duration_seconds_count{op=\"peek\"} 1"));
}

#[tokio::test]
async fn a_call_that_must_be_waited_for_is_timed_once() {
    let (watch, metrics, _) = watch(|builder| builder);
    let free = Plan::new("free", Limit::per_second(1).burst(10)).unwrap();
    let store = TimedStore::every_call(down(), watch.clone());
    let limiter = RateLimiter::builder().store(store).plans([free]).build();
    let _decision = limiter.allow("ann", ["free"], 1).await.unwrap();
    assert!(metrics.render().contains("ratelimit_store_duration_seconds_count{op=\"spend\"} 1"));
}

/// The operation of a row of the table. A new row does not compile without one.
const fn operation(kind: OperationKind, permit: &PermitId, reservation: ReservationId) -> Operation<'_> {
    match kind {
        OperationKind::Spend => Operation::Spend,
        OperationKind::Peek => Operation::Peek,
        OperationKind::SpendUpTo => Operation::SpendUpTo,
        OperationKind::Charge => Operation::Charge,
        OperationKind::Refund
        | OperationKind::RefundThisWindow
        | OperationKind::RefundSpentAt
        | OperationKind::RefundOnce => Operation::Refund { spent: SpendTime::Unknown, once: None },
        OperationKind::Reserve => Operation::Reserve(reservation),
        OperationKind::Settle => Operation::Settle(reservation, &[Cost::ONE]),
        OperationKind::Acquire => Operation::Permit(permit, PermitStep::Acquire),
        OperationKind::Retake => Operation::Permit(permit, PermitStep::Retake),
        OperationKind::Renew => Operation::Permit(permit, PermitStep::Renew),
        OperationKind::Release => Operation::Permit(permit, PermitStep::Release(SpendTime::Unknown)),
        OperationKind::Reset => Operation::Reset,
    }
}

#[tokio::test]
async fn every_operation_that_fails_is_counted_by_its_name_and_the_reason() {
    let (key, free) = (Key::new("ann").unwrap(), Plan::new("free", Limit::per_second(1)).unwrap());
    let charges = Charges::one(key, &free.limits()[0], Cost::ONE).unwrap();
    let permit = PermitId::new(Micros::new(1), Duration::ZERO, 1, "").unwrap();
    let reservation = ReservationId::new(1, Duration::from_secs(60)).unwrap();
    for why in [
        StoreError::Unavailable { message: "refused".into(), may_have_run: false },
        StoreError::TimedOut(Duration::from_millis(50)),
        StoreError::BadResponse("nonsense".into()),
        StoreError::BadTypes("a newer version".into()),
        StoreError::BreakerOpen,
        StoreError::Overloaded(7),
    ] {
        let (watch, metrics, _) = watch(|builder| builder);
        let reason = why.reason().as_str();
        let fail = || FaultyStore::always(CallFault::Fail(why.clone()));
        let store = TimedStore::every_call(fail(), watch.clone());
        let unwatched = TimedStore::untimed(fail(), watch.clone());
        for &kind in OperationKind::ALL {
            let operation = operation(kind, &permit, reservation);
            let name = operation.name();
            let counted = || {
                let series = format!("ratelimit_store_failures_total{{op=\"{name}\",reason=\"{reason}\"}} ");
                let shown = metrics.render();
                let value = shown.lines().find_map(|line| line.strip_prefix(&series)?.parse::<u64>().ok());
                value.unwrap_or_else(|| panic!("no {series}in {shown}"))
            };
            let before = counted();
            let _failed = store.ask(operation, &charges).await.unwrap_err();
            assert_eq!(counted(), before + 1, "{kind:?}, {reason}");
            let _failed = unwatched.ask(operation, &charges).await.unwrap_err();
            assert_eq!(counted(), before + 1, "what is not timed is not counted");
        }
    }
}

#[tokio::test]
async fn a_call_that_is_not_sent_has_no_duration() {
    for timed in [TimedStore::every_call, TimedStore::sampled] {
        let (watch, metrics, _) = watch(|builder| builder);
        let free = Plan::new("free", Limit::per_second(1).burst(10)).unwrap();
        let limiter =
            RateLimiter::builder().store(timed(FaultyStore::down(), watch.clone())).plans([free]).build();
        for _ in 0..3 {
            let _looked = limiter.peek("ann", ["free"], 1).await.unwrap();
        }
        watch.tick();
        let shown = metrics.render();
        let counted = "ratelimit_store_failures_total{op=\"peek\",reason=\"breakeropen\"} 3";
        assert!(shown.contains(counted), "{shown}");
        assert!(shown.contains("ratelimit_store_duration_seconds_count{op=\"peek\"} 0"), "{shown}");
        assert_eq!(watch.snapshot().store_latency.calls, 0);
    }
}

#[tokio::test]
async fn a_sampled_store_is_timed_at_once_and_then_one_call_of_a_thousand_or_more_often() {
    let (watch, _, clock) = watch(|builder| builder);
    let store = TimedStore::sampled(MemoryStore::builder().clock(clock).build(), watch.clone());
    let wide = Plan::new("wide", Limit::per_second(1_000_000_000)).unwrap();
    let limiter = RateLimiter::builder().store(store).plans([wide]).build();
    let _first = limiter.allow("ann", ["wide"], 1).await.unwrap();
    watch.tick();
    assert_eq!(watch.snapshot().store_latency.calls, 1);
    for _ in 0..102_400 {
        let _decision = limiter.allow("ann", ["wide"], 1).await.unwrap();
    }
    watch.tick();
    let calls = watch.snapshot().store_latency.calls;
    assert!((100..60_000).contains(&calls), "{calls}");
}

#[tokio::test]
async fn a_store_that_is_timed_throughout_is_so_beside_one_that_is_not() {
    let (watch, _, clock) = watch(|builder| builder);
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    let wide = || [Plan::new("wide", Limit::per_second(1_000_000_000)).unwrap()];
    let sampled = TimedStore::sampled(store(), watch.clone());
    let sampled = RateLimiter::builder().store(sampled).plans(wide()).build();
    for _ in 0..20_000 {
        let _decision = sampled.allow("ann", ["wide"], 1).await.unwrap();
    }
    watch.tick();
    let before = watch.snapshot().store_latency.calls;
    let throughout = TimedStore::every_call(store(), watch.clone());
    let throughout = RateLimiter::builder().store(throughout).plans(wide()).build();
    for _ in 0..100 {
        let _decision = throughout.allow("ann", ["wide"], 1).await.unwrap();
    }
    watch.tick();
    assert_eq!(watch.snapshot().store_latency.calls - before, 100);
}

#[tokio::test]
async fn levels_say_how_full_buckets_are_when_asked() {
    let (watch, _, clock) = watch(|builder| builder);
    let limiter = limiter(&watch, &clock);
    for _ in 0..10 {
        let _decision = limiter.allow("ann", ["free"], 1).await.unwrap();
    }
    let level = &watch.snapshot().levels[0];
    assert_eq!((level.limit.as_str(), level.shape.as_str(), level.looked_at), ("free", "10, 1/s", 10));
    assert!((level.mean - 0.45).abs() < 1e-9 && level.lowest.abs() < 1e-9, "{level:?}");
}
