//! Entries of the registry that override the file: each in place of the one with its name, or beside the others.

use foldhash::{HashMap, HashSet};
use serde_json::Value;

use super::node::{Node, Table, from_json};
use super::place::{Place, Spot};
use crate::registry::{Kind, Overlay};

/// What rules and tenants are called by in their tables. Plans are called by the key they stand under.
const ID: &str = "id";

/// Puts each entry where it belongs. Where an entry's name stands is looked up, for there may be a hundred thousand.
///
/// A tenant whose entry is in quarantine is not taken from the file either: the entry may have taken keys away from it
/// that the file still lists.
pub(super) fn overlay(table: &mut Table, overlay: &Overlay) {
    let entries = &overlay.entries;
    let mut of_kind = |kind: Kind, put: fn(&mut Node, Vec<Entry<'_>>)| {
        let entries: Vec<_> = entries.iter().filter(|(of, ..)| *of == kind).map(Entry::new).collect();
        if let Some(first) = entries.first() {
            let empty = if kind == Kind::Plans { Node::Table(Table::new()) } else { Node::List(Vec::new()) };
            put(part(table, kind.as_str(), empty, &first.node.place), entries);
        }
    };
    of_kind(Kind::Plans, put_plans);
    of_kind(Kind::Rules, put_items);
    of_kind(Kind::Tenants, put_items);
    let missing = |name: &&str| entries.get(Kind::Tenants, name).is_none();
    let hidden: HashSet<&str> = overlay.quarantine.names(Kind::Tenants).filter(missing).collect();
    let tenants = table.iter_mut().find(|(key, _)| key.value == Kind::Tenants.as_str());
    if let Some((_, Spot { value: Node::List(items), .. })) = tenants.filter(|_| !hidden.is_empty()) {
        items.retain(|item| id_of(item).is_none_or(|id| !hidden.contains(id)));
    }
}

/// An entry in the form of the file.
struct Entry<'e> {
    name: &'e str,
    node: Spot<Node>,
}

impl<'e> Entry<'e> {
    fn new((kind, name, document): (Kind, &'e str, &Value)) -> Self {
        let place = Place::Registry { entry: format!("{kind}/{name}"), field: String::new() };
        Self { name, node: Spot::new(from_json(document, &place), place) }
    }

    /// The same, called by its name within.
    fn named(mut self) -> Spot<Node> {
        if let Node::Table(members) = &mut self.node.value {
            let place = &self.node.place;
            members.retain(|(key, _)| key.value != ID);
            let id = Spot::new(Node::Text(self.name.to_owned()), place.clone());
            members.insert(0, (Spot::new(ID.to_owned(), place.clone()), id));
        }
        self.node
    }
}

fn put_plans(plans: &mut Node, entries: Vec<Entry<'_>>) {
    let Node::Table(plans) = plans else { return };
    let standing = places(plans.iter().map(|(key, _)| Some(key.value.as_str())));
    for entry in entries {
        match standing.get(entry.name) {
            Some(&at) => plans[at].1 = entry.node,
            None => plans.push((Spot::new(entry.name.to_owned(), entry.node.place.clone()), entry.node)),
        }
    }
}

fn put_items(items: &mut Node, entries: Vec<Entry<'_>>) {
    let Node::List(items) = items else { return };
    let standing = places(items.iter().map(id_of));
    for entry in entries {
        match standing.get(entry.name) {
            Some(&at) => items[at] = entry.named(),
            None => items.push(entry.named()),
        }
    }
}

/// Where each name stands. Of two that are the same, the first counts.
fn places<'n>(names: impl Iterator<Item = Option<&'n str>>) -> HashMap<String, usize> {
    let mut places = HashMap::default();
    for (at, name) in names.enumerate() {
        if let Some(name) = name {
            places.entry(name.to_owned()).or_insert(at);
        }
    }
    places
}

fn id_of(item: &Spot<Node>) -> Option<&str> {
    let Node::Table(members) = &item.value else { return None };
    members.iter().find_map(|(key, value)| match &value.value {
        Node::Text(id) if key.value == ID => Some(id.as_str()),
        _ => None,
    })
}

fn part<'t>(table: &'t mut Table, name: &str, empty: Node, place: &Place) -> &'t mut Node {
    let at = table.iter().position(|(key, _)| key.value == name).unwrap_or_else(|| {
        table.push((Spot::new(name.to_owned(), place.clone()), Spot::new(empty, place.clone())));
        table.len() - 1
    });
    &mut table[at].1.value
}
