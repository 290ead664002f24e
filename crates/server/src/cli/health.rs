//! `spile health`: whether a server is ready, by the exit code. An image without a shell has nothing else to ask with.

use anyhow::bail;
use clap::Args;
use http::Method;

use super::client::Client;

/// Which server.
#[derive(Args, Debug)]
pub(super) struct HealthArgs {
    /// Where the server's admin listener is.
    #[arg(long, value_name = "URL", env = "SPILE_ADMIN", default_value = "http://127.0.0.1:8081")]
    admin: String,
}

impl HealthArgs {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let (status, _) = Client::new(&self.admin, None).ask(Method::GET, "/readyz", None)?;
        if !status.is_success() {
            bail!("the server at {} is not ready: it answered {status}", self.admin);
        }
        println!("ready");
        Ok(())
    }
}
