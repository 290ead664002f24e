//! `spile top`: the dashboard in a terminal.

use std::io::{self, IsTerminal};

use anyhow::bail;
use clap::Args;
use http::Method;
use spile_observe::Snapshot;

use super::admin::AdminArgs;
use super::client::Client;
use super::print;

/// The flags of `spile top`.
#[derive(Args, Debug)]
pub(super) struct TopArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

const SNAPSHOT: &str = "/dashboard/snapshot";

impl TopArgs {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if self.admin.json {
            return print::line(self.admin.get(SNAPSHOT)?);
        }
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            bail!(
                "`spile top` draws in a terminal, and the output is not one: `spile top --json` prints the figures once"
            );
        }
        let (server, client) = (self.admin.admin.to_string(), self.admin.client());
        Ok(spile_observe::top::run(&server, move || fetch(&client))?)
    }
}

/// The current figures, or the reason why they cannot be read.
fn fetch(client: &Client) -> Result<Snapshot, String> {
    let answer = client.demand(Method::GET, SNAPSHOT, None).map_err(|why| format!("{why:#}"))?;
    serde_json::from_value(answer).map_err(|why| format!("the answer cannot be read: {why}"))
}
