//! Environment variables that override the file: `SPILE_STORE__URL` is `url` in `[store]`.

use std::ffi::OsString;

use serde_json::Value;

use super::faults::Faults;
use super::location::Location;
use super::tree::{Table, from_toml_value};
use super::usual::UNMATCHED;

const PREFIX: &str = "SPILE_";
const SEPARATOR: &str = "__";

/// Variables that set no value of a table: their names are fixed and have no `__`.
const SINGLE: [&str; 11] = [
    "SPILE_UNMATCHED",
    "SPILE_CONFIG",
    "SPILE_LOG_FORMAT",
    "SPILE_LOG_LEVEL",
    "SPILE_ADMIN_TOKEN",
    "SPILE_RESP_PASSWORD",
    "SPILE_ADMIN",
    "SPILE_SERVER",
    "SPILE_TLS_CA_FILE",
    "SPILE_TLS_CERTIFICATE_FILE",
    "SPILE_TLS_KEY_FILE",
];

/// The table whose keys users choose.
const PLANS: &str = "plans";
/// The lists at the top of a file.
const LISTS: [&str; 4] = ["rules", "tenants", "routes", "webhooks"];
/// The keys of a plan.
const PLAN_KEYS: [&str; 9] =
    ["CAPACITY", "REFILL", "LEASE", "DEBT", "QUOTA", "PER", "ZONE", "ANCHOR", "LIMITS"];

/// A variable that is meant for Spile and holds bytes that are not UTF-8.
#[derive(Debug, thiserror::Error)]
#[error("environment variable {0} is not UTF-8 text")]
pub struct NotText(String);

/// The process's environment. A value that is not text is an error only if the variable is one of Spile's.
pub(crate) fn environment() -> Result<Vec<(String, String)>, NotText> {
    texts(std::env::vars_os())
}

fn texts(variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Vec<(String, String)>, NotText> {
    let text = |(name, value): (OsString, OsString)| match (name.into_string(), value.into_string()) {
        (Ok(name), Ok(value)) => Some(Ok((name, value))),
        (Ok(name), Err(_)) if name.starts_with(PREFIX) => Some(Err(NotText(name))),
        _ => None,
    };
    variables.filter_map(text).collect()
}

/// Variables that Spile does not read, each with the similar name that it does read.
pub(in crate::config) fn near_misses(variables: &[(String, String)]) -> impl Iterator<Item = (&str, String)> {
    let names: Vec<String> = names().collect();
    variables.iter().filter_map(move |(name, _)| Some((name.as_str(), meant(name, &names)?)))
}

/// Every variable with a fixed name. Those of lists and plans have free names.
fn names() -> impl Iterator<Item = String> {
    let of_table = |(table, keys): (&'static str, Vec<String>)| {
        keys.into_iter().map(move |key| format!("{PREFIX}{table}{SEPARATOR}{}", key.to_ascii_uppercase()))
    };
    SINGLE.iter().map(|name| (*name).to_owned()).chain(super::tables().into_iter().flat_map(of_table))
}

fn meant(name: &str, names: &[String]) -> Option<String> {
    // A variable with the separator is read, and refused if it names no value.
    let is_read = name.strip_prefix(PREFIX).is_some_and(|path| path.contains(SEPARATOR));
    if is_read || names.iter().any(|known| known == name) {
        return None;
    }
    let typed = letters(name);
    let close = names.iter().map(|known| (strsim::osa_distance(&typed, &letters(known)), known));
    let (mistakes, known) = close.min_by_key(|(mistakes, _)| *mistakes)?;
    // Short names are close to each other by chance.
    let bearable = if typed.len() < 12 { 1 } else { 2 };
    if mistakes <= bearable { Some(known.clone()) } else { of_many(name) }
}

/// `SPILE_RULES__0__COST` for `SPILE_RULES_0_COST`, and `SPILE_PLANS__FREE__REFILL` for `SPILE_PLANS_FREE_REFILL`.
fn of_many(name: &str) -> Option<String> {
    let (table, rest) = name.strip_prefix(PREFIX)?.split_once('_')?;
    let (which, key) = match table {
        "RULES" | "TENANTS" | "ROUTES" | "WEBHOOKS" => rest.split_once('_')?,
        "PLANS" => rest.rsplit_once('_').filter(|(_, key)| PLAN_KEYS.contains(key))?,
        _ => return None,
    };
    let is_one = table == "PLANS" || which.bytes().all(|byte| byte.is_ascii_digit());
    is_one.then(|| [&format!("{PREFIX}{table}"), which, key].join(SEPARATOR))
}

fn letters(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_uppercase()).collect()
}

