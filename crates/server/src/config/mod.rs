//! What the server runs with. Every value here is one that works.
//!
//! Two steps lead here: [`file`] holds what was typed, and each table is then checked into a type that cannot be
//! wrong. Whatever is wrong is said at once, each with its line.

mod admin;
mod bounded;
mod bounds;
mod clients;
mod duration;
mod file;
mod flags;
mod forward_auth;
mod gateway;
mod grpc;
mod listen;
mod observe;
mod origin;
mod overlay;
mod plans;
mod quoted;
mod resp;
mod restart;
mod route;
mod rules;
mod show;
mod store;
mod tenants;
mod tls;
mod warnings;

use std::path::Path;

use spile_core::Plan;
use spile_listener::Tls;

pub use self::admin::{AdminConfig, OpenAdmin};
pub use self::clients::Clients;
pub(crate) use self::file::environment;
pub use self::file::{ConfigError, NotText, Unreadable};
use self::file::{ConfigFile, Faults, PASS, PlanFile, RouteFile, RuleFile, Spot, TenantFile, UNMATCHED};
pub use self::flags::Flags;
pub use self::forward_auth::{ForwardAuth, Proxy};
pub use self::gateway::{GatewayConfig, JwtConfig};
pub use self::grpc::GrpcConfig;
pub use self::listen::Listen;
pub(crate) use self::observe::ObserveConfig;
use self::origin::Origin;
pub(crate) use self::origin::Stamp;
pub use self::resp::RespConfig;
pub use self::route::Route;
use self::route::RouteFiles;
use self::rules::Known;
pub(crate) use self::show::refill;
pub use self::store::{StoreConfig, StoreUrl, TimeOf, UnknownStore};
pub use self::tls::TlsConfig;
use spile_policy::{DEFAULT_RULE, HostPattern, Policy, Rule, Tenant};

pub(crate) use self::overlay::Offered;
use crate::registry::{Entries, Kind, Overlay, Quarantine};

/// A commented file to start from.
pub const STARTER: &str = include_str!("starter.toml");

/// The whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the server listens.
    pub listen: Listen,
    /// The certificate of the decision API's listener; plain HTTP if there is none.
    pub http_tls: Option<TlsConfig>,
    /// `listen.hosts`: the names, besides those of loopback, by which `http` and `admin` are asked, and the hosts whose pages
    /// may ask them.
    pub hosts: Vec<HostPattern>,
    /// Where buckets live.
    pub store: StoreConfig,
    /// Who may change things.
    pub admin: AdminConfig,
    /// How long Envoy is kept waiting.
    pub grpc: GrpcConfig,
    /// What clients of the Redis protocol have to know.
    pub resp: RespConfig,
    /// Whose word counts about who a caller is.
    pub clients: Clients,
    /// How proxies describe the request that they ask about.
    pub forward_auth: ForwardAuth,
    /// Whether requests that no rule matches are not limited.
    pub unmatched_pass: bool,
    pub(crate) observe: ObserveConfig,
    pub(crate) plans: Vec<Plan>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) tenants: Vec<Tenant>,
    /// What holds for the whole gateway.
    pub gateway: GatewayConfig,
    /// What the gateway forwards.
    pub routes: Vec<Route>,
    route_files: RouteFiles,
    origin: Origin,
    /// The registry's part in it.
    overlay: Overlay,
}

impl Default for Config {
    /// What `spile serve` runs with when nothing is said: loopback only, the embedded store, three plans.
    fn default() -> Self {
        Self::build(Origin::default()).expect("what holds where nothing is said works")
    }
}

