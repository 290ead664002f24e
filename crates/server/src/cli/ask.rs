//! `spile check` and `spile peek`.

use clap::Args;
use http::Method;
use serde_json::{Value, json};
use spile_core::Reason;

use super::client::{Client, refused};
use super::direct::DirectArgs;
use super::outcome::CommandOutcome;
use super::patience::Patience;
use super::print;

/// Who asks for what.
#[derive(Args, Debug)]
pub(super) struct AskArgs {
    /// Who pays.
    key: String,
    /// The plans to ask; several are a chain.
    #[arg(long = "plan", value_name = "NAME", conflicts_with = "rule", required_unless_present = "rule")]
    plans: Vec<String>,
    /// The rule to ask.
    #[arg(long, value_name = "ID")]
    rule: Option<String>,
    /// The tokens to spend.
    #[arg(long, value_name = "TOKENS")]
    cost: Option<u64>,
    /// Where the server's decision API listens.
    #[arg(long, value_name = "URL", env = "SPILE_SERVER", default_value = "http://127.0.0.1:8080")]
    server: String,
    #[command(flatten)]
    direct: DirectArgs,
    #[command(flatten)]
    patience: Patience,
    /// Prints the decision as JSON.
    #[arg(long)]
    json: bool,
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
            print::line(sentence(allowed, &decision))?;
        }
        Ok(match allowed {
            true => CommandOutcome::Done,
            false if decision["reason"] == Reason::FailClosed.as_str() => CommandOutcome::Undecided,
            false => CommandOutcome::Denied,
        })
    }

    fn question(&self) -> Value {
        let mut question = json!({"identity": self.key});
        match &self.rule {
            Some(rule) => question["ruleId"] = json!(rule),
            None => question["plans"] = json!(self.plans),
        }
        if let Some(cost) = self.cost {
            question["cost"] = json!(cost);
        }
        question
    }

    fn ask_server(&self, verb: Verb, question: &Value) -> anyhow::Result<Value> {
        let path = match verb {
            Verb::Check => "/v1/check",
            Verb::Peek => "/v1/peek",
        };
        let (status, decision) =
            Client::new(&self.server, None, self.patience).ask(Method::POST, path, Some(question))?;
        if decision["allowed"].is_boolean() { Ok(decision) } else { refused(status, &decision) }
    }
}

fn sentence(allowed: bool, decision: &Value) -> String {
    let (limit, left) = (&decision["limit"], &decision["remaining"]);
    let degraded = if decision["degraded"] == true { ", decided without the store" } else { "" };
    if allowed {
        return format!("allowed: {left} of {limit} tokens left{degraded}");
    }
    let by = decision["limitedBy"].as_str().map(|name| format!(" by {name}")).unwrap_or_default();
    format!(
        "denied{by}: {left} of {limit} tokens left, retry after {} ms{degraded}",
        decision["retryAfterMs"]
    )
}
