//! `spile health`: whether a server is ready, or alive, by the exit code. An image without a shell has nothing else to ask with.

use anyhow::bail;
use clap::Args;
use http::Method;
use serde_json::json;

use super::client::Client;
use super::patience::Patience;
use super::print;
use super::server_url::ServerUrl;

/// Which server.
#[derive(Args, Debug)]
pub(super) struct HealthArgs {
    /// Where the server's admin listener is: `HOST:PORT`, `:PORT` on this machine, or a URL of http or https.
    #[arg(long, value_name = "ADDRESS", env = "SPILE_ADMIN", default_value = "http://127.0.0.1:8081")]
    admin: ServerUrl,
    /// Asks only whether the process runs (`/livez`), for engines that restart what is not healthy: a store that is away is
    /// no reason to.
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    patience: Patience,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl HealthArgs {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let (path, word) = if self.live { ("/livez", "alive") } else { ("/readyz", "ready") };
        let (status, said) = Client::new(&self.admin, None, self.patience).ask(Method::GET, path, None)?;
        let said = said.as_str().unwrap_or_default();
        if !status.is_success() {
            let why = if said.is_empty() { status.to_string() } else { said.replace('\n', "; ") };
            bail!("the server at {} is not {word}: {why}", self.admin);
        }
        // A server that is ready may still have something to say, such as that its store is lost.
        let (_, more) = said.split_once('\n').unwrap_or((said, ""));
        match (self.json, more) {
            (true, "") => print::line(json!({word: true})),
            (true, more) => print::line(json!({word: true, "but": more.lines().collect::<Vec<_>>()})),
            (false, "") => print::line(word),
            (false, more) => print::line(format_args!("{word}\n{more}")),
        }
    }
}
