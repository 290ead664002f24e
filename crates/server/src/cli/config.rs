//! `spile config`: checks, shows or starts a configuration file.

use std::path::PathBuf;

use clap::Subcommand;

use super::serve::ServeArgs;
use crate::config::{self, Config, STARTER};
use crate::mask::mask;

/// What can be done with a configuration.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Says whether a file works, and if not, everything that is wrong with it.
    Check {
        /// The file.
        #[arg(value_name = "FILE", default_value = "spile.toml")]
        file: PathBuf,
    },
    /// Prints what the server would run with, from file, environment and flags. Secrets are left out.
    Show(ServeArgs),
    /// Prints a commented file to start from.
    Init,
}

impl ConfigCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Check { file } => {
                let config = Config::load(&file, config::environment()?)?;
                let (plans, rules, tenants) = (config.plans.len(), config.rules.len(), config.tenants.len());
                let (file, routes) = (file.display(), config.routes.len());
                println!("{file} works: {plans} plans, {rules} rules, {tenants} tenants, {routes} routes");
                for warning in config.warnings() {
                    println!("warning: {warning}");
                }
            }
            Self::Show(args) => print!("{}", mask(&args.config()?.to_string())),
            Self::Init => print!("{STARTER}"),
        }
        Ok(())
    }
}
