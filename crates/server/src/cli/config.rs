//! `spile config`: checks, shows or starts a configuration file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;

use super::outcome::CommandOutcome;
use super::patience::Patience;
use super::print;
use super::serve::ServeArgs;
use crate::config::{self, Config, Offered, STARTER, StoreUrl, UnknownStore};
use crate::registry::{Registry, RegistryFile};
use crate::secret::mask;

/// What can be done with a configuration.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Says whether a file works, and if not, everything that is wrong with it.
    Check {
        /// The file.
        #[arg(value_name = "FILE", default_value = "spile.toml")]
        file: PathBuf,
        /// Also says which entries of this registry would be in quarantine with the file: the file of an embedded store,
        /// or the URL of a Redis. The exit code is 1 if there are any.
        #[arg(long, value_name = "FILE_OR_URL")]
        registry: Option<RegistryPlace>,
        #[command(flatten)]
        patience: Patience,
    },
    /// Prints what the server would run with, from file, environment and flags. Secrets are left out.
    Show(ServeArgs),
    /// Prints a commented file to start from.
    Init,
}

impl ConfigCommand {
    pub(super) fn run(self) -> anyhow::Result<CommandOutcome> {
        match self {
            Self::Check { file, registry, patience } => check(&file, registry.as_ref(), patience),
            Self::Show(args) => print::all(mask(&args.config()?.to_string())).map(CommandOutcome::done),
            Self::Init => print::all(STARTER).map(CommandOutcome::done),
        }
    }
}

fn check(
    file: &Path,
    registry: Option<&RegistryPlace>,
    patience: Patience,
) -> anyhow::Result<CommandOutcome> {
    let mut config = Config::load(file, config::environment()?)?;
    let mut with = String::new();
    if let Some(place) = registry {
        let offered = place.read(&config, patience)?;
        with = format!(", with {} entries of the registry in {place}", offered.entries.len());
        config = config.adopt(&offered)?;
    }
    let (plans, rules, tenants) = (config.plans.len(), config.rules.len(), config.tenants.len());
    let (file, routes) = (file.display(), config.routes.len());
    print::line(format_args!(
        "{file} works: {plans} plans, {rules} rules, {tenants} tenants, {routes} routes{with}"
    ))?;
    for warning in config.warnings() {
        print::line(format_args!("warning: {warning}"))?;
    }
    for (entry, why) in config.quarantine().iter() {
        print::line(format_args!("quarantine: {entry}: {why}"))?;
    }
    Ok(if config.quarantine().is_empty() { CommandOutcome::Done } else { CommandOutcome::Quarantined })
}

/// Where a registry is kept.
#[derive(Clone, Debug)]
pub(super) enum RegistryPlace {
    /// In the file of an embedded store.
    File(PathBuf),
    /// In a Redis.
    Redis(StoreUrl),
}

impl FromStr for RegistryPlace {
    type Err = UnknownStore;

    fn from_str(text: &str) -> Result<Self, UnknownStore> {
        if text.contains("://") { text.parse().map(Self::Redis) } else { Ok(Self::File(text.into())) }
    }
}

impl fmt::Display for RegistryPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Redis(url) => write!(f, "{url}"),
        }
    }
}

impl RegistryPlace {
    /// All that is kept there. Changes nothing.
    fn read(&self, config: &Config, patience: Patience) -> anyhow::Result<Offered> {
        let url = match self {
            Self::File(path) => {
                let (entries, broken) =
                    RegistryFile::look(path).with_context(|| path.display().to_string())?;
                return Ok(Offered { entries: Arc::new(entries), broken });
            }
            Self::Redis(url) => url,
        };
        let mut store = config.store.clone();
        store.url.clone_from(url);
        store.timeout = patience.timeout;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let redis = store.redis().context("a registry is kept in a file or in Redis")?.build()?;
            let mut registry = Registry::shared(&redis);
            let read = async { registry.catch_up().await.map_err(Into::into) };
            patience.bound(&url.to_string(), read).await?;
            Ok(Offered { entries: Arc::clone(registry.entries()), broken: registry.broken().clone() })
        })
    }
}
