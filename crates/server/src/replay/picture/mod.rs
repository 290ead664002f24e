//! The report as a picture: a single SVG, or a page of HTML. Both are self-contained: no script, no external resources.

mod html;
mod svg;

use std::fmt::Write;

pub(crate) use self::html::page;
pub(crate) use self::svg::drawing;

use super::report::{ConfigReport, IntervalSeries, RuleReport};
use super::text::{exact_time, grouped, shown, span, to_second};
use spile_core::Micros;
use std::time::Duration;

/// The most rules that get a separate chart: those that limited most.
const MOST_RULES: usize = 12;

/// The legend, in the order in which layers are stacked: the class, the words, and where the numbers are.
const LAYERS: [(&str, &str); 4] =
    [("ok", "allowed"), ("shadow", "would be limited (shadow)"), ("no", "limited"), ("refused", "refused")];

/// The colours, for light and dark.
const COLOURS: &str = ":root{color-scheme:light dark;--bg:light-dark(#f5f6f4,#12161a);--card:light-dark(#fff,#1a2026);\
--line:light-dark(#dde1dc,#2c353d);--ink:light-dark(#1a211e,#e6ebe8);--dim:light-dark(#57625c,#9aa7a0);\
--ok:light-dark(#0a7d5a,#3ecf9b);--no:light-dark(#c0392b,#ff7b6b);--shadow:light-dark(#7a4fc4,#b79bf5);\
--refused:light-dark(#9a6200,#f0b34b)}\
.ok{fill:var(--ok)}.no{fill:var(--no)}.shadow{fill:var(--shadow)}.refused{fill:var(--refused)}";

/// A chart of one series: bars of stacked layers, all over the same intervals.
struct BarChart<'r> {
    series: &'r IntervalSeries,
    /// How many intervals the whole configuration has.
    intervals: usize,
}

impl BarChart<'_> {
    fn layers(&self, at: usize) -> [u64; 4] {
        let IntervalSeries { allowed, limited, would_limit, refused } = self.series;
        [allowed, would_limit, limited, refused].map(|layer| layer.get(at).copied().unwrap_or(0))
    }

    fn total(&self, at: usize) -> u64 {
        self.layers(at).iter().sum()
    }

    /// The most requests of an interval.
    fn peak(&self) -> u64 {
        (0..self.intervals).map(|at| self.total(at)).max().unwrap_or(0)
    }

    /// Where the bar of an interval starts, if all are `width` wide.
    fn x(&self, at: usize, width: f64) -> f64 {
        at as f64 * width / self.intervals.max(1) as f64
    }

    /// The bars as one path for each layer.
    fn paths(&self, width: f64, height: f64) -> String {
        let unit = height / self.peak().max(1) as f64;
        let mut data: [String; 4] = Default::default();
        for at in 0..self.intervals {
            let (x, next) = (self.x(at, width), self.x(at + 1, width));
            let mut below = 0;
            for (layer, count) in self.layers(at).into_iter().enumerate() {
                if count > 0 {
                    let top = height - (below + count) as f64 * unit;
                    let (wide, high) = (next - x, count as f64 * unit);
                    let _ = write!(data[layer], "M{x:.2} {top:.2}h{wide:.2}v{high:.2}h-{wide:.2}z");
                }
                below += count;
            }
        }
        let mut paths = String::new();
        for ((class, _), data) in LAYERS.iter().zip(&data).filter(|(_, data)| !data.is_empty()) {
            let _ = write!(paths, "<path class=\"{class}\" d=\"{data}\"/>");
        }
        paths
    }

    /// The text of a chart for readers who do not see it.
    fn described(&self, interval: Duration) -> String {
        let layer = |at: usize| (0..self.intervals).map(|interval| self.layers(interval)[at]).sum::<u64>();
        let parts = LAYERS.iter().enumerate().map(|(at, (_, words))| (words, layer(at)));
        let parts: Vec<String> = parts
            .filter(|(_, count)| *count > 0)
            .map(|(words, count)| format!("{} {words}", grouped(count)))
            .collect();
        format!("{}; at most {} in {}", parts.join(", "), grouped(self.peak()), span(interval))
    }
}

impl ConfigReport {
    fn chart<'r>(&self, series: &'r IntervalSeries) -> BarChart<'r> {
        BarChart { series, intervals: self.intervals.allowed.len() }
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(self.interval_seconds)
    }

    /// When an interval starts.
    fn start_of(&self, at: usize) -> String {
        let start = humantime::parse_rfc3339(&self.start).ok();
        let since =
            start.and_then(|start| start.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
        let start =
            Micros::new(since.as_micros() as u64).plus_us(at as u64 * self.interval_seconds * 1_000_000);
        to_second(&exact_time(start))
    }

    /// The rules that get a chart: those with requests, the ones that limited most first.
    fn charted_rules(&self) -> Vec<&RuleReport> {
        let mut rules: Vec<&RuleReport> =
            self.rules.iter().filter(|rule| rule.requests.requests > 0).collect();
        rules.sort_by_key(|rule| std::cmp::Reverse((rule.requests.held_back(), rule.requests.requests)));
        rules.truncate(MOST_RULES);
        rules
    }
}

/// Text that is neither markup nor changes the direction of what follows.
fn escaped(text: &str) -> String {
    let text = shown(text);
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sent_is_never_markup() {
        assert_eq!(escaped("path:/<script>\"'&\u{1b}"), "path:/&lt;script&gt;&quot;&#39;&amp;\u{fffd}");
    }

    #[test]
    fn bars_are_stacked_and_the_highest_fills_the_chart() {
        let series = IntervalSeries {
            allowed: vec![3, 1],
            limited: vec![1],
            would_limit: vec![0, 0],
            refused: Vec::new(),
        };
        let chart = BarChart { series: &series, intervals: 2 };
        assert_eq!(
            chart.paths(20.0, 40.0),
            "<path class=\"ok\" d=\"M0.00 10.00h10.00v30.00h-10.00zM10.00 30.00h10.00v10.00h-10.00z\"/>\
             <path class=\"no\" d=\"M0.00 0.00h10.00v10.00h-10.00z\"/>"
        );
        assert_eq!(chart.described(Duration::from_secs(60)), "4 allowed, 1 limited; at most 4 in 1m");
    }
}
