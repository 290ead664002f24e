//! `spile rule`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use spile_core::{Amount, FailurePolicy};

use super::admin::AdminArgs;
use super::entries::{EntryFile, list, put, remove, show, shown};
use crate::input::tokens::Tokens;

/// Commands on rules.
#[derive(Debug, Subcommand)]
pub(super) enum RuleCommand {
    /// Lists all rules.
    List {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Shows a rule.
    Show {
        /// Which.
        id: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Adds a rule, or puts it in place of the one of that id.
    Put {
        /// Id of the rule.
        id: String,
        #[command(flatten)]
        rule: Box<RuleArgs>,
        #[command(flatten)]
        file: EntryFile,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Removes a rule.
    Remove {
        /// Which.
        id: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
}

/// A rule in flags. One for descriptors of Envoy is put from a file.
#[derive(Args, Debug)]
pub(super) struct RuleArgs {
    /// The plans that it charges; `tenant` for the caller's own, `unlimited` to let pass, `banned` to refuse.
    #[arg(long = "plan", value_name = "NAME", required_unless_present = "file", conflicts_with = "file")]
    plans: Vec<String>,
    /// The plan of callers who are no tenant, with `--plan tenant`.
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    anonymous_plan: Option<String>,
    /// Only requests for this path, with `*` for any one segment and a last `*` for all that follows.
    #[arg(long, value_name = "PATTERN", conflicts_with = "file")]
    path: Option<String>,
    /// Only requests for these hosts, as in `api.example.com` or `*.example.com`.
    #[arg(long = "host", value_name = "HOST", conflicts_with = "file")]
    hosts: Vec<String>,
    /// Only requests of these methods.
    #[arg(long = "method", value_name = "METHOD", conflicts_with = "file")]
    methods: Vec<String>,
    /// Who pays, the first that is found: `tenant`, `principal`, `ip`, `path`, `header:NAME`, `literal:NAME`.
    #[arg(long = "key", value_name = "KEY", conflicts_with = "file")]
    keys: Vec<String>,
    /// Tokens that a request spends.
    #[arg(long, value_name = "TOKENS", conflicts_with = "file")]
    cost: Option<Amount>,
    /// The cost does not follow the cost of answers: for limits that count requests.
    #[arg(long, conflicts_with = "file")]
    fixed_cost: bool,
    /// Decides and counts, and never blocks.
    #[arg(long, conflicts_with = "file")]
    shadow: bool,
    /// Policy while the store fails: `allow`, `deny` or `local`.
    #[arg(long, value_name = "POLICY", conflicts_with = "file")]
    on_failure: Option<FailurePolicy>,
    /// Rules that are charged with this one.
    #[arg(long, value_name = "ID", conflicts_with = "file")]
    also: Vec<String>,
}

const KIND: &str = "rules";

impl RuleCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List { admin } => {
                list(&admin, KIND, ["RULE", "MATCHES", "KEY", "PLANS", "COST", "MODE", "SOURCE"], |rule| {
                    vec![row(rule)]
                })
            }
            Self::Show { id, admin } => show(&admin, KIND, &id),
            Self::Put { id, rule, file, admin } => put(&admin, KIND, &id, &file.or(|| Ok(rule.document()))?),
            Self::Remove { id, admin } => remove(&admin, KIND, &id),
        }
    }
}

impl RuleArgs {
    fn document(self) -> Value {
        let listed = |values: Vec<String>| (!values.is_empty()).then(|| json!(values));
        // A single word may be a keyword, such as `tenant`. A list always names plans.
        let plans = match <[String; 1]>::try_from(self.plans) {
            Ok([only]) => json!(only),
            Err(several) => json!(several),
        };
        let matches = members([
            ("path", self.path.map(Value::from)),
            ("hosts", listed(self.hosts)),
            ("methods", listed(self.methods)),
        ]);
        Value::Object(members([
            ("match", (!matches.is_empty()).then_some(Value::Object(matches))),
            ("key", listed(self.keys)),
            ("plans", Some(plans)),
            ("anonymousPlan", self.anonymous_plan.map(Value::from)),
            ("cost", self.cost.map(|cost| json!(Tokens(cost)))),
            ("fixedCost", self.fixed_cost.then(|| json!(true))),
            ("mode", self.shadow.then(|| json!("shadow"))),
            ("onFailure", self.on_failure.map(|policy| json!(policy.to_string()))),
            ("also", listed(self.also)),
        ]))
    }
}

/// The members that have a value.
fn members<const N: usize>(members: [(&str, Option<Value>); N]) -> Map<String, Value> {
    members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn row(rule: &Value) -> [String; 7] {
    let matches = match &rule["match"] {
        Value::Null => "all".to_owned(),
        matches => {
            let parts = matches.as_object().into_iter().flatten().filter(|(_, part)| !part.is_null());
            parts.map(|(_, part)| shown(part)).collect::<Vec<_>>().join(" ")
        }
    };
    let [id, key, plans, cost, mode, source] =
        ["id", "key", "plans", "cost", "mode", "source"].map(|member| shown(&rule[member]));
    [id, matches, key, plans, cost, mode, source]
}
