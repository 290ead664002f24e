//! How commands reach the admin API.

use clap::Args;
use http::Method;
use serde_json::Value;

use super::client::Client;
use super::patience::Patience;
use super::print;
use super::server_url::ServerUrl;

/// How the admin API is reached.
#[derive(Args, Debug)]
pub(super) struct AdminArgs {
    /// Where the server's admin API listens: `HOST:PORT`, `:PORT` on this machine, or a URL of http or https.
    #[arg(long, value_name = "ADDRESS", env = "SPILE_ADMIN", default_value = "http://127.0.0.1:8081")]
    pub(super) admin: ServerUrl,
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

    /// Returns the answer of a path that must exist.
    pub(super) fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.client().demand(Method::GET, path, None)
    }

    pub(super) fn print(&self, answer: &Value, sentence: impl FnOnce() -> String) -> anyhow::Result<()> {
        print::line(if self.json { answer.to_string() } else { sentence() })
    }

    /// Warns if a restart of the server will lose the change that was just made.
    pub(super) fn warn_of_loss(&self) {
        // The change was made, so failing to learn where changes are stored is not an error.
        if self.get("/admin/v1/store").is_ok_and(|store| store["registry"]["survivesRestart"] == false) {
            print::warning(
                "the server has this in its memory alone, and loses it when it is started again: set `store.path` or \
                 `admin.registry_file`, or write it into the server's file",
            );
        }
    }
}
