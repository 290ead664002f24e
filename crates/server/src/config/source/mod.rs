//! How text becomes types: TOML, JSON and environment variables are parsed into one kind of tree, and the tree is read into
//! serde types. Every fault is reported at once, each with its place.

mod disclosure;
mod environment;
mod faults;
mod location;
mod pieces;
mod reader;
mod suggest;
mod tree;
mod usual;

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::environment::NotText;
pub(crate) use self::environment::environment;
pub(super) use self::environment::near_misses;
pub use self::faults::ConfigError;
pub(crate) use self::faults::Faults;
pub(crate) use self::location::Location;
pub(super) use self::location::in_file;
use self::location::{has_file_keys, in_json};
pub(super) use self::reader::wrong;
use self::reader::{TreeReader, hide, hide_json_keys, keys_of};
pub(super) use self::suggest::did_you_mean;
use self::tree::Table;
pub(super) use self::usual::{BUILT_IN_PLAN, PASS, UNMATCHED};
use super::bounds::BoundsSpec;
use super::gateway::{AccessLogSpec, GatewaySpec, JwtSpec};
use super::log::LogConfig;
use super::plan::PlanSpec;
use super::route::RouteSpec;
use super::rule::RuleSpec;
use super::tenant::TenantSpec;
use super::tls::{HasTls, TlsSpec};
use super::{AdminConfig, Clients, ForwardAuth, GrpcConfig, Listen, ObserveConfig, RespConfig, StoreConfig};
use crate::input::typed::Object;

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
const KEYS: &str = "listen, http, store, admin, grpc, resp, clients, forward_auth, plans, rules, tenants, gateway, routes, \
                    observe, webhooks, log, unmatched";

/// The tables that occur once in a file, as they are called in environment variables, and their keys.
fn tables() -> Vec<(&'static str, Vec<String>)> {
    let (tls, bounds) = (keys_of::<TlsSpec>(), keys_of::<BoundsSpec>());
    let mut tables = vec![
        ("LISTEN", [keys_of::<Listen>(), bounds.clone()].concat()),
        ("HTTP", keys_of::<HasTls>()),
        ("STORE", keys_of::<StoreConfig>()),
        ("ADMIN", [keys_of::<AdminConfig>(), keys_of::<HasTls>()].concat()),
        ("GRPC", [keys_of::<GrpcConfig>(), keys_of::<HasTls>()].concat()),
        ("RESP", [keys_of::<RespConfig>(), keys_of::<HasTls>()].concat()),
        ("CLIENTS", keys_of::<Clients>()),
        ("FORWARD_AUTH", keys_of::<ForwardAuth>()),
        ("GATEWAY", [keys_of::<GatewaySpec>(), bounds].concat()),
        ("GATEWAY__JWT", keys_of::<JwtSpec>()),
        ("GATEWAY__ACCESS_LOG", keys_of::<AccessLogSpec>()),
        ("OBSERVE", keys_of::<ObserveConfig>()),
        ("LOG", keys_of::<LogConfig>()),
    ];
    let listeners = ["HTTP__TLS", "ADMIN__TLS", "GRPC__TLS", "RESP__TLS", "GATEWAY__TLS"];
    tables.extend(listeners.map(|table| (table, tls.clone())));
    tables
}

/// Reads a JSON object into a type. `None` if there are faults, and an error if the text is not a JSON object.
pub(super) fn read_json<T: DeserializeOwned>(
    text: &[u8],
    at: &Location<'_>,
    faults: &mut Faults,
) -> Result<Option<T>, String> {
    let first = match serde_json::from_slice(text) {
        Ok(Object(read)) if !has_file_keys(text) => return Ok(Some(read)),
        Ok(_) => String::new(),
        Err(why) => without_value(why.to_string()),
    };
    // The text is read again to collect every fault.
    let mut value: Value = serde_json::from_slice(text).map_err(|why| without_value(why.to_string()))?;
    if !value.is_object() || first.starts_with("duplicate field") {
        return Err(first);
    }
    hide(&mut value, |key| in_json(key) != key);
    round(&mut value);
    let before = faults.added();
    let read = TreeReader { variables: &[], faults }.read(value, at, &[]);
    Ok(read.filter(|_| faults.added() == before))
}

/// Removes the unexpected text from serde's error, because it may be a secret.
fn without_value(why: String) -> String {
    match (why.find('"'), why.rfind('"')) {
        (Some(start), Some(end)) if start < end => format!("{}***{}", &why[..=start], &why[end..]),
        _ => why,
    }
}

/// JSON has one kind of number: `1.0` is 1.
fn round(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(round),
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Number(number) => {
            // Beyond 2^53, a double no longer identifies one whole number.
            let whole = number
                .as_f64()
                .filter(|whole| whole.fract() == 0.0 && whole.abs() <= 9_007_199_254_740_992.0);
            if let Some(whole) = whole.filter(|_| number.is_f64()) {
                *value = (whole as i64).into();
            }
        }
        _ => {}
    }
}

