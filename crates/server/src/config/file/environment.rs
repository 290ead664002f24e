//! Environment variables that stand above the file: `SPILE_STORE__URL` is `url` in `[store]`.

use std::ffi::OsString;

use super::node::{Node, Table};
use super::place::{Place, Spot};
use super::usual::UNMATCHED;

const PREFIX: &str = "SPILE_";
const SEPARATOR: &str = "__";

/// The variables that name no value in a table of the file.
const SINGLE: [&str; 10] = [
    "SPILE_UNMATCHED",
    "SPILE_CONFIG",
    "SPILE_LOG_FORMAT",
    "SPILE_ADMIN_TOKEN",
    "SPILE_RESP_PASSWORD",
    "SPILE_ADMIN",
    "SPILE_SERVER",
    "SPILE_TLS_CA_FILE",
    "SPILE_TLS_CERTIFICATE_FILE",
    "SPILE_TLS_KEY_FILE",
];

/// The tables that have one place in the file, and their keys.
const TABLES: [(&str, &str); 16] = [
    (
        "LISTEN",
        "http, admin, grpc, resp, gateway, hosts, max_connections, max_header_bytes, max_header_fields, max_streams, \
         header_timeout, write_timeout, handshake_timeout, drain_timeout",
    ),
    ("HTTP", "tls"),
    ("HTTP__TLS", "certificate_file, key_file, client_ca_file"),
    (
        "STORE",
        "url, prefix, timeout, on_failure, fail_closed_retry_after, replicas, connections, flights, queue, time, \
         max_keys, path, save_every",
    ),
    ("ADMIN", "token_file, registry_file, tls"),
    ("ADMIN__TLS", "certificate_file, key_file, client_ca_file"),
    ("GRPC", "timeout, tls"),
    ("GRPC__TLS", "certificate_file, key_file, client_ca_file"),
    ("RESP", "password_file, idle_timeout, tls"),
    ("RESP__TLS", "certificate_file, key_file, client_ca_file"),
    ("CLIENTS", "trusted_proxies, ipv6_prefix, principal_header"),
    ("FORWARD_AUTH", "proxy"),
    (
        "GATEWAY",
        "tls, jwt, refusals, upstream_ca_file, upstream_certificate_file, upstream_key_file, max_uri_bytes, \
         stream_window, max_connections, max_header_bytes, max_header_fields, max_streams, header_timeout, \
         write_timeout, handshake_timeout, drain_timeout",
    ),
    ("GATEWAY__TLS", "certificate_file, key_file, client_ca_file"),
    ("GATEWAY__JWT", "key_file, keys, issuer, audience, leeway, tenant_claim, plan_claim"),
    ("OBSERVE", "enabled, show_keys, otlp, otlp_percent"),
];

/// A variable that is meant for Spile and holds bytes that are not UTF-8.
#[derive(Debug, thiserror::Error)]
#[error("environment variable {0} is not UTF-8 text")]
pub struct NotText(String);

/// The process's environment. What is not text concerns Spile only if the name is one of its own.
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

/// Each variable that Spile does not read and whose name is almost one that it does, with that name.
pub(in crate::config) fn near_misses(variables: &[(String, String)]) -> impl Iterator<Item = (&str, String)> {
    let names: Vec<String> = names().collect();
    variables.iter().filter_map(move |(name, _)| Some((name.as_str(), meant(name, &names)?)))
}

/// Every variable that can be named here: those of lists and plans have names of their own.
fn names() -> impl Iterator<Item = String> {
    let of_table = |(table, keys): (&'static str, &'static str)| {
        keys.split(", ").map(move |key| format!("{PREFIX}{table}{SEPARATOR}{}", key.to_ascii_uppercase()))
    };
    SINGLE.iter().map(|name| (*name).to_owned()).chain(TABLES.into_iter().flat_map(of_table))
}

fn meant(name: &str, names: &[String]) -> Option<String> {
    // Whatever has the separator is read, and refused if it names no value.
    let is_read = name.strip_prefix(PREFIX).is_some_and(|path| path.contains(SEPARATOR));
    if is_read || names.iter().any(|known| known == name) {
        return None;
    }
    let typed = letters(name);
    let close = names.iter().map(|known| (mistakes(&typed, &letters(known)), known));
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
        "PLANS" => rest.rsplit_once('_').filter(|(_, key)| ["CAPACITY", "REFILL", "LIMITS"].contains(key))?,
        _ => return None,
    };
    let is_one = table == "PLANS" || which.bytes().all(|byte| byte.is_ascii_digit());
    is_one.then(|| [&format!("{PREFIX}{table}"), which, key].join(SEPARATOR))
}

