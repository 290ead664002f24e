//! How text becomes types: TOML, JSON and environment variables are parsed into one kind of tree, and the tree is read into
//! serde types. Everything that is wrong is told at once, each with its place.

mod environment;
mod faults;
mod node;
mod pieces;
mod place;
mod reader;
mod suggest;
mod usual;

use std::path::Path;

use serde::de::DeserializeOwned;

pub use self::environment::NotText;
pub(crate) use self::environment::environment;
pub(super) use self::environment::near_misses;
pub use self::faults::ConfigError;
pub(crate) use self::faults::Faults;
pub(crate) use self::node::Node;
use self::node::Table;
pub(crate) use self::place::At;
pub(super) use self::place::snake_case;
use self::reader::{Notation, read, read_both};
pub(super) use self::reader::{keys_of, wrong};
pub(super) use self::suggest::did_you_mean;
pub(super) use self::usual::{PASS, UNMATCHED};
use super::bounds::BoundsSpec;
use super::gateway::{GatewaySpec, JwtSpec};
use super::observe::{ObserveSpec, WebhookSpec};
use super::plan::PlanSpec;
use super::route::RouteSpec;
use super::rule::RuleSpec;
use super::tenant::TenantSpec;
use super::tls::{HasTls, TlsSpec};
use super::{AdminConfig, Clients, ForwardAuth, GrpcConfig, Listen, RespConfig, StoreConfig};

/// A whole file. Its tables hold defaults where it says nothing. Tables that are described by two types have both.
#[derive(Debug)]
pub(super) struct ConfigFile {
    pub(super) listen: (Listen, BoundsSpec),
    pub(super) http: HasTls,
    pub(super) store: StoreConfig,
    pub(super) admin: (AdminConfig, HasTls),
    pub(super) grpc: (GrpcConfig, HasTls),
    pub(super) resp: (RespConfig, HasTls),
    pub(super) clients: Clients,
    pub(super) forward_auth: ForwardAuth,
    pub(super) gateway: (GatewaySpec, BoundsSpec),
    pub(super) observe: ObserveSpec,
    pub(super) webhooks: Vec<WebhookSpec>,
    pub(super) specs: Specs,
}

/// The part of a file that the registry may override, and what depends on it.
#[derive(Debug)]
pub(super) struct Specs {
    pub(super) unmatched: Option<String>,
    pub(super) plans: Vec<PlanSpec>,
    pub(super) rules: Vec<RuleSpec>,
    pub(super) tenants: Vec<TenantSpec>,
    pub(super) routes: Vec<RouteSpec>,
}

/// Every key of a file.
const KEYS: [&str; 16] = [
    "listen",
    "http",
    "store",
    "admin",
    "grpc",
    "resp",
    "clients",
    "forward_auth",
    "plans",
    "rules",
    "tenants",
    "gateway",
    "routes",
    "observe",
    "webhooks",
    UNMATCHED,
];

/// The tables that occur once in a file, as they are called in environment variables, and their keys.
fn tables() -> Vec<(&'static str, Vec<&'static str>)> {
    let with = |one: &[&'static str], other: &[&'static str]| [one, other].concat();
    let (tls, bounds) = (keys_of::<TlsSpec>(), keys_of::<BoundsSpec>());
    let mut tables = vec![
        ("LISTEN", with(keys_of::<Listen>(), bounds)),
        ("HTTP", vec!["tls"]),
        ("STORE", keys_of::<StoreConfig>().to_vec()),
        ("ADMIN", with(keys_of::<AdminConfig>(), &["tls"])),
        ("GRPC", with(keys_of::<GrpcConfig>(), &["tls"])),
        ("RESP", with(keys_of::<RespConfig>(), &["tls"])),
        ("CLIENTS", keys_of::<Clients>().to_vec()),
        ("FORWARD_AUTH", keys_of::<ForwardAuth>().to_vec()),
        ("GATEWAY", with(keys_of::<GatewaySpec>(), bounds)),
        ("GATEWAY__JWT", keys_of::<JwtSpec>().to_vec()),
        ("OBSERVE", keys_of::<ObserveSpec>().to_vec()),
    ];
    let listeners = ["HTTP__TLS", "ADMIN__TLS", "GRPC__TLS", "RESP__TLS", "GATEWAY__TLS"];
    tables.extend(listeners.map(|table| (table, tls.to_vec())));
    tables
}

