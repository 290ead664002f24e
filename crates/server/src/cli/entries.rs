//! `spile tenant` and `spile plan`: the registry of a running server.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::client::Client;
use super::patience::Patience;
use super::print;
use crate::input::segment;

/// How the admin API is reached.
#[derive(Args, Debug)]
pub(super) struct AdminArgs {
    /// Where the server's admin API listens.
    #[arg(long, value_name = "URL", env = "SPILE_ADMIN", default_value = "http://127.0.0.1:8081")]
    admin: String,
    /// The token that opens it. A variable is better than a flag, which others on the machine can read.
    #[arg(long, value_name = "TOKEN", env = "SPILE_ADMIN_TOKEN", hide_env_values = true)]
    token: Option<String>,
    #[command(flatten)]
    pub(super) patience: Patience,
    /// Prints JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl AdminArgs {
    pub(super) fn client(&self) -> Client {
        Client::new(&self.admin, self.token.clone(), self.patience)
    }

    fn print(&self, answer: &Value, sentence: impl FnOnce() -> String) -> anyhow::Result<()> {
        print::line(if self.json { answer.to_string() } else { sentence() })
    }
}

/// What can be done with tenants.
#[derive(Debug, Subcommand)]
pub(super) enum TenantCommand {
    /// Lists all tenants.
    List {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Adds a tenant and prints its API key, this once.
    Add {
        /// What it is called.
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
    /// Removes a tenant and its keys.
    Remove {
        /// Which.
        id: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
}

impl TenantCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List { admin } => list(&admin, "tenants", |tenant| {
                format!(
                    "{:<24} {:<16} {} keys",
                    shown(&tenant["id"]),
                    shown(&tenant["plan"]),
                    tenant["apiKeyCount"]
                )
            }),
            Self::Add { id, plan, admin } => {
                let path = format!("/admin/v1/tenants/{}", segment(&id));
                admin.client().demand(Method::PUT, &path, Some(&json!({"plan": plan})))?;
                new_key(&admin, &id)
            }
            Self::Key { id, admin } => new_key(&admin, &id),
            Self::Remove { id, admin } => remove(&admin, "tenants", &id),
        }
    }
}

/// What can be done with plans.
#[derive(Debug, Subcommand)]
pub(super) enum PlanCommand {
    /// Lists all plans.
    List {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Adds a plan, or puts it in place of the one of that name.
    Put {
        /// What it is called.
        name: String,
        /// The most tokens that can be spent at once.
        #[arg(long, value_name = "TOKENS")]
        capacity: u64,
        /// How tokens come back, as in `1/s` or `100/min`.
        #[arg(long, value_name = "RATE")]
        refill: String,
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

impl PlanCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List { admin } => list(&admin, "plans", |plan| {
                let limits = match &plan["limits"] {
                    Value::Null => format!("{}, {}", plan["capacity"], shown(&plan["refill"])),
                    limits => limits.to_string(),
                };
                format!("{:<24} {limits}", shown(&plan["name"]))
            }),
            Self::Put { name, capacity, refill, admin } => {
                let path = format!("/admin/v1/plans/{}", segment(&name));
                let document = json!({"capacity": capacity, "refill": refill});
                let answer = admin.client().demand(Method::PUT, &path, Some(&document))?;
                admin.print(&answer, || format!("plan {name} is {capacity}, {refill}"))
            }
            Self::Remove { name, admin } => remove(&admin, "plans", &name),
        }
    }
}

fn list(admin: &AdminArgs, kind: &str, line: impl Fn(&Value) -> String) -> anyhow::Result<()> {
    let answer = admin.client().demand(Method::GET, &format!("/admin/v1/{kind}"), None)?;
    let lines = || answer[kind].as_array().into_iter().flatten().map(line).collect::<Vec<_>>().join("\n");
    admin.print(&answer, lines)
}

fn remove(admin: &AdminArgs, kind: &str, name: &str) -> anyhow::Result<()> {
    admin.client().demand(Method::DELETE, &format!("/admin/v1/{kind}/{}", segment(name)), None)?;
    admin.print(&json!({"removed": name}), || format!("removed {name}"))
}

fn new_key(admin: &AdminArgs, id: &str) -> anyhow::Result<()> {
    let path = format!("/admin/v1/tenants/{}/keys", segment(id));
    let answer = admin.client().demand(Method::POST, &path, None)?;
    admin.print(&answer, || {
        format!("{}\nThis is the only time that the key of {id} is shown.", shown(&answer["apiKey"]))
    })
}

fn shown(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
