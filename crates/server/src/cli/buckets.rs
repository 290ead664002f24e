//! `spile inspect` and `spile reset`.

use std::time::Duration;

use clap::Args;
use http::Method;
use serde_json::Value;
use spile_core::{Clock, SystemClock};

use super::admin::AdminArgs;
use super::direct::DirectArgs;
use super::entries::shown;
use super::print;
use crate::decide::buckets::rough;
use crate::input::segment;

/// Cells of a level bar.
const BAR: usize = 20;

/// Whose buckets.
#[derive(Args, Debug)]
pub(super) struct BucketArgs {
    /// Whose buckets.
    key: String,
    /// Only those of this plan.
    #[arg(long, value_name = "NAME")]
    plan: Option<String>,
    #[command(flatten)]
    direct: DirectArgs,
    #[command(flatten)]
    admin: AdminArgs,
}

impl BucketArgs {
    pub(super) fn inspect(self) -> anyhow::Result<()> {
        let answer = match self.direct.open(false, self.admin.patience)? {
            Some(store) => store.inspect(&self.key, self.plan.as_deref())?,
            None => self.admin.get(&self.path())?,
        };
        if self.admin.json {
            return print::line(answer);
        }
        let buckets = || answer["buckets"].as_array().into_iter().flatten();
        let rows: Vec<_> = buckets().map(row).collect();
        print::line(print::table(HEADER, &rows))?;
        let holders: Vec<_> = buckets().flat_map(holders).collect();
        if !holders.is_empty() {
            print::line(format_args!("\n{}", print::table(HOLDERS, &holders)))?;
        }
        if buckets().all(|bucket| bucket["exists"] == false) {
            print::line(format_args!("{} has no bucket yet: {NO_BUCKET}", self.key))?;
        }
        Ok(())
    }

    pub(super) fn reset(self) -> anyhow::Result<()> {
        match self.direct.open(true, self.admin.patience)? {
            Some(store) => store.reset(&self.key, self.plan.as_deref())?,
            None => drop(self.admin.client().demand(Method::DELETE, &self.path(), None)?),
        }
        print::line(if self.admin.json { "{\"reset\":true}" } else { "full again" })
    }

    fn path(&self) -> String {
        let key = segment(&self.key);
        match &self.plan {
            Some(plan) => format!("/admin/v1/buckets/{key}?plan={}", segment(plan)),
            None => format!("/admin/v1/buckets/{key}"),
        }
    }
}

/// The explanation for a key that the store does not have.
pub(super) const NO_BUCKET: &str = "nothing was spent, or all of it has come back. A key has its kind in front, as in \
                                    tenant:acme, ip:203.0.113.7 or principal:ann";

/// The columns of buckets.
pub(super) const HEADER: [&str; 6] = ["LIMIT", "LEVEL", "TOKENS", "REFILL", "FULL IN", "KEPT FOR"];

/// The columns of permits.
const HOLDERS: [&str; 5] = ["PERMIT OF", "HELD BY", "FOR", "ENDS IN", "ID"];

/// Returns a row for each holder of a permit.
fn holders(bucket: &Value) -> Vec<[String; 5]> {
    let now_ms = SystemClock::new().wall().get() / 1_000;
    let span = |from_ms: u64, to_ms: u64| rough(Duration::from_millis(to_ms.saturating_sub(from_ms)));
    let row = |permit: &Value| {
        let at = |member: &str| permit[member].as_u64().unwrap_or_default();
        [
            shown(&bucket["limit"]),
            permit["holder"].as_str().unwrap_or("no name").to_owned(),
            span(at("sinceMs"), now_ms),
            span(now_ms, at("untilMs")),
            shown(&permit["id"]).split('@').next().unwrap_or_default().to_owned(),
        ]
    };
    bucket["permits"]["holders"].as_array().into_iter().flatten().map(row).collect()
}

/// A bucket as a row. One that the store does not have is full, and one in debt shows a negative number of tokens.
pub(super) fn row(bucket: &Value) -> [String; 6] {
    let level = bucket["level"].as_f64().unwrap_or_default();
    let full = (level * BAR as f64).round() as usize;
    let bar: String = (0..BAR).map(|cell| if cell < full { '█' } else { '░' }).collect();
    let when = match bucket["resetAfterMs"].as_u64() {
        _ if bucket["permits"].is_object() => format!("{} held", bucket["permits"]["held"]),
        _ if bucket["exists"] == false => "no bucket yet".to_owned(),
        Some(0) | None => "full".to_owned(),
        Some(ms) => rough(Duration::from_millis(ms)),
    };
    let owed = bucket["owed"].as_u64().filter(|owed| *owed > 0);
    let left = owed.map_or_else(|| bucket["tokens"].to_string(), |owed| format!("-{owed}"));
    let tokens = format!("{left}/{}", bucket["capacity"]);
    let kept = bucket["ttlMs"].as_u64().map(|ms| rough(Duration::from_millis(ms))).unwrap_or_default();
    [shown(&bucket["limit"]), bar, tokens, shown(&bucket["refill"]), when, kept]
}
