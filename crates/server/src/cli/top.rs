//! `spile top`: the dashboard in a terminal.

use std::net::{AddrParseError, SocketAddr};

use clap::Args;

/// The flags of `spile top`.
#[derive(Args, Debug)]
pub(super) struct TopArgs {
    /// The admin listener of the server to look at.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081", value_parser = address)]
    admin: SocketAddr,
    /// The token that opens it. A variable is better than a flag, which others on the machine can read.
    #[arg(long, value_name = "TOKEN", env = "SPILE_ADMIN_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

impl TopArgs {
    pub(super) fn run(self) -> anyhow::Result<()> {
        Ok(spile_observe::top::run(self.admin, self.token)?)
    }
}

/// An address, or the URL of one as the server prints it.
fn address(text: &str) -> Result<SocketAddr, AddrParseError> {
    text.trim_start_matches("http://").trim_end_matches('/').parse()
}
