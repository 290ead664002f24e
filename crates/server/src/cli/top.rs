//! `spile top`: the dashboard in a terminal.

use std::net::SocketAddr;

use clap::Args;

/// The flags of `spile top`.
#[derive(Args, Debug)]
pub(super) struct TopArgs {
    /// The admin listener of the server to look at.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    admin: SocketAddr,
}

impl TopArgs {
    pub(super) fn run(self) -> anyhow::Result<()> {
        Ok(spile_observe::top::run(self.admin)?)
    }
}
