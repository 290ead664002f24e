//! The time of a replay: that of the log's lines, which never goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spile_core::{Clock, Micros};

use super::line::{LogRecord, LogTime};

const SECOND_US: u64 = 1_000_000;
/// Requests of one second that are held back to be spread over it. A busier second is spread in several parts.
const MOST_HELD: usize = 65_536;

/// The clock that buckets follow. Clones share the time.
#[derive(Clone, Debug, Default)]
pub(super) struct LogClock(Arc<AtomicU64>);

impl LogClock {
    /// Moves on to this time, or stays if it is later already. Returns the time that it is now.
    pub(super) fn advance_to(&self, time: Micros) -> Micros {
        let before = self.0.fetch_max(time.get(), Ordering::Relaxed);
        Micros::new(before.max(time.get()))
    }
}

impl Clock for LogClock {
    fn now(&self) -> Micros {
        Micros::new(self.0.load(Ordering::Relaxed))
    }
}

/// How far the lines of a log are in order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineOrder {
    /// The earliest and the latest time. `None` before the first line.
    pub(super) span: Option<(Micros, Micros)>,
    /// Lines with an earlier time than one before them.
    pub(super) late: u64,
    /// The most that a line was behind the latest one before it.
    pub(super) furthest_us: u64,
    /// Whether some times have no fractions of seconds.
    pub(super) whole_seconds: bool,
}

impl LineOrder {
    pub(super) fn note(&mut self, LogTime { at, whole_seconds }: LogTime) {
        let (first, latest) = self.span.unwrap_or((at, at));
        let behind_us = latest.since_us(at);
        self.late += u64::from(behind_us > 0);
        self.furthest_us = self.furthest_us.max(behind_us);
        self.span = Some((first.min(at), latest.max(at)));
        self.whole_seconds |= whole_seconds;
    }
}

/// Spreads requests over the second of their lines, in the order of the log: a log without fractions of seconds
/// would otherwise have them all at its start, and a limit that refills many times in a second would deny most of them.
#[derive(Debug)]
pub(super) struct SecondSpread<P> {
    held: Vec<(LogRecord, P)>,
}

impl<P> SecondSpread<P> {
    pub(super) const fn new() -> Self {
        Self { held: Vec::new() }
    }

    /// Takes a line, and passes on those whose times are now known.
    pub(super) fn push(
        &mut self,
        record: LogRecord,
        place: P,
        mut decide: impl FnMut(&LogRecord, &P, Micros),
    ) {
        let same = self.held.first().is_none_or(|(held, _)| held.time.at == record.time.at);
        if !same || self.held.len() == MOST_HELD {
            self.flush(&mut decide);
        }
        if record.time.whole_seconds {
            self.held.push((record, place));
        } else {
            self.flush(&mut decide);
            decide(&record, &place, record.time.at);
        }
    }

    /// Passes on the lines that are held.
    pub(super) fn flush(&mut self, mut decide: impl FnMut(&LogRecord, &P, Micros)) {
        let count = self.held.len() as u64;
        for (index, (record, place)) in self.held.drain(..).enumerate() {
            decide(&record, &place, record.time.at.plus_us(index as u64 * SECOND_US / count));
        }
    }
}

#[cfg(test)]
mod tests {
    use smol_str::SmolStr;

    use super::*;
    use crate::replay::line::{JsonFields, LineParser};

    fn record(time: &str) -> LogRecord {
        let line = format!(r#"{{"time":"{time}","method":"GET","uri":"/"}}"#);
        let parser = LineParser::new(JsonFields::default(), Vec::new(), SmolStr::default());
        parser.parse(line.as_bytes()).expect("a line")
    }

    #[test]
    fn the_clock_never_goes_back() {
        let clock = LogClock::default();
        for (to, is) in [(5, 5), (3, 5), (9, 9), (9, 9), (0, 9)] {
            assert_eq!(clock.advance_to(Micros::new(to)), Micros::new(is));
            assert_eq!(clock.now(), Micros::new(is));
        }
    }

    #[test]
    fn requests_of_one_second_are_spread_over_it_in_the_order_of_the_log() {
        let mut spread = SecondSpread::new();
        let mut decided = Vec::new();
        let times = ["100", "100", "100", "100", "101", "101.25", "100", "100"];
        for (place, time) in times.iter().enumerate() {
            spread.push(record(time), place, |_, place, at| decided.push((*place, at.get() / 1_000)));
        }
        spread.flush(|_, place, at| decided.push((*place, at.get() / 1_000)));
        let expected = [
            (0, 100_000),
            (1, 100_250),
            (2, 100_500),
            (3, 100_750),
            (4, 101_000),
            (5, 101_250),
            (6, 100_000),
            (7, 100_500),
        ];
        assert_eq!(decided, expected);
    }

    #[test]
    fn lines_out_of_order_are_counted_with_the_furthest() {
        let mut order = LineOrder::default();
        for time in ["100", "102", "101", "99.5", "103"] {
            order.note(record(time).time);
        }
        assert_eq!((order.late, order.furthest_us), (2, 2_500_000));
        assert_eq!(order.span, Some((Micros::new(99_500_000), Micros::from_secs(103))));
    }
}
