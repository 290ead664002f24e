//! Adaptive limits: a factor on the limits of a route that is cut while its upstreams fail or are slow.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use metrics::Gauge;
use parking_lot::Mutex;
use spile_core::Micros;

/// How a route's limits follow the health of its upstreams: additive increase, multiplicative decrease.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Adaptive {
    /// The latency that nine responses in ten must keep. Default 500 ms.
    pub target_latency: Duration,
    /// The share of requests that may fail. Default 0.05.
    pub max_error_rate: f64,
    /// How long requests are counted before the factor changes. Default 1 s.
    pub window: Duration,
    /// Windows with fewer requests never cut the factor. Default 10.
    pub min_requests: u32,
    /// The factor is multiplied by this when a target is missed. Default 0.7.
    pub decrease: f64,
    /// This is added to the factor when both targets are met. Default 0.05.
    pub increase: f64,
    /// The lowest factor. Default 0.1.
    pub floor: f64,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self {
            target_latency: Duration::from_millis(500),
            max_error_rate: 0.05,
            window: Duration::from_secs(1),
            min_requests: 10,
            decrease: 0.7,
            increase: 0.05,
            floor: 0.1,
        }
    }
}

/// The share of responses that may be slower than the target.
const MAX_SLOW_SHARE: f64 = 0.1;
/// The factor is stored in thousandths.
const SCALE: u32 = 1_000;

/// The current factor of one route.
#[derive(Debug)]
pub(crate) struct AdaptiveLimit {
    settings: Adaptive,
    window: Mutex<AdaptiveWindow>,
    factor: AtomicU32,
    gauge: Gauge,
}

#[derive(Debug, Default)]
struct AdaptiveWindow {
    started: Option<Micros>,
    total: u32,
    slow: u32,
    failed: u32,
}

impl AdaptiveLimit {
    pub(crate) fn new(settings: Adaptive, gauge: Gauge) -> Self {
        gauge.set(1.0);
        Self { settings, window: Mutex::default(), factor: AtomicU32::new(SCALE), gauge }
    }

    /// Whether it was built with these settings.
    pub(crate) fn has_settings(&self, settings: &Adaptive) -> bool {
        self.settings == *settings
    }

    /// The factor on limits at `now`: at most one.
    pub(crate) fn factor(&self, now: Micros) -> f64 {
        self.close_windows(&mut self.window.lock(), now);
        f64::from(self.factor.load(Ordering::Relaxed)) / f64::from(SCALE)
    }

    /// The latency that nine responses in ten must keep.
    pub(crate) const fn target_latency(&self) -> Duration {
        self.settings.target_latency
    }

    /// Records a request that took this long and failed or not.
    pub(crate) fn observe(&self, now: Micros, took: Duration, failed: bool) {
        let mut window = self.window.lock();
        self.close_windows(&mut window, now);
        window.total += 1;
        window.failed += u32::from(failed);
        window.slow += u32::from(took > self.settings.target_latency);
    }

    /// Adjusts the factor if the window is over. Windows without requests count as good ones.
    fn close_windows(&self, window: &mut AdaptiveWindow, now: Micros) {
        // If the clock was set back, the window starts again.
        let started = window.started.filter(|started| *started <= now).unwrap_or(now);
        window.started = Some(started);
        let span_us = u64::try_from(self.settings.window.as_micros()).unwrap_or(u64::MAX).max(1);
        let passed = now.since_us(started) / span_us;
        if passed == 0 {
            return;
        }
        let idle = passed - 1;
        let judged = if self.misses_target(window) {
            self.current() * self.settings.decrease
        } else {
            self.current() + self.settings.increase
        };
        let recovered = judged.max(self.settings.floor) + self.settings.increase * idle.min(1_000) as f64;
        self.set(recovered);
        *window =
            AdaptiveWindow { started: Some(started.plus_us(passed * span_us)), ..AdaptiveWindow::default() };
    }

    fn misses_target(&self, window: &AdaptiveWindow) -> bool {
        let share = |count: u32| f64::from(count) / f64::from(window.total.max(1));
        window.total >= self.settings.min_requests
            && (share(window.failed) > self.settings.max_error_rate || share(window.slow) > MAX_SLOW_SHARE)
    }

    fn current(&self) -> f64 {
        f64::from(self.factor.load(Ordering::Relaxed)) / f64::from(SCALE)
    }

    fn set(&self, factor: f64) {
        let factor = factor.clamp(self.settings.floor.clamp(0.001, 1.0), 1.0);
        self.factor.store((factor * f64::from(SCALE)).round() as u32, Ordering::Relaxed);
        self.gauge.set(factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_millis(1);
    const SLOW: Duration = Duration::from_secs(2);

    fn second(count: u64) -> Micros {
        Micros::from_secs(1_000 + count)
    }

    fn aimd() -> AdaptiveLimit {
        AdaptiveLimit::new(Adaptive::default(), Gauge::noop())
    }

    fn traffic(aimd: &AdaptiveLimit, at: Micros, took: Duration, failed: bool) {
        (0..20).for_each(|_| aimd.observe(at, took, failed));
    }

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 0.002
    }

    #[test]
    fn errors_and_slowness_cut_the_factor() {
        for (took, failed) in [(FAST, true), (SLOW, false)] {
            let aimd = aimd();
            traffic(&aimd, second(0), took, failed);
            assert!(close(aimd.factor(second(0)), 1.0), "a window is judged when it is over");
            assert!(close(aimd.factor(second(1)), 0.7));
            traffic(&aimd, second(1), took, failed);
            assert!(close(aimd.factor(second(2)), 0.49));
        }
    }

    #[test]
    fn the_factor_never_falls_below_its_floor() {
        let aimd = aimd();
        for count in 0..50 {
            traffic(&aimd, second(count), SLOW, true);
        }
        assert!(close(aimd.factor(second(50)), 0.1));
    }

    #[test]
    fn the_factor_recovers_step_by_step_and_to_one_at_most() {
        let aimd = aimd();
        traffic(&aimd, second(0), FAST, true);
        traffic(&aimd, second(1), FAST, false);
        assert!(close(aimd.factor(second(2)), 0.75));
        assert!(close(aimd.factor(second(4)), 0.85), "quiet windows are good ones");
        assert!(close(aimd.factor(second(100)), 1.0));
    }

    #[test]
    fn a_single_failure_among_few_requests_means_nothing() {
        let aimd = aimd();
        aimd.observe(second(0), SLOW, true);
        assert!(close(aimd.factor(second(1)), 1.0));
    }

    #[test]
    fn a_clock_that_is_put_back_stops_nothing() {
        let aimd = aimd();
        traffic(&aimd, second(500), FAST, true);
        assert!(close(aimd.factor(second(0)), 1.0));
        assert!(close(aimd.factor(second(1)), 0.7), "the window goes on by the new time");
        assert!(close(aimd.factor(second(3)), 0.8));
    }
}
