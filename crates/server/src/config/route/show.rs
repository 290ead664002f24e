//! A route, written as a file would have it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use humantime::format_duration as span;
use spile_gateway::{Balance, UpstreamTlsFiles};

use super::Route;
use super::headers::HeaderWords;
use crate::config::bounded::show_size;
use crate::config::quoted::{Quoted, QuotedList};
use crate::config::show::show_rule_body;

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[[routes]]\nname = {}\npath = {}", Quoted(&self.name), Quoted(&self.path))?;
        writeln!(f, "hosts = {}\nupstream = {}", QuotedList(&self.hosts), QuotedList(&self.upstreams))?;
        show_tls(f, &self.upstream_tls.own)?;
        let round_robin = self.balance == Balance::RoundRobin;
        let balance = if round_robin { "round_robin" } else { "least_outstanding" };
        writeln!(f, "balance = \"{balance}\"\nstrip_prefix = {}", self.strip_prefix)?;
        if let Some(prefix) = &self.rewrite_prefix {
            writeln!(f, "rewrite_prefix = {}", Quoted(prefix))?;
        }
        let waits = [
            ("timeout", self.timeouts.first_byte),
            ("connect_timeout", self.timeouts.connect),
            ("idle_timeout", self.timeouts.idle),
        ];
        waits.into_iter().try_for_each(|(key, wait)| show_wait(f, key, wait))?;
        if let Some(total) = self.timeouts.total {
            show_wait(f, "total_timeout", total)?;
        }
        writeln!(f, "retries = {}\nmax_body = \"{}\"", self.retries, show_size(self.max_body))?;
        writeln!(f, "upgrades = {}\nrequire_api_key = {}", QuotedList(&self.upgrades), self.require_api_key)?;
        let plans = QuotedList(&self.only_plans);
        writeln!(f, "only_plans = {plans}\ncost_from_response = {}", self.cost_from_response)?;
        show_headers(f, "request_headers", &self.request_headers)?;
        show_headers(f, "response_headers", &self.response_headers)?;
        writeln!(f, "rate_limit_headers = {}", self.rate_limit_headers)?;
        self.refusals.show(f)?;
        self.show_care(f)?;
        writeln!(f)?;
        for limit in &self.limits {
            writeln!(f, "[[routes.limits]]")?;
            show_rule_body(f, limit)?;
        }
        Ok(())
    }
}

impl Route {
    /// How it looks after its upstreams.
    fn show_care(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(check) = &self.health_check {
            let (interval, timeout) = (span(check.interval), span(check.timeout));
            write!(f, "health_check = {{ path = {}, interval = \"{interval}\", ", Quoted(&check.path))?;
            let (unhealthy, healthy) = (check.unhealthy_after, check.healthy_after);
            write!(f, "timeout = \"{timeout}\", unhealthy_after = {unhealthy}, ")?;
            writeln!(f, "healthy_after = {healthy} }}")?;
        }
        if let Some(adaptive) = &self.adaptive {
            let (target, window) = (span(adaptive.target_latency), span(adaptive.window));
            write!(f, "adaptive = {{ target_latency = \"{target}\", window = \"{window}\", ")?;
            write!(f, "max_error_rate = {:?}, ", adaptive.max_error_rate)?;
            write!(f, "min_requests = {}, decrease = {:?}, ", adaptive.min_requests, adaptive.decrease)?;
            writeln!(f, "increase = {:?}, floor = {:?} }}", adaptive.increase, adaptive.floor)?;
        }
        if let Some(cap) = &self.concurrency {
            let (per_upstream, per_caller) = (cap.per_upstream, cap.places_per_caller());
            write!(f, "concurrency = {{ per_upstream = {per_upstream}, per_caller = {per_caller}, ")?;
            writeln!(f, "queue = {}, wait = \"{}\" }}", cap.queue, span(cap.wait))?;
        }
        Ok(())
    }
}

fn show_wait(f: &mut fmt::Formatter<'_>, key: &str, wait: Duration) -> fmt::Result {
    writeln!(f, "{key} = \"{}\"", span(wait))
}

fn show_tls(f: &mut fmt::Formatter<'_>, files: &UpstreamTlsFiles) -> fmt::Result {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
    let words = [
        ("ca_file", path(&files.ca_file)),
        ("certificate_file", path(&files.certificate_file)),
        ("key_file", path(&files.key_file)),
        ("server_name", files.server_name.clone()),
    ];
    let said = words.into_iter().filter_map(|(key, word)| Some(format!("{key} = {}", Quoted(word?))));
    match said.collect::<Vec<_>>().as_slice() {
        [] => Ok(()),
        said => writeln!(f, "upstream_tls = {{ {} }}", said.join(", ")),
    }
}

fn show_headers(f: &mut fmt::Formatter<'_>, key: &str, words: &HeaderWords) -> fmt::Result {
    if *words == HeaderWords::default() {
        return Ok(());
    }
    let pairs = |pairs: &[(String, String)]| {
        let pair = |(name, value): &(String, String)| format!("{} = {}", Quoted(name), Quoted(value));
        let pairs: Vec<String> = pairs.iter().map(pair).collect();
        format!("{{ {} }}", pairs.join(", "))
    };
    let (set, add) = (pairs(&words.set), pairs(&words.add));
    writeln!(f, "{key} = {{ set = {set}, add = {add}, remove = {} }}", QuotedList(&words.remove))
}
