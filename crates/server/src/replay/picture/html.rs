//! The report as one page of HTML, for a wide screen and for a narrow one.

use std::fmt::Write;
use std::time::Duration;

use super::{COLOURS, LAYERS, escaped};
use crate::replay::report::{ConfigReport, IntervalSeries, ReplayReport, RuleReport};
use crate::replay::text::{cut, grouped, percent, span, to_second};

/// A chart is drawn this wide and stretched to the page.
const WIDTH: f64 = 600.0;

/// The name of the figure that others are parts of.
const ALL: &str = "Requests";

const STYLE: &str = "*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.45 system-ui,sans-serif}\
main{max-width:1100px;margin:auto;padding:16px 20px 40px;display:grid;gap:16px;grid-template-columns:minmax(0,1fr)}\
h1{font-size:22px;margin:8px 0 0}h2{font-size:18px;margin:0 0 4px;overflow-wrap:anywhere}h3{font-size:15px;margin:22px 0 6px}\
p{margin:4px 0}.dim{color:var(--dim);font-size:13px}section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px;min-width:0}\
.tiles{display:grid;gap:10px;grid-template-columns:repeat(auto-fit,minmax(120px,1fr));margin:12px 0 0}\
.tiles div{border:1px solid var(--line);border-radius:8px;padding:6px 12px}dt{color:var(--dim);font-size:13px}dd{margin:0;font-size:21px;font-weight:650;font-variant-numeric:tabular-nums}\
dd small{font-size:13px;font-weight:500;color:var(--dim)}.chart{display:block;width:100%;height:200px;border-top:1px solid var(--line);border-bottom:1px solid var(--line)}\
.rule .chart{height:80px}.hover{fill:transparent}.hover:hover{fill:var(--ink);fill-opacity:.12}\
.ends{display:flex;justify-content:space-between;gap:12px;flex-wrap:wrap}.legend{display:flex;gap:4px 16px;flex-wrap:wrap;margin:8px 0 0}\
.legend svg{width:11px;height:11px;margin-right:6px}.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px}\
th{text-align:left;color:var(--dim);font-weight:500;font-size:13px}th,td{padding:5px 14px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}\
.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}td.time{white-space:nowrap;font-variant-numeric:tabular-nums}\
code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}.key{min-width:160px}ul{margin:8px 0 0;padding-left:20px}li{overflow-wrap:anywhere}\
@media(max-width:480px){main{padding:12px;gap:10px}section{padding:12px}.chart{height:150px}.ends :nth-child(2){order:-1;flex-basis:100%}}";

