//! `spile explain`: why a key is limited.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use spile_core::{Amount, Clock, SystemClock};

use super::admin::AdminArgs;
use super::buckets::{HEADER, row};
use super::entries::shown;
use super::print;
use crate::decide::buckets::rough;
use crate::input::segment;

/// Which key, and under which rule.
#[derive(Args, Debug)]
pub(super) struct ExplainArgs {
    /// Who pays, with its kind in front: `tenant:acme`, `ip:203.0.113.7`.
    key: String,
    /// The rule, or the limit of a route, to look at. If it is left out: the one for the request of `--path`, or the one that denied the
    /// key last, or `default`.
    #[arg(long, value_name = "ID")]
    rule: Option<String>,
    /// The path of a request, to look at the rule and at the limits of the gateway's route that are for it.
    #[arg(long, value_name = "PATH", conflicts_with = "rule")]
    path: Option<String>,
    /// The method of that request; GET if it is left out.
    #[arg(long, value_name = "METHOD", requires = "path")]
    method: Option<String>,
    /// The host of that request.
    #[arg(long, value_name = "HOST", requires = "path")]
    host: Option<String>,
    /// Tokens that the request spends, in place of the cost of each rule.
    #[arg(long, value_name = "TOKENS")]
    cost: Option<Amount>,
    #[command(flatten)]
    admin: AdminArgs,
}

impl ExplainArgs {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let cost = self.cost.map(|tokens| tokens.to_string());
        let members = [
            ("rule", &self.rule),
            ("path", &self.path),
            ("method", &self.method),
            ("host", &self.host),
            ("cost", &cost),
        ];
        let mut path = format!("/admin/v1/explain?key={}", segment(&self.key));
        for (name, value) in members {
            path.extend(value.as_deref().map(|value| format!("&{name}={}", segment(value))));
        }
        let explained = self.admin.get(&path)?;
        self.admin.print(&explained, || text(&explained))
    }
}

fn text(explained: &Value) -> String {
    let mut parts = vec![headline(explained)];
    let listed = |member: &str| explained[member].as_array().into_iter().flatten();
    let buckets: Vec<_> = listed("buckets").map(|bucket| with_payer(explained, bucket)).collect();
    if !buckets.is_empty() {
        parts.push(print::table(HEADER, &buckets));
    }
    let denials: Vec<_> = listed("denials").map(denial).collect();
    if !denials.is_empty() {
        parts.push(print::table(["DENIED BY", "RULE", "REASON", "TIMES", "LAST", "TOLD TO WAIT"], &denials));
    }
    let advice: Vec<String> = listed("advice").map(|sentence| format!("- {}", shown(sentence))).collect();
    parts.push(advice.join("\n"));
    parts.join("\n\n")
}

/// The outcome, the rule and the payer in one sentence.
fn headline(explained: &Value) -> String {
    let outcome = match shown(&explained["outcome"]).as_str() {
        "allowed" => "would be allowed now",
        "denied" => "would be denied now",
        "banned" => "is refused",
        "unlimited" => "is not limited",
        "noKey" => "is refused, because it has none of the keys of the rule",
        "routeRefuses" => "is refused by the route",
        "tenantsOnly" => "is refused, because it is no tenant",
        "neverPasses" => "is refused, because a request costs more than its bucket holds",
        _ => "is decided by the failure policy",
    }
    .to_owned();
    let chosen = match shown(&explained["chosen"]).as_str() {
        "matched" => ", which matches the request",
        "denied" => ", which denied it last",
        "default" => ", which is for all that no other rule matches",
        _ => "",
    };
    let limits = shown(&explained["routeLimits"]);
    let rule = match (explained["rule"].as_str(), explained["route"].as_str()) {
        (Some(rule), Some(route)) if explained["chosen"] != "matched" => {
            format!(" under limit `{rule}` of route `{route}`{chosen}")
        }
        (Some(rule), Some(route)) if !limits.is_empty() => {
            format!(" under rule `{rule}` and {limits} of route `{route}`, which match the request")
        }
        (Some(rule), _) => format!(" under rule `{rule}`{chosen}"),
        (None, Some(route)) if !limits.is_empty() => format!(" under {limits} of route `{route}`"),
        (None, _) => String::new(),
    };
    let plans = match shown(&explained["plans"]).as_str() {
        "" => String::new(),
        plans if explained["cost"] == 1 => format!("; it pays 1 token a request from {plans}"),
        plans => format!("; it pays {} tokens a request from {plans}", explained["cost"]),
    };
    format!("{} {outcome}{rule}{plans}", shown(&explained["key"]))
}

/// The row of a bucket, with the payer if it is another key, and a mark if this bucket decides.
fn with_payer(explained: &Value, bucket: &Value) -> [String; 6] {
    let mut row = row(bucket);
    if bucket["decides"] == true {
        row[0].push_str(" *");
    }
    if bucket["shadow"] == true {
        row[0].push_str(" (shadow)");
    }
    if bucket["key"] != explained["key"] {
        row[0] = format!("{} of {}", row[0], shown(&bucket["key"]));
    }
    row
}

fn denial(denial: &Value) -> [String; 6] {
    let now_ms = SystemClock::new().wall().get() / 1_000;
    let ago = now_ms.saturating_sub(denial["lastAtMs"].as_u64().unwrap_or_default());
    let span = |ms: u64| rough(Duration::from_millis(ms));
    [
        shown(&denial["limit"]),
        shown(&denial["rule"]),
        shown(&denial["reason"]),
        shown(&denial["count"]),
        format!("{} ago", span(ago)),
        span(denial["retryAfterMs"].as_u64().unwrap_or_default()),
    ]
}