fn letters(name: &str) -> Vec<u8> {
    name.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_uppercase()).collect()
}

/// How many letters are wrong, missing, needless or swapped with their neighbour.
fn mistakes(typed: &[u8], known: &[u8]) -> usize {
    let mut rows = vec![(0..=known.len()).collect::<Vec<_>>()];
    for at in 1..=typed.len() {
        let mut row = vec![at];
        for to in 1..=known.len() {
            let wrong = usize::from(typed[at - 1] != known[to - 1]);
            let least = (rows[at - 1][to - 1] + wrong).min(rows[at - 1][to] + 1).min(row[to - 1] + 1);
            let swapped =
                at > 1 && to > 1 && typed[at - 1] == known[to - 2] && typed[at - 2] == known[to - 1];
            row.push(if swapped { least.min(rows[at - 2][to - 2] + 1) } else { least });
        }
        rows.push(row);
    }
    rows[typed.len()][known.len()]
}

/// Puts every variable that names a value in place of what the file says about it.
///
/// Variables without a separator name no value of the file: secrets and settings of the process itself.
pub(super) fn overlay(table: &mut Table, variables: &[(String, String)]) {
    for (name, text) in variables {
        let Some(path) = name.strip_prefix(PREFIX).filter(|path| path.contains(SEPARATOR)) else { continue };
        let path: Vec<String> = path.split(SEPARATOR).map(str::to_ascii_lowercase).collect();
        put(table, &path, text, &Place::Environment(name.clone()));
    }
}

/// Does the same for values that stand in no table. Few do, and they say which others hold.
pub(super) fn overlay_top(table: &mut Table, variables: &[(String, String)]) {
    for (name, text) in variables {
        if name.strip_prefix(PREFIX).is_some_and(|key| key.eq_ignore_ascii_case(UNMATCHED)) {
            put(table, &[UNMATCHED.to_owned()], text, &Place::Environment(name.clone()));
        }
    }
}

fn put(table: &mut Table, path: &[String], text: &str, place: &Place) {
    let Some((first, rest)) = path.split_first() else { return };
    let at = table.iter().position(|(key, _)| key.value == *first);
    let at = at.unwrap_or_else(|| {
        let empty = Spot::new(Node::Table(Table::new()), place.clone());
        table.push((Spot::new(first.clone(), place.clone()), empty));
        table.len() - 1
    });
    put_into(&mut table[at].1, rest, text, place);
}

fn put_into(spot: &mut Spot<Node>, rest: &[String], text: &str, place: &Place) {
    match (rest, &mut spot.value) {
        ([], _) => *spot = Spot::new(Node::Raw(text.to_owned()), place.clone()),
        (_, Node::Table(inner)) => put(inner, rest, text, place),
        ([index, deeper @ ..], Node::List(items))
            if index.parse().is_ok_and(|at: usize| at < items.len()) =>
        {
            let at: usize = index.parse().unwrap_or_default();
            put_into(&mut items[at], deeper, text, place);
        }
        // What stands there has no parts: the reader is told that a table stands where none belongs.
        (_, other) => {
            let mut inner = Table::new();
            put(&mut inner, rest, text, place);
            *other = Node::Table(inner);
            spot.place = place.clone();
        }
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
        for (table, keys) in TABLES {
            let why = refused(format!("{PREFIX}{table}{SEPARATOR}NO_SUCH_KEY"));
            assert!(why.contains(&format!("it takes {keys}\n")), "{table}: {why}");
        }
        let why = refused(format!("{PREFIX}NO_SUCH{SEPARATOR}TABLE"));
        let (_, takes) = why.split_once("it takes ").expect("what the file takes is named");
        for table in takes.lines().next().unwrap_or_default().split(", ") {
            let several = ["plans", "rules", "tenants", "routes", "webhooks", "unmatched"];
            let known = TABLES.iter().any(|(known, _)| known.eq_ignore_ascii_case(table));
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
