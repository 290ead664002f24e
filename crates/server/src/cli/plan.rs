//! `spile plan`.

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use spile_core::{Amount, Unit};

use super::admin::AdminArgs;
use super::entries::{EntryFile, list, put, remove, show, shown};
use crate::input::tokens::Tokens;

/// Commands on plans.
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
        /// Name of the plan.
        name: String,
        #[command(flatten)]
        limit: Box<LimitFlags>,
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

/// The limit of a plan that has one: a rate, a quota or a concurrency.
#[derive(Args, Debug)]
#[group(id = "limit", multiple = true)]
pub(super) struct LimitFlags {
    /// The most tokens that can be spent at once.
    #[arg(long, value_name = "TOKENS", conflicts_with = "file", requires = "refill")]
    capacity: Option<Amount>,
    /// How tokens come back, as in `1/s` or `100/min`.
    #[arg(long, value_name = "RATE", conflicts_with = "file", requires = "capacity")]
    refill: Option<String>,
    /// A quota in place of a capacity and a refill: at most this many tokens in each period.
    #[arg(long, value_name = "TOKENS", conflicts_with_all = ["file", "capacity", "refill"], requires = "per")]
    quota: Option<Amount>,
    /// The period of a quota: minute, hour, day, week, month or year.
    #[arg(long, value_name = "PERIOD", requires = "quota")]
    per: Option<String>,
    /// The time zone of a quota, as in `Europe/Berlin`; UTC if it is left out.
    #[arg(long, value_name = "ZONE", requires = "quota")]
    zone: Option<String>,
    /// When a period starts: a day of the month, an hour, a weekday or a date, as in `15`, `mon` or `04-01`.
    #[arg(long, value_name = "START", requires = "quota")]
    anchor: Option<String>,
    /// A concurrency in place of a capacity and a refill: at most this many permits held at once.
    #[arg(long, value_name = "PERMITS", conflicts_with_all = ["file", "capacity", "refill", "quota", "debt"])]
    concurrency: Option<u64>,
    /// How long a permit is held unless it is renewed, as in `30s`, which it is if this is left out.
    #[arg(long, value_name = "TIME", requires = "concurrency")]
    hold: Option<String>,
    /// How many tokens late charges may take beyond the available ones; as many as the limit holds, if it is left out.
    #[arg(long, value_name = "TOKENS", conflicts_with = "file")]
    debt: Option<Amount>,
    /// The unit that it counts in: `requests`, `tokens`, or a currency such as `usd`, whose smallest amount is a millionth.
    #[arg(long, value_name = "UNIT", conflicts_with_all = ["file", "concurrency"])]
    unit: Option<Unit>,
}

impl LimitFlags {
    /// The plan that they describe.
    fn plan(&self) -> anyhow::Result<Value> {
        if self.capacity.is_none() && self.quota.is_none() && self.concurrency.is_none() {
            bail!(
                "a plan needs a limit: --capacity and --refill, --quota and --per, --concurrency, or --file"
            );
        }
        let Self { capacity, refill, quota, per, zone, anchor, concurrency, hold, debt, unit } = self;
        let [capacity, quota, debt] = [capacity, quota, debt].map(|amount| amount.map(Tokens));
        let mut plan = json!({"capacity": capacity, "refill": refill, "quota": quota, "per": per, "zone": zone,
                              "anchor": anchor, "concurrency": concurrency, "hold": hold, "debt": debt,
                              "unit": unit.map(Unit::as_str)});
        plan.as_object_mut().into_iter().for_each(|members| members.retain(|_, value| !value.is_null()));
        Ok(plan)
    }
}

const KIND: &str = "plans";

impl PlanCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List { admin } => {
                list(&admin, KIND, ["PLAN", "LIMIT", "CAPACITY", "REFILL", "DEBT", "SOURCE"], rows)
            }
            Self::Show { name, admin } => show(&admin, KIND, &name),
            Self::Put { name, limit, file, admin } => put(&admin, KIND, &name, &file.or(|| limit.plan())?),
            Self::Remove { name, admin } => remove(&admin, KIND, &name),
        }
    }
}

/// A row for each limit. The only limit of a plan has the name of the plan.
fn rows(plan: &Value) -> Vec<[String; 6]> {
    let row = |limit: &Value| {
        let name = if limit["name"].is_null() { &plan["name"] } else { &limit["name"] };
        let tokens = ["quota", "concurrency", "capacity"].map(|member| &limit[member]);
        let tokens = tokens.into_iter().find(|tokens| !tokens.is_null()).unwrap_or(&Value::Null);
        let [plan_name, name, tokens, debt, source] =
            [&plan["name"], name, tokens, &limit["debt"], &plan["source"]].map(shown);
        [plan_name, name, tokens, refill(limit), debt, source]
    };
    match plan["limits"].as_array() {
        Some(limits) => limits.iter().map(row).collect(),
        None => vec![row(plan)],
    }
}

/// How the tokens of a limit come back: `1/s`, or `per month in Europe/Berlin from 15`. For a concurrency, how long a permit is held.
fn refill(limit: &Value) -> String {
    if !limit["concurrency"].is_null() {
        return format!("held {}", limit["hold"].as_str().unwrap_or("30s"));
    }
    if limit["per"].is_null() {
        return shown(&limit["refill"]);
    }
    let words = [("per", "per"), ("zone", "in"), ("anchor", "from")];
    let said = words.into_iter().filter(|(member, _)| !limit[*member].is_null());
    said.map(|(member, word)| format!("{word} {}", shown(&limit[member]))).collect::<Vec<_>>().join(" ")
}
