//! `spile inspect` and `spile reset`.

use std::time::Duration;

use clap::Args;
use http::Method;
use serde_json::Value;

use super::direct::DirectArgs;
use super::entries::AdminArgs;
use super::print;
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
            None => self.admin.client().demand(Method::GET, &self.path(), None)?,
        };
        if self.admin.json {
            return print::line(answer);
        }
        answer["buckets"].as_array().into_iter().flatten().try_for_each(|bucket| print::line(line(bucket)))
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

fn line(bucket: &Value) -> String {
    let level = bucket["level"].as_f64().unwrap_or_default();
    let full = (level * BAR as f64).round() as usize;
    let bar: String = (0..BAR).map(|cell| if cell < full { '█' } else { '░' }).collect();
    let name = bucket["limit"].as_str().unwrap_or_default();
    let (tokens, capacity) = (&bucket["tokens"], &bucket["capacity"]);
    let when = match bucket["resetAfterMs"].as_u64() {
        Some(0) | None => "full".to_owned(),
        Some(ms) => format!("full in {}", span(ms)),
    };
    let kept = match bucket["ttlMs"].as_u64() {
        Some(ms) => format!(", TTL {}", span(ms)),
        None => String::new(),
    };
    format!("{name:<24} {bar} {tokens}/{capacity}, {when}{kept}")
}

/// In its two largest units: the milliseconds of an hour do not matter.
fn span(ms: u64) -> String {
    let text = humantime::format_duration(Duration::from_millis(ms)).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}