impl ConfigFile {
    /// Reads the text, overridden by these environment variables, and notes everything that is wrong.
    pub(super) fn read(text: &str, variables: &[(String, String)], faults: &mut Faults) -> Self {
        let mut table = pieces::parse(text, faults);
        environment::overlay_top(&mut table, variables);
        usual::complete(&mut table);
        environment::overlay(&mut table, variables);
        let mut file = Tables { table, faults };
        file.tell_unknown();
        Self {
            listen: file.both("listen"),
            http: file.one("http"),
            store: file.one("store"),
            admin: file.both("admin"),
            grpc: file.both("grpc"),
            resp: file.both("resp"),
            clients: file.one("clients"),
            forward_auth: file.one("forward_auth"),
            gateway: file.both("gateway"),
            observe: file.one("observe"),
            webhooks: file.list("webhooks"),
            specs: Specs {
                unmatched: file.text(UNMATCHED),
                plans: file.plans(),
                rules: file.list("rules"),
                tenants: file.list("tenants"),
                routes: file.list("routes"),
            },
        }
    }
}

/// Reads JSON into a type. `None` if it is no object, or has too many mistakes.
pub(super) fn read_json<T: DeserializeOwned>(node: &Node<'_>, at: At<'_>, faults: &mut Faults) -> Option<T> {
    read(node, at, Notation::Json, faults)
}

/// The tables of a file on their way into types. Each is dropped once it was read.
struct Tables<'t, 'f> {
    table: Table<'t>,
    faults: &'f mut Faults,
}

impl<'t> Tables<'t, '_> {
    fn tell_unknown(&mut self) {
        for (key, _) in self.table.iter().filter(|(key, _)| !KEYS.contains(&key.as_ref())) {
            let guess = did_you_mean(key, KEYS);
            let message = format!("the file has no key `{key}`");
            let fix = format!("{guess}it takes {}", KEYS.join(", "));
            self.faults.add(&At::FILE.name(key).spelling(), message, fix);
        }
    }

    fn take(&mut self, key: &str) -> Option<Node<'t>> {
        let at = self.table.iter().position(|(own, _)| own == key)?;
        Some(self.table.swap_remove(at).1)
    }

    fn one<T: Default + DeserializeOwned>(&mut self, key: &str) -> T {
        let node = self.take(key);
        node.and_then(|node| read(&node, At::FILE.key(key), Notation::File, self.faults)).unwrap_or_default()
    }

    fn both<A: Default + DeserializeOwned, B: Default + DeserializeOwned>(&mut self, key: &str) -> (A, B) {
        let Some(node) = self.take(key) else { return Default::default() };
        let (one, other) = read_both(&node, At::FILE.key(key), self.faults);
        (one.unwrap_or_default(), other.unwrap_or_default())
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let node = self.take(key)?;
        if node.text().is_none() {
            let message = format!("`{key}` is {}", node.kind());
            self.faults.add(&At::FILE.key(key), message, "this takes text in quotes");
        }
        node.text().map(str::to_owned)
    }

    fn list<T: Default + DeserializeOwned>(&mut self, key: &str) -> Vec<T> {
        let at = At::FILE.key(key);
        let items = match self.structured(key) {
            None => return Vec::new(),
            Some(Node::List(items)) => items,
            Some(other) => {
                let message = format!("`{key}` is {}", other.kind());
                self.faults.add(&at, message, "this takes a list of tables");
                return Vec::new();
            }
        };
        let read =
            |(index, node)| read(&node, at.item(index), Notation::File, self.faults).unwrap_or_default();
        items.into_iter().enumerate().map(read).collect()
    }

    fn plans(&mut self) -> Vec<PlanSpec> {
        let at = At::FILE.key("plans");
        let plans = match self.structured("plans") {
            None => return Vec::new(),
            Some(Node::Table(plans)) => plans,
            Some(other) => {
                self.faults.add(&at, format_args!("`plans` is {}", other.kind()), "this takes a table");
                return Vec::new();
            }
        };
        let read = |(name, node): (std::borrow::Cow<'_, str>, Node<'_>)| {
            let plan = read(&node, at.name(&name), Notation::File, self.faults);
            PlanSpec { name: Some(name.into_owned()), ..plan.unwrap_or_default() }
        };
        plans.into_iter().map(read).collect()
    }

    /// A list or a table, which a variable may hold in TOML.
    fn structured(&mut self, key: &str) -> Option<Node<'t>> {
        match self.take(key)? {
            Node::Raw(std::borrow::Cow::Borrowed(text)) => {
                Some(Node::from_toml_value(text).unwrap_or(Node::Raw(text.into())))
            }
            node => Some(node),
        }
    }
}

/// A file that cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the configuration in {path}: {why}")]
pub struct Unreadable {
    path: String,
    why: std::io::Error,
}

impl Unreadable {
    pub(super) fn new(path: &Path, why: std::io::Error) -> Self {
        Self { path: path.display().to_string(), why }
    }
}
