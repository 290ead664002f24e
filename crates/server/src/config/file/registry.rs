//! Entries of the registry that stand above the file: each in place of the one with its name, or beside the others.

use super::node::{Node, Table, from_json};
use super::place::{Place, Spot};
use crate::registry::{Entries, Kind};

/// What rules and tenants are called by in their tables. Plans are called by the key they stand under.
const ID: &str = "id";

pub(super) fn overlay(table: &mut Table, entries: &Entries) {
    for (kind, name, document) in entries.iter() {
        let place = Place::Registry { entry: format!("{kind}/{name}"), field: String::new() };
        let node = Spot::new(from_json(document, &place), place.clone());
        match kind {
            Kind::Plans => put_plan(table, name, node),
            Kind::Rules | Kind::Tenants => put_item(table, kind.as_str(), name, node),
        }
    }
}

fn put_plan(table: &mut Table, name: &str, node: Spot<Node>) {
    let plans = part(table, Kind::Plans.as_str(), Node::Table(Table::new()), &node.place);
    let Node::Table(plans) = plans else { return };
    match plans.iter_mut().find(|(key, _)| key.value == name) {
        Some((_, standing)) => *standing = node,
        None => plans.push((Spot::new(name.to_owned(), node.place.clone()), node)),
    }
}

fn put_item(table: &mut Table, list: &'static str, name: &str, mut node: Spot<Node>) {
    if let Node::Table(members) = &mut node.value {
        members.retain(|(key, _)| key.value != ID);
        let id = Spot::new(Node::Text(name.to_owned()), node.place.clone());
        members.insert(0, (Spot::new(ID.to_owned(), node.place.clone()), id));
    }
    let Node::List(items) = part(table, list, Node::List(Vec::new()), &node.place) else { return };
    match items.iter_mut().find(|item| is_called(item, name)) {
        Some(standing) => *standing = node,
        None => items.push(node),
    }
}

fn is_called(item: &Spot<Node>, name: &str) -> bool {
    let Node::Table(members) = &item.value else { return false };
    members.iter().any(|(key, value)| key.value == ID && matches!(&value.value, Node::Text(id) if id == name))
}

fn part<'t>(table: &'t mut Table, name: &str, empty: Node, place: &Place) -> &'t mut Node {
    let at = table.iter().position(|(key, _)| key.value == name).unwrap_or_else(|| {
        table.push((Spot::new(name.to_owned(), place.clone()), Spot::new(empty, place.clone())));
        table.len() - 1
    });
    &mut table[at].1.value
}