/// The report as a page.
pub(crate) fn page(report: &ReplayReport) -> String {
    let named = |log: &String| if log == "-" { "the standard input".to_owned() } else { log.clone() };
    let logs: Vec<String> = report.logs.iter().map(named).collect();
    let about = format!(
        "{} lines of {}, {} to {} UTC",
        grouped(report.lines),
        logs.join(", "),
        to_second(&report.from),
        to_second(&report.to)
    );
    let mut body = format!("<h1>Who would have been limited</h1><p class=\"dim\">{}</p>", escaped(&about));
    body += &list(&report.notes);
    for config in &report.configs {
        config_section(&mut body, config);
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>Spile replay</title><style>{COLOURS}{STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )
}

fn config_section(body: &mut String, config: &ConfigReport) {
    let counts = &config.requests;
    let _ = write!(body, "<section><h2>{}</h2><dl class=\"tiles\">", escaped(&config.config));
    let mut tile = |name: &str, count: u64| {
        let share = if name == ALL { String::new() } else { percent(count, counts.requests) };
        let _ = write!(body, "<div><dt>{name}</dt><dd>{} <small>{share}</small></dd></div>", grouped(count));
    };
    tile(ALL, counts.requests);
    tile("Allowed", counts.allowed);
    tile("Limited", counts.limited);
    if counts.would_limit > 0 {
        tile("Would be limited", counts.would_limit);
    }
    if counts.refused > 0 {
        tile("Refused", counts.refused);
    }
    body.push_str("</dl>");
    body.push_str(&list(&config.notes));
    let _ = write!(body, "<h3>Requests in {}</h3>", span(config.interval()));
    chart(body, config, &config.intervals, true);
    legend(body);
    for rule in config.charted_rules() {
        let mode = if rule.mode == "shadow" { " (shadow)" } else { "" };
        let counts = &rule.requests;
        let share = percent(counts.held_back(), counts.requests);
        let (held, requests) = (grouped(counts.held_back()), grouped(counts.requests));
        let id = escaped(&rule.id);
        let _ = write!(
            body,
            "<div class=\"rule\"><h3>Rule {id}{mode}: {held} of {requests} limited ({share})</h3>"
        );
        chart(body, config, &rule.intervals, false);
        body.push_str("</div>");
    }
    rules_table(body, &config.rules);
    keys_table(body, config);
    body.push_str("</section>");
}

fn chart(body: &mut String, config: &ConfigReport, series: &IntervalSeries, hover: bool) {
    let chart = config.chart(series);
    let height = 100.0;
    let label = escaped(&chart.described(config.interval()));
    let _ = write!(
        body,
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"{label}\">{}",
        chart.paths(WIDTH, height)
    );
    for at in (0..chart.intervals).filter(|_| hover) {
        let counts = chart.layers(at);
        let said: Vec<String> = (LAYERS.iter().zip(counts).filter(|(_, count)| *count > 0))
            .map(|((_, words), count)| format!("{} {words}", grouped(count)))
            .collect();
        let (x, wide) = (chart.x(at, WIDTH), WIDTH / chart.intervals as f64);
        let said = if said.is_empty() { "no requests".to_owned() } else { said.join(", ") };
        let _ = write!(
            body,
            "<rect class=\"hover\" x=\"{x:.2}\" width=\"{wide:.2}\" height=\"{height}\"><title>{}: {said}</title></rect>",
            config.start_of(at)
        );
    }
    let _ = write!(
        body,
        "</svg><div class=\"ends dim\"><span>{}</span><span>at most {} in {}</span><span>{}</span></div>",
        config.start_of(0),
        grouped(chart.peak()),
        span(config.interval()),
        config.start_of(chart.intervals)
    );
}

fn legend(body: &mut String) {
    body.push_str("<div class=\"legend dim\">");
    for (class, words) in LAYERS {
        let _ = write!(
            body,
            "<span><svg viewBox=\"0 0 11 11\" aria-hidden=\"true\"><rect class=\"{class}\" width=\"11\" height=\"11\" rx=\"2\"/></svg>{words}</span>"
        );
    }
    body.push_str("</div>");
}

fn rules_table(body: &mut String, rules: &[RuleReport]) {
    body.push_str(
        "<h3>Rules and limits</h3><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Rules and limits\"><table><tr><th>Rule<th>Limit\
         <th class=\"num\">Requests<th class=\"num\">Limited<th class=\"num\">Refused<th class=\"num\">Longest wait</tr>",
    );
    for rule in rules {
        let (id, counts) = (escaped(&rule.id), &rule.requests);
        let (requests, refused) = (grouped(counts.requests), grouped(counts.refused));
        let _ = write!(
            body,
            "<tr><td>{id}<td>all<td class=\"num\">{requests}<td class=\"num\">{}<td class=\"num\">{refused}<td></tr>",
            grouped(counts.held_back())
        );
        for limit in &rule.limits {
            let _ = write!(
                body,
                "<tr><td>{id}<td>{}<td><td class=\"num\">{}<td><td class=\"num\">{}</tr>",
                escaped(&limit.name),
                grouped(limit.limited),
                span(Duration::from_millis(limit.longest_wait_ms))
            );
        }
    }
    body.push_str("</table></div>");
}

fn keys_table(body: &mut String, config: &ConfigReport) {
    if config.keys.is_empty() {
        body.push_str("<h3>Limited most</h3><p class=\"dim\">No key was limited.</p>");
        return;
    }
    body.push_str(
        "<h3>Limited most</h3><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Limited most\"><table><tr><th>Key<th>Rule<th class=\"num\">Limited\
         <th>First<th>Last<th class=\"num\">Longest wait</tr>",
    );
    for key in &config.keys {
        let _ = write!(
            body,
            "<tr><td class=\"key\"><code>{}</code><td>{}<td class=\"num\">{}<td class=\"time\">{}<td class=\"time\">{}<td class=\"num\">{}</tr>",
            escaped(&cut(&key.key, 200)),
            escaped(&key.rule),
            grouped(key.limited),
            to_second(&key.first),
            to_second(&key.last),
            span(Duration::from_millis(key.longest_wait_ms))
        );
    }
    body.push_str("</table></div>");
    let more = config.limited_keys.saturating_sub(config.keys.len());
    if more > 0 {
        let _ = write!(body, "<p class=\"dim\">and {} more keys</p>", grouped(more as u64));
    }
}

/// Notes as a list. Empty without notes.
fn list(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let items: Vec<String> = notes.iter().map(|note| escaped(note)).collect();
    format!("<ul class=\"dim\"><li>{}</li></ul>", items.join("</li><li>"))
}