/// The tables of a file, to be converted into types. Each is dropped once it is read, and has defaults for absent settings. Faults are
/// recorded.
pub(super) struct Tables<'r> {
    table: Table,
    reader: TreeReader<'r>,
}

impl<'r> Tables<'r> {
    /// Parses the text, overridden by these environment variables.
    pub(super) fn parse(text: &str, variables: &'r [(String, String)], faults: &'r mut Faults) -> Self {
        let mut table = pieces::parse(text, faults);
        environment::overlay(&mut table, variables, false, faults);
        usual::complete(&mut table);
        environment::overlay(&mut table, variables, true, faults);
        for key in table.keys().filter(|key| !KEYS.split(", ").any(|known| known == *key)) {
            let guess = did_you_mean(key, KEYS.split(", "));
            let message = format!("the file has no key `{key}`");
            faults.add(&Location::FILE.key(key).spelling(), message, format!("{guess}it takes {KEYS}"));
        }
        Self { table, reader: TreeReader { variables, faults } }
    }

    pub(super) const fn faults(&mut self) -> &mut Faults {
        self.reader.faults
    }

    pub(super) fn specs(&mut self) -> Specs {
        Specs {
            unmatched: self.text(UNMATCHED),
            plans: self.plans(),
            rules: self.list("rules", |rule| hide_json_keys(rule, false)),
            tenants: self.list("tenants", |tenant| hide_json_keys(tenant, false)),
            routes: self.list("routes", tidy_route),
        }
    }

    pub(super) fn one<T: Default + DeserializeOwned>(&mut self, key: &str) -> T {
        let value = self.table.shift_remove(key);
        value.and_then(|value| self.reader.read(value, &Location::FILE.key(key), &[])).unwrap_or_default()
    }

    /// A table that two types describe together.
    pub(super) fn both<A: Default + DeserializeOwned, B: Default + DeserializeOwned>(
        &mut self,
        key: &str,
    ) -> (A, B) {
        let at = Location::FILE.key(key);
        let mut one = Table::new();
        let Some(mut other) = self.table.shift_remove(key) else { return Default::default() };
        let keys = keys_of::<A>();
        if let Value::Object(members) = &mut other {
            one.extend(keys.iter().filter_map(|key| members.shift_remove_entry(key)));
        }
        let other = self.reader.read(other, &at, &keys);
        (self.reader.read(Value::Object(one), &at, &[]).unwrap_or_default(), other.unwrap_or_default())
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let value = self.table.shift_remove(key)?;
        if !value.is_string() {
            self.reader.faults.add(
                &Location::FILE.key(key),
                format_args!("`{key}` is not text"),
                "this takes text in quotes",
            );
        }
        value.as_str().map(str::to_owned)
    }

    pub(super) fn list<T: Default + DeserializeOwned>(&mut self, key: &str, tidy: fn(&mut Value)) -> Vec<T> {
        let at = Location::FILE.key(key);
        let items = match self.structured(key) {
            None => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => {
                let what = if other.is_object() { "a table" } else { "no list" };
                self.reader.faults.add(&at, format_args!("`{key}` is {what}"), "this takes a list of tables");
                return Vec::new();
            }
        };
        let read = |(index, mut item)| {
            tidy(&mut item);
            self.reader.read(item, &at.item(index), &[]).unwrap_or_default()
        };
        items.into_iter().enumerate().map(read).collect()
    }

    fn plans(&mut self) -> Vec<PlanSpec> {
        let at = Location::FILE.key("plans");
        let plans = match self.structured("plans") {
            None => return Vec::new(),
            Some(Value::Object(plans)) => plans,
            Some(_) => {
                self.reader.faults.add(&at, "`plans` is no table", "this takes a table");
                return Vec::new();
            }
        };
        let read = |(name, mut plan): (String, Value)| {
            hide_json_keys(&mut plan, true);
            let plan = self.reader.read(plan, &at.key(&name), &[]);
            PlanSpec { name: Some(name), ..plan.unwrap_or_default() }
        };
        plans.into_iter().map(read).collect()
    }

    /// A list or a table, which a variable may hold in TOML.
    fn structured(&mut self, key: &str) -> Option<Value> {
        match self.table.shift_remove(key)? {
            Value::String(text) => Some(tree::from_toml_value(&text).unwrap_or(Value::String(text))),
            value => Some(value),
        }
    }
}

/// Makes a route's limits read like rules, and `adaptive = true` like an empty table.
fn tidy_route(route: &mut Value) {
    if let Some(limits) = route.get_mut("limits").and_then(Value::as_array_mut) {
        for limit in limits {
            hide_json_keys(limit, false);
        }
    }
    if let Some(adaptive) = route.get_mut("adaptive").filter(|adaptive| adaptive.is_boolean()) {
        *adaptive = if *adaptive == true { Value::Object(Table::new()) } else { Value::Null };
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
