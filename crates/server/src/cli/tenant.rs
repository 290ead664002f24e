//! `spile tenant`.

use anyhow::{Context, bail};
use clap::Subcommand;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::admin::AdminArgs;
use super::entries::{list, put, remove, show, shown};
use super::print;
use crate::input::segment;

/// Commands on tenants.
#[derive(Debug, Subcommand)]
pub(super) enum TenantCommand {
    /// Lists all tenants.
    List {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Shows a tenant.
    Show {
        /// Which.
        id: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Adds a tenant and prints its API key, this once. Refuses an id that is taken.
    Add {
        /// Id of the tenant.
        id: String,
        /// The plan that it pays for.
        #[arg(long, value_name = "NAME")]
        plan: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Moves a tenant to another plan. Its API keys stay.
    Put {
        /// Which.
        id: String,
        /// The plan that it pays for.
        #[arg(long, value_name = "NAME")]
        plan: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Makes one more API key for a tenant, and prints it this once.
    Key {
        /// Whose.
        id: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Shows a tenant's usage of its quotas, and the tokens left under its rates.
    Usage {
        /// Whose.
        id: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Removes a tenant and its keys.
    Remove {
        /// Which.
        id: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
}

const KIND: &str = "tenants";

impl TenantCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List { admin } => list(&admin, KIND, ["TENANT", "PLAN", "API KEYS", "SOURCE"], |tenant| {
                vec![["id", "plan", "apiKeyCount", "source"].map(|member| shown(&tenant[member]))]
            }),
            Self::Show { id, admin } => show(&admin, KIND, &id),
            Self::Add { id, plan, admin } => add(&admin, &id, &plan),
            Self::Put { id, plan, admin } => change_plan(&admin, &id, &plan),
            Self::Key { id, admin } => {
                new_key(&admin, &id)?;
                admin.warn_of_loss();
                Ok(())
            }
            Self::Usage { id, admin } => usage(&admin, &id),
            Self::Remove { id, admin } => remove(&admin, KIND, &id),
        }
    }
}

fn add(admin: &AdminArgs, id: &str, plan: &str) -> anyhow::Result<()> {
    let client = admin.client();
    let tenant = json!({"id": id, "plan": plan});
    match client.ask(Method::POST, "/admin/v1/tenants", Some(&tenant))? {
        (status, _) if status.is_success() => {}
        (StatusCode::CONFLICT, why) if why["field"] == "id" => bail!(
            "there is a tenant {id} already: `spile tenant put {id} --plan {plan}` changes its plan, and \
             `spile tenant key {id}` makes one more API key for it"
        ),
        (status, why) => return client.refused(status, &why),
    }
    new_key(admin, id).with_context(|| {
        format!("{id} was added, and has no API key yet: `spile tenant key {id}` makes one")
    })?;
    admin.warn_of_loss();
    Ok(())
}

/// Moves the tenant to another plan. The tenant's own limits stay.
fn change_plan(admin: &AdminArgs, id: &str, plan: &str) -> anyhow::Result<()> {
    let mut tenant = admin.get(&format!("/admin/v1/tenants/{}", segment(id)))?;
    let members = tenant.as_object_mut().context("the server answered no tenant")?;
    members.retain(|member, value| !["source", "apiKeyCount"].contains(&member.as_str()) && !value.is_null());
    members.insert("plan".to_owned(), plan.into());
    put(admin, KIND, id, &tenant)
}

/// A row for each limit: quotas with their window, then rates.
fn usage(admin: &AdminArgs, id: &str) -> anyhow::Result<()> {
    let usage = admin.get(&format!("/admin/v1/tenants/{}/usage", segment(id)))?;
    let listed = |member: &str| usage[member].as_array().into_iter().flatten();
    let quota = |quota: &Value| {
        ["name", "used", "quota", "remaining", "windowStart", "windowEnd"].map(|member| shown(&quota[member]))
    };
    let rate = |rate: &Value| {
        let [name, capacity, remaining] =
            ["name", "capacity", "remaining"].map(|member| shown(&rate[member]));
        [name, String::new(), capacity, remaining, String::new(), String::new()]
    };
    let rows: Vec<_> = listed("quotas").map(quota).chain(listed("rates").map(rate)).collect();
    admin.print(&usage, || print::table(["LIMIT", "USED", "OF", "LEFT", "FROM", "UNTIL"], &rows))
}

fn new_key(admin: &AdminArgs, id: &str) -> anyhow::Result<()> {
    let path = format!("/admin/v1/tenants/{}/keys", segment(id));
    let answer: Value = admin.client().demand(Method::POST, &path, None)?;
    admin.print(&answer, || {
        format!("{}\nThis is the only time that the key of {id} is shown.", shown(&answer["apiKey"]))
    })
}
