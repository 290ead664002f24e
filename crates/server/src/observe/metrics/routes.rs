//! Filters the series of routes: only those of configured routes are exported.
//!
//! The recorder keeps every series until the process ends. The series of a route or an upstream that a reload has
//! removed would look as if it still existed, so they are left out. If the route comes back, its counters continue.

use std::sync::Arc;

use arc_swap::ArcSwap;
use foldhash::HashSet;
use spile_gateway::Upstream;

use crate::config::RouteConfig;

const PREFIX: &str = "gateway_";

/// The series of configured routes, each by the beginning of its line: `gateway_upstream_up{route="a",upstream="b:80"`.
#[derive(Clone, Default)]
pub(crate) struct RouteSeries(Arc<ArcSwap<HashSet<String>>>);

impl RouteSeries {
    /// Exports the series of these routes from now on, and of no others.
    pub(crate) fn follow(&self, routes: &[RouteConfig]) {
        self.0.store(Arc::new(routes.iter().flat_map(series_of).collect()));
    }

    /// Removes the series of other routes from the text.
    pub(super) fn shown_of(&self, exposition: &str) -> String {
        let served = self.0.load();
        let is_shown = |line: &&str| beginning(line).is_none_or(|beginning| served.contains(beginning));
        exposition.split_inclusive('\n').filter(is_shown).collect()
    }
}

fn series_of(route: &RouteConfig) -> impl Iterator<Item = String> {
    let name = escaped(&route.name);
    let of_route = |metric: &str| format!("{PREFIX}{metric}{{route=\"{name}\"");
    let mut series = vec![of_route("retries_total"), of_route("upstream_failures_total")];
    series.extend(route.is_adaptive().then(|| of_route("adaptive_factor")));
    series.extend(route.has_late_cost().then(|| of_route("answer_costs_total")));
    for upstream in route.upstreams.iter().filter_map(|text| text.parse::<Upstream>().ok()) {
        let label = escaped(&upstream.label());
        let of_upstream = |metric| format!("{},upstream=\"{label}\"", of_route(metric));
        series.push(of_upstream("upstream_up"));
        if route.is_capped() {
            series.extend(["concurrency_in_use", "queue_depth"].map(of_upstream));
        }
    }
    series.into_iter()
}

/// The beginning of a line, up to its route and upstream. `None` if the line has no route.
fn beginning(line: &str) -> Option<&str> {
    let labels = line.strip_prefix(PREFIX)?.split_once("{route=\"")?.1;
    let mut end = line.len() - labels.len() + value_end(labels)?;
    if let Some(upstream) = line[end..].strip_prefix(",upstream=\"") {
        end = line.len() - upstream.len() + value_end(upstream)?;
    }
    Some(&line[..end])
}

/// The end of a label's value, after the closing quote.
fn value_end(value: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in value.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_told_by_its_metric_route_and_upstream() {
        for (line, told) in [
            ("gateway_retries_total{route=\"/\"} 0\n", Some("gateway_retries_total{route=\"/\"")),
            (
                "gateway_upstream_failures_total{route=\"a\\\"b\\\\\",reason=\"busy\"} 7\n",
                Some("gateway_upstream_failures_total{route=\"a\\\"b\\\\\""),
            ),
            (
                "gateway_upstream_up{route=\"a\",upstream=\"[::1]:80\"} 1\n",
                Some("gateway_upstream_up{route=\"a\",upstream=\"[::1]:80\""),
            ),
            ("# TYPE gateway_retries_total counter\n", None),
            ("http_server_requests_total{listener=\"gateway\",status=\"200\"} 3\n", None),
        ] {
            assert_eq!(beginning(line), told);
        }
    }
}
