//! What the server runs with. Every value here is one that works.
//!
//! Two steps lead here: [`file`] holds what was typed, and each table is then checked into a type that cannot be
//! wrong. Whatever is wrong is said at once, each with its line.

mod clients;
mod duration;
mod file;
mod listen;
mod plans;
mod route;
mod rules;
mod show;
mod store;
mod tenants;

use std::path::{Path, PathBuf};

use spile_core::Plan;

pub use self::clients::Clients;
pub use self::file::{ConfigError, Unreadable};
use self::file::{ConfigFile, Faults};
pub use self::listen::Listen;
pub use self::route::Route;
use self::rules::Known;
pub use self::store::{StoreConfig, StoreUrl, TimeOf, UnknownStore};
use crate::rule::Rule;
use crate::tenant::Tenant;

/// A commented file to start from.
pub const STARTER: &str = include_str!("starter.toml");

/// The whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the server listens.
    pub listen: Listen,
    /// Where buckets live.
    pub store: StoreConfig,
    /// The file that holds the admin API's token.
    pub admin_token_file: Option<PathBuf>,
    /// Whose word counts about who a caller is.
    pub clients: Clients,
    pub(crate) plans: Vec<Plan>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) tenants: Vec<Tenant>,
    /// What the gateway forwards.
    pub routes: Vec<Route>,
}

impl Default for Config {
    /// What `spile serve` runs with when nothing is said: loopback only, the embedded store, three plans.
    fn default() -> Self {
        Self::check(ConfigFile::default(), &mut Faults::default())
    }
}

impl Config {
    /// Reads a file, with environment variables above it.
    pub fn load(
        path: &Path,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, LoadError> {
        let text = std::fs::read_to_string(path).map_err(|why| Unreadable::new(path, why))?;
        Ok(Self::parse(path, text, variables)?)
    }

    /// Reads environment variables alone.
    pub fn from_environment(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, LoadError> {
        Ok(Self::parse(Path::new("the environment"), String::new(), variables)?)
    }

    /// Reads the text of a file, which `path` names in whatever is said about it.
    pub fn parse(
        path: &Path,
        text: String,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut faults = Faults::default();
        let file = ConfigFile::read(&text, variables, &mut faults);
        let config = Self::check(file, &mut faults);
        if faults.is_empty() { Ok(config) } else { Err(faults.into_error(path.to_owned(), text)) }
    }

    fn check(file: ConfigFile, faults: &mut Faults) -> Self {
        let clients = Clients::check(file.clients, faults);
        let (plans, plan_names) = match file.plans {
            Some(files) => plans::check_all(files, faults),
            None => plans::usual(),
        };
        let known = Known { plans: &plans, plan_names: &plan_names, clients: &clients };
        let rules = match file.rules {
            Some(files) => rules::check_all(files, &known, faults),
            None => rules::usual(&known),
        };
        let tenants = tenants::check_all(file.tenants, &known, faults);
        Self {
            listen: Listen::check(file.listen, faults),
            store: StoreConfig::read(file.store, faults),
            admin_token_file: file.admin.token_file.map(|path| path.value.into()),
            routes: file.routes.into_iter().filter_map(|route| Route::check(route, faults)).collect(),
            clients,
            plans,
            rules,
            tenants,
        }
    }
}

/// Why there is no configuration to run with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read at all.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The file was read, and something in it is wrong.
    #[error(transparent)]
    Wrong(#[from] ConfigError),
}
