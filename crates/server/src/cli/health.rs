//! `spile health`: whether a server is ready, or alive, by the exit code. An image without a shell has nothing else to ask with.

use anyhow::bail;
use clap::Args;
use http::Method;

use super::client::Client;
use super::patience::Patience;
use super::print;

/// Which server.
#[derive(Args, Debug)]
pub(super) struct HealthArgs {
    /// Where the server's admin listener is.
    #[arg(long, value_name = "URL", env = "SPILE_ADMIN", default_value = "http://127.0.0.1:8081")]
    admin: String,
    /// Asks only whether the process runs (`/livez`), for engines that restart what is not healthy: a store that is away is
    /// no reason to.
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    patience: Patience,
}

impl HealthArgs {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let (path, word) = if self.live { ("/livez", "alive") } else { ("/readyz", "ready") };
        let (status, _) = Client::new(&self.admin, None, self.patience).ask(Method::GET, path, None)?;
        if !status.is_success() {
            bail!("the server at {} is not {word}: it answered {status}", self.admin);
        }
        print::line(word)
    }
}
