//! `spile check` and `spile peek`.

use clap::Args;
use http::Method;
use serde_json::{Value, json};
use spile_core::{Amount, Reason};

use super::client::Client;
use super::direct::DirectArgs;
use super::outcome::CommandOutcome;
use super::patience::Patience;
use super::print;
use super::server_url::ServerUrl;
use crate::input::tokens::Tokens;

/// Who asks for what.
#[derive(Args, Debug)]
pub(super) struct AskArgs {
    /// Who pays.
    key: String,
    #[command(flatten)]
    by: AskedBy,
    /// The tokens to spend.
    #[arg(long, value_name = "TOKENS")]
    cost: Option<Amount>,
    /// Where the server's decision API listens: `HOST:PORT`, `:PORT` on this machine, or a URL of http or https.
    #[arg(long, value_name = "ADDRESS", env = "SPILE_SERVER", default_value = "http://127.0.0.1:8080")]
    server: ServerUrl,
    #[command(flatten)]
    direct: DirectArgs,
    #[command(flatten)]
    patience: Patience,
    /// Prints the decision as JSON.
    #[arg(long)]
    json: bool,
}

/// The limits that decide: a rule's, or plans.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct AskedBy {
    /// The rule to ask; `spile rule list` names them.
    #[arg(long, value_name = "ID")]
    rule: Option<String>,
    /// The plans to ask; several are a chain. `spile plan list` names them.
    #[arg(long = "plan", value_name = "NAME")]
    plans: Vec<String>,
}

/// Whether to spend or only to look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verb {
    Check,
    Peek,
}

impl AskArgs {
    pub(super) fn run(self, verb: Verb) -> anyhow::Result<CommandOutcome> {
        let question = self.question();
        let decision = match self.direct.open(verb == Verb::Check, self.patience)? {
            Some(store) => store.ask(verb, &question)?,
            None => self.ask_server(verb, &question)?,
        };
        let allowed = decision["allowed"] == true;
        if self.json {
            print::line(&decision)?;
        } else {
            print::line(sentence(verb, allowed, &decision))?;
        }
        Ok(match allowed {
            true => CommandOutcome::Done,
            false if decision["reason"] == Reason::FailClosed.as_str() => CommandOutcome::Undecided,
            false => CommandOutcome::Denied,
        })
    }

    fn question(&self) -> Value {
        let mut question = json!({"identity": self.key});
        match &self.by.rule {
            Some(rule) => question["ruleId"] = json!(rule),
            None => question["plans"] = json!(self.by.plans),
        }
        if let Some(cost) = self.cost {
            question["cost"] = json!(Tokens(cost));
        }
        question
    }

    fn ask_server(&self, verb: Verb, question: &Value) -> anyhow::Result<Value> {
        let path = match verb {
            Verb::Check => "/v1/check",
            Verb::Peek => "/v1/peek",
        };
        let client = Client::new(&self.server, None, self.patience);
        let (status, decision) = client.ask(Method::POST, path, Some(question))?;
        if decision["allowed"].is_boolean() { Ok(decision) } else { client.refused(status, &decision) }
    }
}

fn sentence(verb: Verb, allowed: bool, decision: &Value) -> String {
    let (limit, left) = (&decision["limit"], &decision["remaining"]);
    if limit.is_null() {
        let shadow = &decision["shadow"];
        let watched = match (shadow["allowed"].as_bool(), shadow["limitedBy"].as_str()) {
            (Some(false), Some(by)) => {
                format!("; in shadow mode, it would be denied by {by} for {} ms", shadow["retryAfterMs"])
            }
            (Some(_), _) => "; it would be allowed in shadow mode".to_owned(),
            (None, _) => String::new(),
        };
        return format!("allowed: no limit applies{watched}");
    }
    let degraded = if decision["degraded"] == true { ", decided without the store" } else { "" };
    if allowed {
        // A key that never spent anything, perhaps because it is misspelt, looks like this.
        let is_full = verb == Verb::Peek && decision["resetAfterMs"] == 0 && left == limit;
        let untouched = if is_full { "; no bucket yet, or all of it has come back" } else { "" };
        return format!("allowed: {left} of {limit} tokens left{degraded}{untouched}");
    }
    let by = decision["limitedBy"].as_str().map(|name| format!(" by {name}")).unwrap_or_default();
    format!(
        "denied{by}: {left} of {limit} tokens left, retry after {} ms{degraded}",
        decision["retryAfterMs"]
    )
}
