//! `spile plan`.

use anyhow::Context;
use clap::Subcommand;
use serde_json::{Value, json};

use super::admin::AdminArgs;
use super::entries::{EntryFile, list, put, remove, show, shown};

/// What can be done with plans.
#[derive(Debug, Subcommand)]
pub(super) enum PlanCommand {
    /// Lists all plans, a line for each limit.
    List {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Shows a plan.
    Show {
        /// Which.
        name: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Adds a plan, or puts it in place of the one of that name.
    Put {
        /// What it is called.
        name: String,
        /// The most tokens that can be spent at once.
        #[arg(long, value_name = "TOKENS", required_unless_present = "file", conflicts_with = "file")]
        capacity: Option<u64>,
        /// How tokens come back, as in `1/s` or `100/min`.
        #[arg(long, value_name = "RATE", required_unless_present = "file", conflicts_with = "file")]
        refill: Option<String>,
        #[command(flatten)]
        file: EntryFile,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Removes a plan.
    Remove {
        /// Which.
        name: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
}

const KIND: &str = "plans";

impl PlanCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List { admin } => {
                list(&admin, KIND, ["PLAN", "LIMIT", "CAPACITY", "REFILL", "SOURCE"], rows)
            }
            Self::Show { name, admin } => show(&admin, KIND, &name),
            Self::Put { name, capacity, refill, file, admin } => {
                let flags = || {
                    let capacity = capacity.context("--capacity is missing")?;
                    Ok(json!({"capacity": capacity, "refill": refill}))
                };
                put(&admin, KIND, &name, &file.or(flags)?)
            }
            Self::Remove { name, admin } => remove(&admin, KIND, &name),
        }
    }
}

/// A row for each limit. The limit of a plan that has one is called like the plan.
fn rows(plan: &Value) -> Vec<[String; 5]> {
    let row = |limit: &Value| {
        let name = if limit["name"].is_null() { &plan["name"] } else { &limit["name"] };
        [&plan["name"], name, &limit["capacity"], &limit["refill"], &plan["source"]].map(shown)
    };
    match plan["limits"].as_array() {
        Some(limits) => limits.iter().map(row).collect(),
        None => vec![row(plan)],
    }
}
