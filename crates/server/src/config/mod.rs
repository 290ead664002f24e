//! The configuration of the server. Every value here is valid.
//!
//! [`source`] reads the file, the environment and JSON into serde types: settings, and a `…Spec` for each kind of thing that can be
//! listed. A spec is then checked and converted into a type that cannot be invalid. All faults are reported at once, each with its line.

mod admin;
mod bounds;
mod clients;
mod collector;
mod difference;
mod flags;
mod forward_auth;
mod gateway;
mod grpc;
mod listen;
mod log;
mod observe;
mod origin;
mod overlay;
mod plan;
mod resp;
mod restart;
mod route;
mod rule;
mod runs;
mod secret;
mod show;
mod source;
mod spec;
mod store;
mod tenant;
mod tls;
mod toml_writer;
mod value;
mod warnings;

use std::path::Path;
use std::sync::Arc;

use spile_core::Plan;
use spile_listener::Tls;

pub use self::admin::{AdminConfig, OpenAdmin};
use self::bounds::BoundsSpec;
pub use self::clients::Clients;
pub(crate) use self::difference::Difference;
pub use self::flags::Flags;
pub use self::forward_auth::{ForwardAuth, ProxyKind};
use self::gateway::GatewaySpec;
pub use self::gateway::{GatewayConfig, JwtConfig};
pub use self::grpc::GrpcConfig;
pub use self::listen::Listen;
pub(crate) use self::listen::listen_address;
pub(crate) use self::log::LogConfig;
pub use self::log::{LogFormat, LogLevel, UnknownLogLevel};
pub(crate) use self::observe::ObserveConfig;
pub(crate) use self::origin::{Origin, Stamp};
pub(crate) use self::plan::{LimitSpec, PlanSpec};
pub use self::resp::RespConfig;
pub use self::route::RouteConfig;
use self::route::RouteFiles;
use self::rule::Known;
pub(crate) use self::rule::RuleSpec;
pub(crate) use self::show::{PlanToml, RuleToml};
use self::source::{BUILT_IN_PLAN, Location, PASS, Specs, Tables, UNMATCHED};
pub use self::source::{ConfigError, NotText, Unreadable};
pub(crate) use self::source::{Faults, environment};
pub(crate) use self::spec::{Source, Spec};
pub(crate) use self::store::{Embedded, OpenStore, embedded_of, redis_of};
pub use self::store::{StoreConfig, StoreUrl, TimeOf, UnknownStore};
pub(crate) use self::tenant::TenantSpec;
use self::tls::HasTls;
pub use self::tls::TlsConfig;
use spile_policy::{DEFAULT_RULE, Policy, PolicyError, Rule, RulePlans, Tenant};

use self::overlay::Defined;
pub(crate) use self::overlay::Offered;
use crate::registry::{Entries, Kind, Overlay, Quarantine};

/// A commented file to start from.
pub const STARTER: &str = include_str!("starter.toml");

/// The whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the server listens.
    pub listen: Listen,
    /// The certificate of the decision API's listener; plain HTTP if `None`.
    pub http_tls: Option<TlsConfig>,
    /// Where buckets live.
    pub store: StoreConfig,
    /// Settings of the admin API.
    pub admin: AdminConfig,
    /// Settings of Envoy's rate limit service.
    pub grpc: GrpcConfig,
    /// Settings of the Redis protocol.
    pub resp: RespConfig,
    /// Which proxies are trusted to name the caller.
    pub clients: Clients,
    /// How proxies describe the request that they ask about.
    pub forward_auth: ForwardAuth,
    /// True if requests that no rule matches pass without a limit.
    pub unmatched_pass: bool,
    pub(crate) observe: ObserveConfig,
    pub(crate) log: LogConfig,
    pub(crate) plans: Vec<Plan>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) tenants: Vec<Tenant>,
    /// Settings of the whole gateway.
    pub gateway: GatewayConfig,
    /// The routes of the gateway.
    pub routes: Vec<RouteConfig>,
    route_files: RouteFiles,
    /// Plans, rules, tenants and routes as the file has them.
    specs: Arc<Specs>,
    origin: Origin,
    /// The registry's part of the configuration.
    overlay: Overlay,
}

impl Default for Config {
    /// The configuration of `spile serve` without file and flags: loopback only, the embedded store, three plans.
    fn default() -> Self {
        Self::build(Origin::default()).expect("what holds where nothing is said works")
    }
}