impl Config {
    /// Reads a file, with environment variables above it.
    pub fn load(
        path: &Path,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, LoadError> {
        let (stamp, text) = read(path)?;
        let mut config = Self::parse(path, text, variables)?;
        config.origin.stamp = stamp;
        Ok(config)
    }

    /// Reads environment variables alone.
    pub fn from_environment(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, LoadError> {
        let origin = Origin { variables: variables.into_iter().collect(), ..Origin::default() };
        Ok(Self::build(origin)?)
    }

    /// Reads the text of the file at `path`.
    pub fn parse(
        path: &Path,
        text: String,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let variables = variables.into_iter().collect();
        let origin = Origin { path: Some(path.to_owned()), text, variables, ..Origin::default() };
        Self::build(origin)
    }

    /// The same under these flags, now and when file and environment are read again.
    #[must_use]
    pub fn under(mut self, flags: Flags) -> Self {
        flags.apply(&mut self.listen, &mut self.store);
        self.origin.flags = flags;
        self
    }

    /// The file that it was read from.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.origin.path.as_deref()
    }

    /// What the file was like when it was read.
    pub(crate) const fn stamp(&self) -> Option<Stamp> {
        self.origin.stamp
    }

    /// The registry's entries that are part of it.
    pub(crate) fn entries(&self) -> &Entries {
        &self.overlay.entries
    }

    /// The registry's entries that do not go together with the rest, and so are not part of it.
    pub(crate) const fn quarantine(&self) -> &Quarantine {
        &self.overlay.quarantine
    }

    /// Everything that says what a request owes.
    ///
    /// # Panics
    /// Never: what the parts name has been checked to be there.
    pub(crate) fn policy(&self) -> Policy {
        let routes = self.routes.iter().filter(|route| !route.limits.is_empty());
        let builder = Policy::builder()
            .plans(self.plans.iter().cloned())
            .rules(self.rules.iter().cloned())
            .tenants(self.tenants.iter().cloned())
            .expects_tenants(self.quarantine().count(Some(Kind::Tenants)) > 0)
            .on_failure(self.store.on_failure)
            .ipv6_prefix(self.clients.ipv6_prefix);
        let add = |builder: spile_policy::PolicyBuilder, route: &Route| {
            builder.route_limits(&route.name, route.limits.iter().cloned())
        };
        routes.fold(builder, add).build().expect("a checked configuration names nothing that is not there")
    }

    fn build(origin: Origin) -> Result<Self, ConfigError> {
        let mut faults = Faults::default();
        let file = ConfigFile::read(&origin.text, &origin.variables, &Overlay::default(), &mut faults);
        let config = Self::check(file, origin, &mut faults);
        if faults.is_empty() {
            Ok(config)
        } else {
            Err(faults.into_error(config.origin.name(), &config.origin.text))
        }
    }

    fn check(mut file: ConfigFile, origin: Origin, faults: &mut Faults) -> Self {
        let clients = Clients::check(file.clients, faults);
        let mut route_files = RouteFiles::new(origin.folder());
        let gateway = GatewayConfig::check(file.gateway, origin.folder(), &mut route_files, faults);
        let policies =
            Checked::new(file.plans, file.rules, file.routes, file.tenants, &mut route_files, faults);
        let unmatched_pass = check_unmatched(file.unmatched.as_ref(), &policies.rules, faults);
        let mut store = StoreConfig::read(file.store, origin.folder(), faults);
        let hosts = rules::check_hosts(file.listen.hosts.take(), faults);
        let mut listen = Listen::check(file.listen, faults);
        origin.flags.apply(&mut listen, &mut store);
        let admin = AdminConfig::check(file.admin, &store.url, &origin.variables, origin.folder(), faults);
        let resp = RespConfig::check(file.resp, &origin.variables, origin.folder(), faults);
        Self {
            listen,
            http_tls: TlsConfig::check(file.http.tls, Tls::HTTP, origin.folder(), faults),
            hosts,
            store,
            admin,
            grpc: GrpcConfig::check(file.grpc, origin.folder(), faults),
            resp,
            observe: ObserveConfig::check(file.observe, file.webhooks, origin.folder(), faults),
            gateway,
            route_files,
            clients,
            forward_auth: ForwardAuth::check(file.forward_auth, faults),
            unmatched_pass,
            plans: policies.plans,
            rules: policies.rules,
            routes: policies.routes,
            tenants: policies.tenants,
            origin,
            overlay: Overlay::default(),
        }
    }
}

/// What goes together: each names others of its kind, or of the others.
struct Checked {
    plans: Vec<Plan>,
    rules: Vec<Rule>,
    routes: Vec<Route>,
    tenants: Vec<Tenant>,
}

impl Checked {
    fn new(
        plans: Vec<PlanFile>,
        rules: Vec<RuleFile>,
        routes: Vec<RouteFile>,
        tenants: Vec<TenantFile>,
        files: &mut RouteFiles,
        faults: &mut Faults,
    ) -> Self {
        let (plans, plan_names) = plans::check_all(plans, faults);
        let known = Known::new(&plans, &plan_names);
        let rules = rules::check_all(rules, &known, faults);
        let routes = route::check_all(routes, &rules, &known, files, faults);
        let tenants = tenants::check_all(tenants, &known, faults);
        drop(known);
        Self { plans, rules, routes, tenants }
    }
}

/// Whether requests that no rule matches are not limited. A rule for all that no other matches says the opposite.
fn check_unmatched(word: Option<&Spot<String>>, rules: &[Rule], faults: &mut Faults) -> bool {
    let Some(Spot { value, place }) = word else { return false };
    if value != PASS {
        let message = format!("`{value}` is no choice for `{UNMATCHED}`");
        faults.add(place, message, "`pass`, or leave it out: requests without a rule then fall to `default`");
    } else if rules.iter().any(|rule| rule.id == DEFAULT_RULE) {
        let message = format!("`{UNMATCHED} = \"{PASS}\"` leaves nothing for the rule `{DEFAULT_RULE}`");
        faults.add(place, message, "leave one of them out");
    }
    value == PASS
}

fn read(path: &Path) -> Result<(Option<Stamp>, String), Unreadable> {
    let stamp = Stamp::of(path);
    let text = std::fs::read_to_string(path).map_err(|why| Unreadable::new(path, why))?;
    Ok((stamp, text))
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
    /// A variable of the environment is meant for Spile and cannot be read.
    #[error(transparent)]
    NotText(#[from] NotText),
    /// The file was read, and would let everybody in.
    #[error(transparent)]
    OpenAdmin(#[from] OpenAdmin),
}
