//! Environment variables that stand above the file: `SPILE_STORE__URL` is `url` in `[store]`.

use super::node::{Node, Table};
use super::place::{Place, Spot};
use super::usual::UNMATCHED;

const PREFIX: &str = "SPILE_";
const SEPARATOR: &str = "__";

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
