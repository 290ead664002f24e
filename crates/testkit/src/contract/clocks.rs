//! Promises about clocks that jump: they never create tokens, and never lock a caller out.

use std::time::Duration;

use spile_core::{Limit, Store};

use super::StoreUnderTest;

/// Jitter between clocks is waited out, not paid out.
pub async fn a_clock_that_steps_back_a_little_mints_nothing(subject: StoreUnderTest<impl Store>) {
    let limit = Limit::per_second(10);
    subject.drain("jitters", limit).await;
    subject.clock.step_back(Duration::from_millis(500));
    let denied = subject.spend("jitters", limit, 1).await;
    assert!(!denied.allowed());
    assert_eq!(denied.retry_after(), Duration::from_millis(600), "the clock has to catch up first");
    subject.wait(Duration::from_millis(599));
    assert!(!subject.spend("jitters", limit, 1).await.allowed());
    subject.wait(Duration::from_millis(1));
    assert!(subject.spend("jitters", limit, 1).await.allowed());
}

/// An hour lost is not an hour locked out.
pub async fn a_clock_that_steps_far_back_locks_nobody_out(subject: StoreUnderTest<impl Store>) {
    let limit = Limit::per_second(10);
    subject.drain("steps", limit).await;
    subject.clock.step_back(Duration::from_secs(3_600));
    let denied = subject.spend("steps", limit, 1).await;
    assert!(!denied.allowed(), "nothing was minted");
    assert_eq!(denied.retry_after(), Duration::from_millis(100));
    subject.wait(Duration::from_millis(100));
    assert!(subject.spend("steps", limit, 1).await.allowed(), "the denial rebased the bucket");
    assert!(!subject.spend("steps", limit, 1).await.allowed());
}

/// No time, no tokens.
pub async fn a_frozen_clock_mints_nothing(subject: StoreUnderTest<impl Store>) {
    let limit = Limit::per_second(1_000_000).burst(5);
    subject.drain("frozen", limit).await;
    for _ in 0..100 {
        assert!(!subject.spend("frozen", limit, 1).await.allowed());
    }
}

/// A jump is worth one burst at most.
pub async fn a_clock_that_jumps_ahead_fills_to_the_capacity_only(subject: StoreUnderTest<impl Store>) {
    let limit = Limit::per_second(10).burst(20);
    subject.drain("jumps", limit).await;
    subject.wait(Duration::from_secs(3_600 * 24 * 3_650));
    assert_eq!(subject.left("jumps", limit).await, 20);
}

/// A clock that swings back and forth admits no more than its latest moment allows.
pub async fn an_oscillating_clock_mints_nothing(subject: StoreUnderTest<impl Store>) {
    let limit = Limit::per_second(10);
    subject.drain("swings", limit).await;
    let mut admitted = 0;
    for _ in 0..50 {
        subject.wait(Duration::from_millis(300));
        admitted += u32::from(subject.spend("swings", limit, 1).await.allowed());
        subject.clock.step_back(Duration::from_millis(300));
        admitted += u32::from(subject.spend("swings", limit, 1).await.allowed());
    }
    assert!(admitted <= 3, "300 ms at 10/s are worth three tokens, not {admitted}");
}