/// The keys that lead to the value that a variable sets. `None` if it sets no value of the file.
pub(super) fn keys(variable: &str) -> Option<Vec<String>> {
    let path = variable.strip_prefix(PREFIX)?;
    let sets = path.contains(SEPARATOR) || path.eq_ignore_ascii_case(UNMATCHED);
    sets.then(|| path.split(SEPARATOR).map(str::to_ascii_lowercase).collect())
}

/// The variable that sets the value at this path, or a part of it that is not in the file, which has `depth` of its steps.
pub(super) fn setting(steps: &[String], depth: usize, variables: &[(String, String)]) -> Option<String> {
    let candidates = variables.iter().filter_map(|(name, _)| {
        let keys = keys(name)?;
        let shared = steps.iter().zip(&keys).take_while(|(step, key)| step == key).count();
        let is_set = shared == keys.len();
        (is_set || shared > depth).then_some((is_set, shared, name))
    });
    candidates.max_by_key(|(is_set, shared, _)| (*is_set, *shared)).map(|(.., name)| name.clone())
}

/// Overrides values of the file with variables. Adds a fault for an item that a list of the file does not have. `of_plans` selects the
/// variables of plans, which may change built-in plans. All others are applied first, because the built-in rule has no index and depends
/// on them.
pub(super) fn overlay(
    table: &mut Table,
    variables: &[(String, String)],
    of_plans: bool,
    faults: &mut Faults,
) {
    for (name, text) in variables {
        let Some(keys) = keys(name).filter(|keys| (keys[0] == PLANS) == of_plans) else { continue };
        if LISTS.contains(&keys[0].as_str()) {
            table.entry(keys[0].as_str()).or_insert_with(|| Value::Array(Vec::new()));
        }
        if let Err(MissingItem { list, index, length }) = put(table, &keys, text) {
            let message =
                format!("`{list}` has no item {index}: the length of the list in the file is {length}");
            let fix = match length {
                0 => "add the item to the file".to_owned(),
                _ => format!("an index from 0 to {}", length - 1),
            };
            faults.add(&Location::variable(name), message, fix);
        }
    }
}

/// An item that a list does not have.
struct MissingItem {
    list: String,
    index: String,
    length: usize,
}

fn put(table: &mut Table, path: &[String], text: &str) -> Result<(), MissingItem> {
    let Some((first, rest)) = path.split_first() else { return Ok(()) };
    let value = table.entry(first.as_str()).or_insert_with(|| Value::Object(Table::new()));
    put_into(value, rest, first, text)
}

fn put_into(value: &mut Value, rest: &[String], key: &str, text: &str) -> Result<(), MissingItem> {
    match (rest, &mut *value) {
        ([], _) => *value = raw(key, text),
        (_, Value::Object(inner)) => return put(inner, rest, text),
        ([index, deeper @ ..], Value::Array(items)) => {
            let length = items.len();
            return match index.parse().ok().and_then(|at: usize| items.get_mut(at)) {
                Some(item) => put_into(item, deeper, key, text),
                None => Err(MissingItem { list: key.to_owned(), index: index.clone(), length }),
            };
        }
        // A scalar has no members. A table replaces it, so that the reader reports the wrong type.
        (_, other) => {
            let mut inner = Table::new();
            put(&mut inner, rest, text)?;
            *other = Value::Object(inner);
        }
    }
    Ok(())
}

