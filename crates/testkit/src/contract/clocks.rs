//! Promises about clocks that jump: they never create tokens, and never lock a caller out.

use std::time::Duration;

use spile_core::{Limit, Store};

use super::StoreUnderTest;
use super::subject::built;

/// Jitter between clocks is waited out, not paid out, also by callers who ask at cost 0.
pub async fn a_clock_that_steps_back_a_little_mints_nothing(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_second(10));
    for (key, cost) in [("jitters", 1), ("jitters at 0", 0)] {
        subject.drain(key, limit).await;
        subject.clock.step_back(Duration::from_millis(500));
        let denied = subject.spend(key, limit, cost).await;
        assert!(!denied.allowed());
        assert_eq!(denied.retry_after(), Duration::from_millis(600), "the clock has to catch up first");
        subject.wait(Duration::from_millis(599));
        assert!(!subject.spend(key, limit, cost).await.allowed());
        subject.wait(Duration::from_millis(1));
        assert!(subject.spend(key, limit, cost).await.allowed());
    }
}

/// A clock that loses an hour locks no caller out for an hour, at any cost.
pub async fn a_clock_that_steps_far_back_locks_nobody_out(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_second(10));
    for (key, cost) in [("steps", 1), ("steps at 0", 0)] {
        subject.drain(key, limit).await;
        subject.clock.step_back(Duration::from_secs(3_600));
        let denied = subject.spend(key, limit, cost).await;
        assert!(!denied.allowed(), "nothing was minted");
        assert_eq!(denied.retry_after(), Duration::from_millis(100));
        subject.wait(Duration::from_millis(100));
        assert!(subject.spend(key, limit, cost).await.allowed(), "the denial rebased the bucket");
        assert_eq!(subject.left(key, limit).await, 1 - cost);
    }
}

/// No time, no tokens.
pub async fn a_frozen_clock_mints_nothing(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_second(1_000_000).burst(5));
    subject.drain("frozen", limit).await;
    for _ in 0..100 {
        assert!(!subject.spend("frozen", limit, 1).await.allowed());
    }
}

/// A jump is worth one burst at most.
pub async fn a_clock_that_jumps_ahead_fills_to_the_capacity_only(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_second(10).burst(20));
    subject.drain("jumps", limit).await;
    subject.wait(Duration::from_secs(3_600 * 24 * 3_650));
    assert_eq!(subject.left("jumps", limit).await, 20);
}

/// A clock that swings by up to a second admits no more than its latest moment allows.
pub async fn a_clock_that_swings_by_a_second_mints_nothing(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_second(10));
    for (key, swing_ms) in [("swings", 300), ("swings further", 1_000)] {
        subject.drain(key, limit).await;
        let mut admitted = 0;
        for _ in 0..50 {
            subject.wait(Duration::from_millis(swing_ms));
            admitted += u64::from(subject.spend(key, limit, 1).await.allowed());
            subject.clock.step_back(Duration::from_millis(swing_ms));
            admitted += u64::from(subject.spend(key, limit, 1).await.allowed());
            let _asked = subject.spend(key, limit, 0).await;
        }
        let most = swing_ms / 100;
        assert!(admitted <= most, "{swing_ms} ms at 10/s are worth {most} tokens, not {admitted}");
    }
}

/// A clock that swings further is followed: each swing ahead is worth the time that it shows, and no more.
pub async fn a_clock_that_swings_far_gives_what_the_time_it_shows_is_worth(
    subject: StoreUnderTest<impl Store>,
) {
    let limit = built(Limit::per_second(1).burst(10));
    subject.drain("swings far", limit).await;
    let (swings, seconds) = (20, 5);
    let mut admitted = 0;
    for _ in 0..swings {
        subject.wait(Duration::from_secs(seconds));
        admitted += subject.spend_up_to(&[("swings far", "limit", limit, 10)]).await.granted.whole_tokens();
        subject.clock.step_back(Duration::from_secs(seconds));
        let _asked = subject.spend("swings far", limit, 0).await;
    }
    assert_eq!(admitted, swings * seconds);
}