impl Config {
    /// Reads a file, overridden by environment variables.
    pub fn load(
        path: &Path,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, LoadError> {
        let (stamp, text) = read(path)?;
        let mut config = Self::parse(path, text, variables)?;
        config.origin.stamp = stamp;
        Ok(config)
    }

    /// Reads only environment variables.
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

    /// Returns the configuration under these flags, which also hold after a reload.
    #[must_use]
    pub fn under(mut self, flags: Flags) -> Self {
        flags.apply(&mut self.listen, &mut self.store, &mut self.log);
        self.origin.flags = flags;
        self
    }

    /// The file that it was read from.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.origin.path.as_deref()
    }

    /// The stamp of the file when it was read.
    pub(crate) const fn stamp(&self) -> Option<Stamp> {
        self.origin.stamp
    }

    /// The registry's entries that are part of it.
    pub(crate) fn entries(&self) -> &Entries {
        &self.overlay.entries
    }

    /// The registry's entries that conflict with the rest, and so are not part of it.
    pub(crate) const fn quarantine(&self) -> &Quarantine {
        &self.overlay.quarantine
    }

    /// Everything that determines the charges of a request.
    ///
    /// # Panics
    /// Never: every name that the parts use has been checked.
    pub(crate) fn policy(&self) -> Policy {
        let routes = self.routes.iter().filter(|route| !route.limits.is_empty());
        // A `default` in shadow mode leaves the built-in one in force.
        let watches = |rule: &Rule| rule.id == DEFAULT_RULE && rule.shadow;
        let watches = !self.unmatched_pass && self.rules.iter().any(watches);
        let built_in = watches.then(|| RulePlans::tenant_or(BUILT_IN_PLAN).expect("it is a name"));
        let builder = Policy::builder()
            .plans(self.plans.iter().cloned())
            .rules(self.rules.iter().cloned())
            .rules(built_in.map(|plans| Rule::new(DEFAULT_RULE, plans)))
            .tenants(self.tenants.iter().cloned())
            .expects_tenants(self.quarantine().count(Some(Kind::Tenants)) > 0)
            .on_failure(self.store.on_failure)
            .ipv6_prefix(self.clients.ipv6_prefix);
        let add = |builder: spile_policy::PolicyBuilder, route: &RouteConfig| {
            builder.route_limits(&route.name, route.limits.iter().cloned())
        };
        routes.fold(builder, add).build().expect("a checked configuration names nothing that is not there")
    }

    fn build(origin: Origin) -> Result<Self, ConfigError> {
        let mut faults = Faults::default();
        let config = Self::check(Tables::parse(&origin.text, &origin.variables, &mut faults), &origin);
        if faults.is_empty() { Ok(Self { origin, ..config }) } else { Err(faults.into_error(&origin)) }
    }

    fn check(mut file: Tables<'_>, origin: &Origin) -> Self {
        let (folder, variables) = (origin.folder(), &origin.variables);
        let at = |table| Location::FILE.key(table);
        let tls = |file: &mut Tables<'_>, listener, HasTls { tls }, protocols| {
            TlsConfig::load(tls, &Location::FILE.key(listener), protocols, folder, file.faults())
        };
        let mut route_files = RouteFiles::new(folder);
        let (gateway, bounds): (GatewaySpec, BoundsSpec) = file.both("gateway");
        let gateway = GatewayConfig::check(gateway, &bounds, folder, &mut route_files, file.faults());
        let (specs, overlay) = (file.specs(), Overlay::default());
        let Checked { plans, rules, routes, tenants } =
            Checked::new(&specs, &overlay, &mut route_files, file.faults());
        let unmatched_pass = check_unmatched(specs.unmatched.as_deref(), &rules, file.faults());
        let mut store = file.one::<StoreConfig>("store").finish(&at("store"), folder, file.faults());
        let (listen, bounds): (Listen, BoundsSpec) = file.both("listen");
        let mut listen = Listen { bounds: bounds.apply(Listen::default().bounds), ..listen };
        let mut log: LogConfig = file.one("log");
        origin.flags.apply(&mut listen, &mut store, &mut log);
        let http = file.one("http");
        let (admin, admin_tls): (AdminConfig, _) = file.both("admin");
        let admin = admin.finish(&at("admin"), &store.url, variables, folder, file.faults());
        let (grpc, grpc_tls): (GrpcConfig, _) = file.both("grpc");
        let (resp, resp_tls): (RespConfig, _) = file.both("resp");
        let resp = resp.finish(&at("resp"), variables, folder, file.faults());
        let (observe, webhooks): (ObserveConfig, _) = (file.one("observe"), file.list("webhooks", |_| ()));
        Self {
            listen,
            http_tls: tls(&mut file, "http", http, Tls::HTTP),
            store,
            admin: AdminConfig { tls: tls(&mut file, "admin", admin_tls, Tls::HTTP), ..admin },
            grpc: GrpcConfig { tls: tls(&mut file, "grpc", grpc_tls, Tls::HTTP2), ..grpc },
            resp: RespConfig { tls: tls(&mut file, "resp", resp_tls, Tls::OTHER), ..resp },
            observe: observe.finish(webhooks, variables, folder, file.faults()),
            log,
            gateway,
            route_files,
            clients: file.one::<Clients>("clients").finish(),
            forward_auth: file.one("forward_auth"),
            unmatched_pass,
            plans,
            rules,
            routes,
            tenants,
            specs: Arc::new(specs),
            origin: Origin::default(),
            overlay,
        }
    }
}

