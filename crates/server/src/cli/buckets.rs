//! `spile inspect` and `spile reset`.

use clap::Args;
use http::Method;
use serde_json::Value;

use super::client::{Client, segment};
use super::entries::AdminArgs;

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
    admin: AdminArgs,
}

impl BucketArgs {
    pub(super) fn inspect(self) -> anyhow::Result<()> {
        let answer = self.client().demand(Method::GET, &self.path(), None)?;
        if self.admin.json {
            println!("{answer}");
            return Ok(());
        }
        for bucket in answer["buckets"].as_array().into_iter().flatten() {
            println!("{}", line(bucket));
        }
        Ok(())
    }

    pub(super) fn reset(self) -> anyhow::Result<()> {
        self.client().demand(Method::DELETE, &self.path(), None)?;
        if self.admin.json {
            println!("{{\"reset\":true}}");
        } else {
            println!("full again");
        }
        Ok(())
    }

    fn client(&self) -> Client {
        self.admin.client()
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
    let (tokens, capacity, reset) = (&bucket["tokens"], &bucket["capacity"], &bucket["resetAfterMs"]);
    format!("{name:<24} {bar} {tokens}/{capacity}, full in {reset} ms")
}
