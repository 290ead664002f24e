//! `spile config`: checks, shows or starts a configuration file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;
use serde_json::{Value, json};

use super::outcome::CommandOutcome;
use super::patience::Patience;
use super::print;
use super::serve::ServeArgs;
use crate::config::{Config, ConfigError, LoadError, Offered, STARTER, StoreUrl, UnknownStore};
use crate::registry::{Registry, RegistryFile};
use crate::secret::mask;

/// Commands on a configuration.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Reports whether a server would run with a file, and if not, everything that is wrong with it.
    Check {
        /// The file; `--config` names it just as well. `spile.toml`, if there is neither.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        #[command(flatten)]
        serve: ServeArgs,
        /// Also reports which entries of this registry would be in quarantine with the file: the file of an embedded store, or the URL of
        /// a Redis. The exit code is 1 if there are any.
        #[arg(long, value_name = "FILE_OR_URL")]
        registry: Option<RegistryPlace>,
        #[command(flatten)]
        patience: Patience,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Prints what the server would run with, from file, environment and flags. Secrets are left out.
    Show {
        /// The file; `--config` names it just as well.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        #[command(flatten)]
        serve: ServeArgs,
        /// Prints JSON instead of TOML.
        #[arg(long)]
        json: bool,
    },
    /// Prints a commented file to start from.
    Init,
}

impl ConfigCommand {
    pub(super) fn run(self) -> anyhow::Result<CommandOutcome> {
        match self {
            Self::Check { file, serve, registry, patience, json } => {
                let file = file.or_else(|| serve.file()).unwrap_or_else(|| "spile.toml".into());
                let checked = check(&serve.with_file(file.clone()), registry.as_ref(), patience);
                if json { print_json(&file, checked) } else { print_text(&file, &checked?) }
            }
            Self::Show { file, serve, json } => {
                let serve = match file {
                    Some(file) => serve.with_file(file),
                    None => serve,
                };
                let shown = mask(&serve.config()?.to_string());
                if json {
                    print::line(toml::from_str::<Value>(&shown)?).map(CommandOutcome::done)
                } else {
                    print::all(shown).map(CommandOutcome::done)
                }
            }
            Self::Init => print::all(STARTER).map(CommandOutcome::done),
        }
    }
}

/// A valid configuration, and the registry that it was checked with, if there is one.
struct CheckedConfig {
    config: Config,
    registry: Option<(usize, String)>,
}

fn check(
    serve: &ServeArgs,
    registry: Option<&RegistryPlace>,
    patience: Patience,
) -> anyhow::Result<CheckedConfig> {
    let mut config = serve.config()?;
    config.store.check()?;
    config.check_runs(None)?;
    let Some(place) = registry else { return Ok(CheckedConfig { config, registry: None }) };
    let offered = place.read(&config, patience)?;
    config = config.adopt(&offered)?;
    Ok(CheckedConfig { config, registry: Some((offered.entries.len(), place.to_string())) })
}

fn print_text(
    file: &Path,
    CheckedConfig { config, registry }: &CheckedConfig,
) -> anyhow::Result<CommandOutcome> {
    let with =
        registry.as_ref().map(|(count, place)| format!(", with {count} entries of the registry in {place}"));
    let (plans, rules, tenants) = (config.plans.len(), config.rules.len(), config.tenants.len());
    let (file, routes, with) = (file.display(), config.routes.len(), with.unwrap_or_default());
    print::line(format_args!(
        "{file} works: {plans} plans, {rules} rules, {tenants} tenants, {routes} routes{with}"
    ))?;
    for warning in config.warnings() {
        print::line(format_args!("warning: {warning}"))?;
    }
    for (entry, why) in config.quarantine().iter() {
        print::line(format_args!("quarantine: {entry}: {why}"))?;
    }
    Ok(outcome(config))
}

fn print_json(file: &Path, checked: anyhow::Result<CheckedConfig>) -> anyhow::Result<CommandOutcome> {
    let file = file.display().to_string();
    match checked {
        Ok(CheckedConfig { config, registry }) => {
            let quarantined: Vec<Value> =
                config.quarantine().iter().map(|(entry, why)| json!({"entry": entry, "why": why})).collect();
            print::line(json!({
                "file": file,
                "works": true,
                "plans": config.plans.len(),
                "rules": config.rules.len(),
                "tenants": config.tenants.len(),
                "routes": config.routes.len(),
                "registryEntries": registry.map(|(count, _)| count),
                "warnings": config.warnings(),
                "quarantined": quarantined,
            }))?;
            Ok(outcome(&config))
        }
        Err(why) => {
            let wrong = why.downcast_ref::<ConfigError>().or_else(|| match why.downcast_ref::<LoadError>() {
                Some(LoadError::Wrong(wrong)) => Some(wrong),
                _ => None,
            });
            let lines = wrong.map_or_else(|| vec![format!("{why:#}")], |wrong| wrong.lines().collect());
            let lines: Vec<String> = lines.iter().map(|line| mask(line)).collect();
            print::line(json!({"file": file, "works": false, "errors": lines}))?;
            Ok(CommandOutcome::Refused)
        }
    }
}

fn outcome(config: &Config) -> CommandOutcome {
    if config.quarantine().is_empty() { CommandOutcome::Done } else { CommandOutcome::Quarantined }
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
    /// Reads every entry. Changes nothing.
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