/// Kinds whose entries refer to each other.
struct Checked {
    plans: Vec<Plan>,
    rules: Vec<Rule>,
    routes: Vec<RouteConfig>,
    tenants: Vec<Tenant>,
}

impl Checked {
    fn new(specs: &Specs, overlay: &Overlay, files: &mut RouteFiles, faults: &mut Faults) -> Self {
        let (plans, plan_names) = plan::check_all(&Defined::all(&specs.plans, overlay), faults);
        let known = Known::new(&plans, &plan_names);
        let defined = Defined::all(&specs.rules, overlay);
        let rules = rule::check_all(&defined, &known, faults);
        let routes = route::check_all(&specs.routes, &rules, &known, files, faults);
        let tenants = tenant::check_all(&Defined::all(&specs.tenants, overlay), &known, faults);
        drop(known);
        let checked = Self { plans, rules, routes, tenants };
        checked.refuse_permits_of_descriptors(&defined, faults);
        checked
    }

    /// Refuses permits for descriptors, because Envoy never reports the end of a request. The charges depend on rules, plans and tenants
    /// together.
    fn refuse_permits_of_descriptors(&self, rules: &[Defined<'_, RuleSpec>], faults: &mut Faults) {
        let takes_permits = |plan: &Plan| plan.limits().iter().any(|limit| limit.limit().is_concurrency());
        let has_permits = self.plans.iter().any(takes_permits)
            || self.tenants.iter().filter_map(Tenant::own).any(takes_permits);
        if !has_permits || !self.rules.iter().any(|rule| rule.matcher.descriptor.is_some()) {
            return;
        }
        let policy = Policy::builder().plans(self.plans.iter().cloned()).rules(self.rules.iter().cloned());
        let built = policy.tenants(self.tenants.iter().cloned()).build();
        // Other faults were reported before.
        if let Err(PolicyError::DescriptorPermit { rule, limit }) = built
            && let Some(defined) = rules.iter().find(|defined| defined.name == Some(&rule))
        {
            let why = PolicyError::DescriptorPermit { rule, limit };
            let fix = "plans without a `concurrency`, also for tenants whose plan it charges";
            faults.add(&defined.at(&Location::FILE.key("rules")).key("plans"), why, fix);
        }
    }
}

/// True if requests that no rule matches pass without a limit. A rule for all unmatched requests contradicts that.
fn check_unmatched(word: Option<&str>, rules: &[Rule], faults: &mut Faults) -> bool {
    let (Some(word), at) = (word, Location::FILE.key(UNMATCHED)) else { return false };
    if word != PASS {
        let message = format!("`{word}` is not a choice for `{UNMATCHED}`");
        faults.add(&at, message, "`pass`, or leave it out: requests without a rule then fall to `default`");
    } else if rules.iter().any(|rule| rule.id == DEFAULT_RULE && !rule.shadow) {
        let message = format!("`{UNMATCHED} = \"{PASS}\"` leaves nothing for the rule `{DEFAULT_RULE}`");
        faults.add(&at, message, "leave one of them out");
    }
    word == PASS
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
    /// The file had settings when the server read it last, and has none now.
    #[error("{0} is empty now, and had settings before: a restart would run without them")]
    Emptied(String),
    /// The file was read, and would open the admin API to every client.
    #[error(transparent)]
    OpenAdmin(#[from] OpenAdmin),
}
