//! The windows of quotas.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use super::Limit;
use crate::store::MARKER_TIME;
use crate::{Amount, Micros};

/// The moments from `start` until just before `end`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Window {
    /// The first moment of the window.
    pub start: Micros,
    /// The first moment after the window, which is the start of the next one.
    pub end: Micros,
}

impl Window {
    /// True from `start` until just before `end`.
    pub const fn contains(&self, moment: Micros) -> bool {
        self.start.get() <= moment.get() && moment.get() < self.end.get()
    }

    /// Microseconds from start to end. Windows of one calendar differ in length.
    pub const fn length_us(&self) -> u64 {
        self.end.since_us(self.start)
    }
}

/// Windows that tile time: every moment is in exactly one, and each ends where the next one starts.
///
/// `spile-calendar` implements those of the calendar. A limit prints them after `per`, as in `month in Europe/Berlin`.
pub trait Windows: fmt::Debug + fmt::Display + Send + Sync {
    /// The window that holds `now`.
    fn window_at(&self, now: Micros) -> Window;

    /// The usual length of a window: 30 days for a month.
    fn period(&self) -> Duration;

    /// The maximum length of a window.
    fn longest(&self) -> Duration;
}

/// One window that never ends.
#[derive(Debug)]
struct Always;

impl fmt::Display for Always {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ever")
    }
}

impl Windows for Always {
    fn window_at(&self, _: Micros) -> Window {
        Window { start: Micros::new(0), end: Micros::new(u64::MAX) }
    }

    fn period(&self) -> Duration {
        MARKER_TIME
    }

    fn longest(&self) -> Duration {
        MARKER_TIME
    }
}

impl Limit {
    /// The limit of [markers](crate::Operation::markers). Leaks windows: build it once.
    pub(crate) fn of_markers() -> Self {
        let limit = Self::per_window(Amount::TOKEN, QuotaWindows::new(Always)).build();
        limit.expect("a token is within bounds")
    }
}

/// A reference to the windows of a quota. Two references are equal if they refer to the same windows.
#[derive(Clone, Copy)]
pub struct QuotaWindows(&'static CachedWindows);

struct CachedWindows {
    windows: Box<dyn Windows>,
    /// Odd while the window is being written.
    version: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
}

impl QuotaWindows {
    /// Leaks the windows for the lifetime of the process: create them once, not for each limit.
    pub fn new(windows: impl Windows + 'static) -> Self {
        let [version, start, end] = [0; 3].map(AtomicU64::new);
        Self(Box::leak(Box::new(CachedWindows { windows: Box::new(windows), version, start, end })))
    }

    /// The window that holds `now`.
    #[inline]
    pub fn window_at(self, now: Micros) -> Window {
        match self.0.cached() {
            Some(window) if window.contains(now) => window,
            _ => self.0.found(now),
        }
    }

    /// The usual length of a window.
    pub fn period(self) -> Duration {
        self.0.windows.period()
    }

    /// The maximum length of a window.
    pub fn longest(self) -> Duration {
        self.0.windows.longest()
    }
}

impl CachedWindows {
    /// The window that was found last. `None` if another thread is writing one.
    #[inline]
    fn cached(&self) -> Option<Window> {
        let version = self.version.load(Ordering::Acquire);
        let [start, end] = [&self.start, &self.end].map(|field| Micros::new(field.load(Ordering::Relaxed)));
        // Orders the loads above before the one below: if the version is still the same, they belong together.
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        is_whole.then_some(Window { start, end })
    }

    #[cold]
    fn found(&self, now: Micros) -> Window {
        let window = self.windows.window_at(now);
        let version = self.version.load(Ordering::Relaxed) & !1;
        if self.version.compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            // Orders the store of the odd version before the stores below.
            fence(Ordering::Release);
            self.start.store(window.start.get(), Ordering::Relaxed);
            self.end.store(window.end.get(), Ordering::Relaxed);
            self.version.store(version + 2, Ordering::Release);
        }
        window
    }
}

impl PartialEq for QuotaWindows {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for QuotaWindows {}

impl fmt::Debug for QuotaWindows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.windows, f)
    }
}

impl fmt::Display for QuotaWindows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.windows, f)
    }
}