/// The text, unless it is a list under a key that takes both a text and a list.
fn raw(key: &str, text: &str) -> Value {
    let is_list = ["plans", "upstream"].contains(&key) && (text.contains(',') || text.starts_with('['));
    match from_toml_value(text) {
        Some(Value::Array(items)) if is_list => Value::Array(items),
        _ if is_list => text.split(',').map(str::trim).collect(),
        _ => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn warned(name: &str) -> Option<String> {
        let variables = [(name.to_owned(), "x".to_owned())];
        near_misses(&variables).next().map(|(_, meant)| meant)
    }

    #[test]
    fn a_variable_that_is_almost_one_is_told_apart_from_others() {
        for (typed, meant) in [
            ("SPILE_STORE_URL", "SPILE_STORE__URL"),
            ("SPILE_STORE_ULR", "SPILE_STORE__URL"),
            ("spile_store__url", "SPILE_STORE__URL"),
            ("SPLIE_STORE__URL", "SPILE_STORE__URL"),
            ("SPILE_LISTEN_HTTP", "SPILE_LISTEN__HTTP"),
            ("SPILE_GATEWAY_JWT_KEY_FILE", "SPILE_GATEWAY__JWT__KEY_FILE"),
            ("SPILE_FORWARD__AUTH_PROXY", "SPILE_FORWARD_AUTH__PROXY"),
            ("SPILE_ADMIN_TOKN", "SPILE_ADMIN_TOKEN"),
            ("SPILE_RESPPASSWORD", "SPILE_RESP_PASSWORD"),
            ("SPILE_LOGFORMAT", "SPILE_LOG_FORMAT"),
            ("SPILE_RULES_0_ON_FAILURE", "SPILE_RULES__0__ON_FAILURE"),
            ("SPILE_PLANS_FREE_CAPACITY", "SPILE_PLANS__FREE__CAPACITY"),
            ("SPILE_PLANS_FREE_QUOTA", "SPILE_PLANS__FREE__QUOTA"),
        ] {
            let read = typed.starts_with(PREFIX) && typed.contains(SEPARATOR);
            assert_eq!(warned(typed).as_deref(), (!read).then_some(meant), "{typed}");
        }
        // Kubernetes names these after a service called `spile`.
        for other in
            ["SPILE_PORT", "SPILE_SERVICE_HOST", "SPILE_PORT_8080_TCP_ADDR", "SPILE_ADMIN_PORT", "PATH", ""]
        {
            assert_eq!(warned(other), None, "{other}");
        }
        for known in names() {
            assert_eq!(warned(&known), None);
        }
    }

    #[test]
    fn every_key_of_every_table_is_known() {
        let refused = |variable: String| {
            let config = Config::parse(Path::new("spile.toml"), String::new(), [(variable, "x".to_owned())]);
            config.expect_err("there is no such key").to_string()
        };
        for (table, keys) in super::super::tables() {
            let why = refused(format!("{PREFIX}{table}{SEPARATOR}NO_SUCH_KEY"));
            assert!(why.contains(&format!("it takes {}\n", keys.join(", "))), "{table}: {why}");
        }
        let why = refused(format!("{PREFIX}NO_SUCH{SEPARATOR}TABLE"));
        let (_, takes) = why.split_once("it takes ").expect("what the file takes is named");
        for table in takes.lines().next().unwrap_or_default().split(", ") {
            let several = ["plans", "rules", "tenants", "routes", "webhooks", "unmatched"];
            let known = super::super::tables().iter().any(|(known, _)| known.eq_ignore_ascii_case(table));
            assert!(known || several.contains(&table), "{table}");
        }
    }

    #[test]
    fn bytes_that_are_not_text_matter_in_variables_of_spile_alone() {
        let bytes = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let other = [
            (bytes(b"LESS"), bytes(b"\xff")),
            (bytes(b"\xffSPILE_"), bytes(b"a")),
            (bytes(b"A"), bytes(b"b")),
        ];
        let read = texts(other.into_iter()).expect("none is for Spile");
        assert_eq!(read, [("A".to_owned(), "b".to_owned())]);
        let why = texts(std::iter::once((bytes(b"SPILE_STORE__URL"), bytes(b"\xff"))))
            .expect_err("it is for Spile");
        assert_eq!(why.to_string(), "environment variable SPILE_STORE__URL is not UTF-8 text");
    }
}
