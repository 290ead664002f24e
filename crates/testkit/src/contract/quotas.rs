//! Promises about quotas.

use std::time::Duration;

use spile_calendar::{Calendar, CalendarLimit};
use spile_core::{Clock, Limit, LimitName, Store};

use super::StoreUnderTest;
use super::subject::built;

/// Sets the clock to this long before the next window of the quota, and returns the quota.
fn before_the_next_window(subject: &StoreUnderTest<impl Store>, quota: Limit, left: Duration) -> Limit {
    let calendar = Calendar::of(&quota).expect("a calendar");
    subject.clock.set(calendar.window_at(subject.clock.now()).end - left);
    quota
}

/// All of it comes back at once, when the window ends.
pub async fn a_quota_comes_back_when_the_next_window_starts_and_not_a_microsecond_before(
    subject: StoreUnderTest<impl Store>,
) {
    for (key, quota) in [
        ("minute", built(Limit::quota(5).per_minute())),
        ("day", built(Limit::quota(5).per_day().zone("America/New_York").expect("a zone"))),
        (
            "month",
            built(
                Limit::quota(5).per_month().zone("Europe/Berlin").expect("a zone").anchor(31).expect("a day"),
            ),
        ),
    ] {
        let limit = before_the_next_window(&subject, quota, Duration::from_secs(50));
        assert!(subject.spend(key, limit, 3).await.allowed(), "{key}");
        subject.wait(Duration::from_secs(49));
        assert_eq!(subject.left(key, limit).await, 2, "{key}: no token comes back within the window");
        assert!(subject.spend(key, limit, 2).await.allowed(), "{key}");
        let denied = subject.spend(key, limit, 1).await;
        assert_eq!((denied.allowed(), denied.retry_after()), (false, Duration::from_secs(1)), "{key}");
        assert_eq!(denied.reset_after(), Duration::from_secs(1), "{key}");
        subject.wait(Duration::from_micros(999_999));
        assert!(!subject.spend(key, limit, 1).await.allowed(), "{key}: the window has not ended");
        subject.wait(Duration::from_micros(1));
        assert!(subject.spend(key, limit, 5).await.allowed(), "{key}: all of it is back");
        assert!(!subject.spend(key, limit, 0).await.allowed(), "{key}");
    }
}

/// A quota is a limit like any other in a chain.
pub async fn a_quota_and_a_rate_are_spent_together_or_not_at_all(subject: StoreUnderTest<impl Store>) {
    let quota =
        before_the_next_window(&subject, built(Limit::quota(10).per_hour()), Duration::from_secs(600));
    let chain = |cost| {
        [("ann", "p/rate", built(Limit::per_second(1).burst(4)), cost), ("ann", "p/hour", quota, cost)]
    };
    assert!(subject.spend_chain(&chain(4)).await.allowed());
    let denied = subject.spend_chain(&chain(1)).await;
    assert_eq!(denied.limited_by().map(LimitName::as_str), Some("p/rate"));
    assert_eq!(denied.limits()[1].remaining(), 6, "what the rate denied was not taken from the quota");
    subject.wait(Duration::from_secs(4));
    assert!(subject.spend_chain(&chain(4)).await.allowed());
    subject.wait(Duration::from_secs(4));
    let denied = subject.spend_chain(&chain(3)).await;
    assert_eq!(denied.limited_by().map(LimitName::as_str), Some("p/hour"));
    assert_eq!(denied.limits()[0].remaining(), 4);
    assert_eq!(denied.retry_after(), Duration::from_secs(592));
}

/// A caller that moves to another plan within a window gets its quota, less what was used.
pub async fn a_changed_quota_keeps_what_was_used(subject: StoreUnderTest<impl Store>) {
    let quota = |tokens| built(Limit::quota(tokens).per_month());
    let small =
        before_the_next_window(&subject, built(Limit::quota(100).per_month()), Duration::from_secs(3_600));
    assert!(subject.spend("moves", small, 30).await.allowed());
    assert_eq!(subject.left("moves", quota(200)).await, 170);
    assert!(subject.spend("moves", quota(200), 20).await.allowed());
    assert_eq!(subject.left("moves", small).await, 50);
    assert_eq!(subject.owed("moves", quota(40)).await, 10);
    assert!(!subject.spend("moves", quota(40), 1).await.allowed());
    subject.refund("moves", small, 100).await;
    assert_eq!(subject.left("moves", quota(40)).await, 40, "and no refund rises above it");
}

/// The level of a rate is no part of the quota that replaces it: a caller would keep it until the window ends.
pub async fn a_quota_in_place_of_a_rate_is_unused(subject: StoreUnderTest<impl Store>) {
    let quota =
        before_the_next_window(&subject, built(Limit::quota(100).per_month()), Duration::from_secs(3_600));
    let rate = built(Limit::per_hour(10));
    assert!(subject.spend("becomes", rate, 8).await.allowed());
    assert_eq!(subject.left("becomes", quota).await, 100);
    assert!(subject.spend("becomes", quota, 30).await.allowed());
    assert_eq!(subject.left("becomes", quota).await, 70);
}

/// A late charge counts in the window in which it is made.
pub async fn a_debt_of_a_quota_ends_with_its_window(subject: StoreUnderTest<impl Store>) {
    let limit = before_the_next_window(&subject, built(Limit::quota(10).per_day()), Duration::from_secs(60));
    assert_eq!(subject.charge(&[("late", "limit", limit, 23)]).await, 3);
    assert_eq!(subject.owed("late", limit).await, 10);
    assert!(!subject.spend("late", limit, 0).await.allowed());
    subject.wait(Duration::from_secs(60));
    assert_eq!(subject.left("late", limit).await, 10);
}

/// A clock that steps back into the window before brings no quota back.
pub async fn a_clock_that_steps_back_over_the_start_of_a_window_mints_nothing(
    subject: StoreUnderTest<impl Store>,
) {
    let limit = before_the_next_window(&subject, built(Limit::quota(5).per_hour()), Duration::from_secs(10));
    assert!(subject.spend("back", limit, 5).await.allowed());
    subject.wait(Duration::from_secs(20));
    assert!(subject.spend("back", limit, 5).await.allowed());
    assert!(subject.spend("partly", limit, 2).await.allowed());
    for back in [Duration::from_secs(20), Duration::from_secs(3_000)] {
        subject.clock.step_back(back);
        assert!(!subject.spend("back", limit, 1).await.allowed(), "{back:?}");
        subject.wait(back);
        assert!(!subject.spend("back", limit, 1).await.allowed(), "{back:?}");
    }
    subject.clock.step_back(Duration::from_secs(20));
    assert!(subject.spend("partly", limit, 1).await.allowed());
    subject.wait(Duration::from_secs(20));
    assert_eq!(subject.left("partly", limit).await, 2, "what is spent before its window counts in it");
}
