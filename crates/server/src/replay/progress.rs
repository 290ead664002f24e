//! A bar on the terminal that shows the progress of a replay.

use std::io::{self, IsTerminal, Write};

use spile_core::{Clock, Micros, SystemClock};

use super::text::grouped;

/// Lines between two looks at the clock.
const LINES: u64 = 2_048;
/// Microseconds between two drawings.
const PAUSE_US: u64 = 100_000;
const CELLS: usize = 24;

/// The progress of a replay. Drawn on stderr, if that is a terminal.
pub(super) struct ProgressBar {
    clock: SystemClock,
    started: Micros,
    drawn: Option<Micros>,
    shown: bool,
}

impl ProgressBar {
    pub(super) fn start() -> Self {
        let clock = SystemClock::new();
        let started = clock.now();
        Self { clock, started, drawn: None, shown: io::stderr().is_terminal() }
    }

    /// Draws the bar if it is time to. `done` is `None` if the end is not known.
    pub(super) fn note(&mut self, lines: u64, done: impl FnOnce() -> Option<f64>) {
        if !self.shown || !lines.is_multiple_of(LINES) {
            return;
        }
        let now = self.clock.now();
        if now.since_us(self.drawn.unwrap_or(self.started)) < PAUSE_US {
            return;
        }
        self.drawn = Some(now);
        let rate = lines as f64 / (now.since_us(self.started).max(1) as f64 / 1e6);
        let bar = done().map(bar).unwrap_or_default();
        let text = format!("\r\x1b[K{bar}{} lines, {} in a second", grouped(lines), grouped(rate as u64));
        self.write(&text);
    }

    /// Removes the bar.
    pub(super) fn finish(&mut self) {
        if self.drawn.is_some() {
            self.write("\r\x1b[K");
        }
    }

    /// Ignores errors: a replay must not fail for its progress bar.
    fn write(&mut self, text: &str) {
        let mut stderr = io::stderr().lock();
        self.shown = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()).is_ok();
    }
}

fn bar(done: f64) -> String {
    let full = (done * CELLS as f64) as usize;
    let cells: String = (0..CELLS).map(|cell| if cell < full { '█' } else { '░' }).collect();
    format!("{cells} {:>3}%  ", (done * 100.0) as u32)
}
