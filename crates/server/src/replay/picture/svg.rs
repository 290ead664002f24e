//! The report as one SVG.

use std::fmt::Write;
use std::time::Duration;

use super::{BarChart, COLOURS, LAYERS, escaped};
use crate::replay::report::{ConfigReport, KeyReport, ReplayReport};
use crate::replay::text::{cut, grouped, percent, span, to_second};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 24.0;
/// The width of a chart.
const CHART: f64 = WIDTH - LEFT - RIGHT;
const TOTAL_HEIGHT: f64 = 180.0;
const RULE_HEIGHT: f64 = 72.0;
const ROW: f64 = 24.0;
/// Where the bars of keys start.
const KEY_BARS: f64 = 520.0;

/// Draws from top to bottom.
struct Sheet {
    body: String,
    y: f64,
}

/// The report as an SVG file.
pub(crate) fn drawing(report: &ReplayReport) -> String {
    let mut sheet = Sheet { body: String::new(), y: 40.0 };
    let about = format!(
        "{} lines, {} to {} UTC",
        grouped(report.lines),
        to_second(&report.from),
        to_second(&report.to)
    );
    sheet.text(LEFT, "h1", "Who would have been limited");
    sheet.y += 24.0;
    sheet.text(LEFT, "dim", &about);
    sheet.y += 28.0;
    sheet.legend();
    for config in &report.configs {
        sheet.config(config);
    }
    let (height, body) = (sheet.y + 8.0, sheet.body);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         role=\"img\" aria-label=\"{about}\"><style>{COLOURS}\
         text{{font:13px system-ui,sans-serif;fill:var(--ink)}}.h1{{font-size:20px;font-weight:650}}\
         .h2{{font-size:15px;font-weight:650}}.dim{{fill:var(--dim)}}.end{{text-anchor:end}}\
         .axis{{stroke:var(--line);fill:none}}</style>\
         <rect width=\"100%\" height=\"100%\" style=\"fill:var(--card)\"/>{body}</svg>\n"
    )
}

impl Sheet {
    fn text(&mut self, x: f64, class: &str, text: &str) {
        let _ = write!(
            self.body,
            "<text x=\"{x}\" y=\"{:.1}\" class=\"{class}\">{}</text>",
            self.y,
            escaped(text)
        );
    }

    fn legend(&mut self) {
        let mut x = LEFT;
        for (class, words) in LAYERS {
            let top = self.y - 10.0;
            let _ = write!(
                self.body,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{top:.1}\" width=\"11\" height=\"11\" rx=\"2\"/>"
            );
            self.text(x + 17.0, "dim", words);
            x += 34.0 + words.len() as f64 * 7.0;
        }
        self.y += 12.0;
    }

    fn config(&mut self, config: &ConfigReport) {
        let counts = &config.requests;
        self.y += 34.0;
        self.text(LEFT, "h2", &cut(&config.config, 100));
        self.y += 20.0;
        let (limited, share) = (grouped(counts.limited), percent(counts.limited, counts.requests));
        let keys = grouped(config.limited_keys as u64);
        let mut text =
            format!("{} requests, {limited} limited ({share}) of {keys} keys", grouped(counts.requests));
        if counts.would_limit > 0 {
            let _ = write!(text, ", {} would be limited in shadow mode", grouped(counts.would_limit));
        }
        self.text(LEFT, "dim", &text);
        self.y += 14.0;
        self.chart(&config.chart(&config.intervals), TOTAL_HEIGHT, config, true);
        for rule in config.charted_rules() {
            self.y += 26.0;
            let counts = &rule.requests;
            let (held, share) = (grouped(counts.held_back()), percent(counts.held_back(), counts.requests));
            let mode = if rule.mode == "shadow" { ", in shadow mode" } else { "" };
            let requests = grouped(counts.requests);
            self.text(LEFT, "", &format!("Rule {}{mode}: {held} of {requests} limited ({share})", rule.id));
            self.y += 10.0;
            self.chart(&config.chart(&rule.intervals), RULE_HEIGHT, config, false);
        }
        self.keys(&config.keys);
    }

    /// A chart with its highest value at the left, and its times below if they are wanted.
    fn chart(&mut self, chart: &BarChart<'_>, height: f64, config: &ConfigReport, times: bool) {
        let top = self.y;
        let label = escaped(&chart.described(config.interval()));
        let _ = write!(
            self.body,
            "<g transform=\"translate({LEFT} {top:.1})\"><title>{label}</title>{}\
             <path class=\"axis\" d=\"M0 {height}H{CHART}M0 .5H{CHART}\"/></g>",
            chart.paths(CHART, height)
        );
        self.y = top + 10.0;
        self.text(LEFT - 8.0, "dim end", &grouped(chart.peak()));
        self.y = top + height;
        self.text(LEFT - 8.0, "dim end", "0");
        if times {
            self.y += 18.0;
            self.text(LEFT, "dim", &config.start_of(0));
            self.text(WIDTH / 2.0 - 60.0, "dim", &format!("requests in {}", span(config.interval())));
            self.text(WIDTH - RIGHT, "dim end", &config.start_of(chart.intervals));
        }
    }

    fn keys(&mut self, keys: &[KeyReport]) {
        if keys.is_empty() {
            return;
        }
        self.y += 34.0;
        self.text(LEFT, "h2", "Limited most");
        let most = keys.iter().map(|key| key.limited).max().unwrap_or(1) as f64;
        for key in keys {
            self.y += ROW;
            self.text(LEFT, "", &format!("{} · {}", cut(&key.key, 44), key.rule));
            let (top, wide) = (self.y - 11.0, key.limited as f64 / most * (WIDTH - RIGHT - KEY_BARS - 200.0));
            let _ = write!(
                self.body,
                "<rect class=\"no\" x=\"{KEY_BARS}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"13\" rx=\"2\"/>"
            );
            let wait = span(Duration::from_millis(key.longest_wait_ms));
            self.text(KEY_BARS + wide + 8.0, "dim", &format!("{}, waits up to {wait}", grouped(key.limited)));
        }
        self.y += 12.0;
    }
}
