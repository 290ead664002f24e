//! The file as a tree in which every key and value knows where it was written.

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::fault::Faults;
use super::place::{Place, Spot};

/// A value as it was written.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Text(String),
    Whole(i128),
    Fraction(f64),
    Flag(bool),
    Date,
    List(Vec<Spot<Node>>),
    Table(Table),
    /// From the environment, where everything is text until somebody asks for something else.
    Raw(String),
}

/// Keys and values in the order of the file.
pub(super) type Table = Vec<(Spot<String>, Spot<Node>)>;

impl Node {
    /// What it is, in words.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) | Self::Raw(_) => "text",
            Self::Whole(_) => "a whole number",
            Self::Fraction(_) => "a fraction",
            Self::Flag(_) => "true or false",
            Self::Date => "a date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// Reads TOML as far as it can be read; what cannot is a fault each.
pub(super) fn parse(text: &str, faults: &mut Faults) -> Table {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        faults.add(&Place::File(span), error.message(), "write it as TOML has it");
    }
    from_table(table.get_ref())
}

/// Reads one value out of an environment variable, as TOML has it in a list or a table.
pub(super) fn parse_value(text: &str, place: &Place) -> Option<Node> {
    let value = DeValue::parse(text).ok()?;
    Some(elsewhere(from_value(value.get_ref()), place))
}

/// The member of a document that holds others by names of their own: a tenant's limits.
const NAMED: &str = "limits";

/// A document of the registry. Members without a value are as good as absent.
pub(super) fn from_json(value: &serde_json::Value, place: &Place) -> Node {
    use serde_json::Value;
    let spot = |value: &Value, place: Place| Spot::new(from_json(value, &place), place);
    match value {
        Value::Null => Node::Table(Table::new()),
        Value::Bool(flag) => Node::Flag(*flag),
        Value::Number(number) => {
            number.as_i128().map_or_else(|| Node::Fraction(number.as_f64().unwrap_or(f64::NAN)), Node::Whole)
        }
        Value::String(text) => Node::Text(text.clone()),
        Value::Array(items) => {
            Node::List(items.iter().enumerate().map(|(index, item)| spot(item, place.item(index))).collect())
        }
        Value::Object(members) => {
            let there = members.iter().filter(|(_, value)| !value.is_null());
            let entry = |(key, value): (&String, &Value)| {
                let place = place.member(key);
                let value = match value {
                    // Its members are names that somebody chose, and stay as they are.
                    Value::Object(named) if key == NAMED => {
                        Spot::new(from_named(named, &place), place.clone())
                    }
                    other => spot(other, place.clone()),
                };
                (Spot::new(snake_case(key), place), value)
            };
            Node::Table(there.map(entry).collect())
        }
    }
}

fn from_named(members: &serde_json::Map<String, serde_json::Value>, place: &Place) -> Node {
    let entry = |(key, value): (&String, &serde_json::Value)| {
        let place = place.member(key);
        (Spot::new(key.clone(), place.clone()), Spot::new(from_json(value, &place), place))
    };
    Node::Table(members.iter().map(entry).collect())
}

/// JSON says `onFailure` where the file says `on_failure`.
fn snake_case(key: &str) -> String {
    let mut snake = String::with_capacity(key.len() + 4);
    for letter in key.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

fn from_table(table: &DeTable<'_>) -> Table {
    let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let key: &Spanned<std::borrow::Cow<'_, str>> = key;
        (Spot::new(key.get_ref().to_string(), Place::File(key.span())), from_spanned(value))
    };
    let mut entries: Vec<_> = table.iter().collect();
    // The parser sorts by name; whoever wrote the file had an order in mind.
    entries.sort_by_key(|(key, _)| key.span().start);
    entries.into_iter().map(entry).collect()
}

fn from_spanned(value: &Spanned<DeValue<'_>>) -> Spot<Node> {
    Spot::new(from_value(value.get_ref()), Place::File(value.span()))
}

fn from_value(value: &DeValue<'_>) -> Node {
    match value {
        DeValue::String(text) => Node::Text(text.to_string()),
        // TOML bounds integers to 64 bits; one that is larger still is out of every bound here.
        DeValue::Integer(number) => {
            Node::Whole(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX))
        }
        // A number that no double holds compares as out of every bound here.
        DeValue::Float(number) => {
            Node::Fraction(number.as_str().replace('_', "").parse().unwrap_or(f64::NAN))
        }
        DeValue::Boolean(flag) => Node::Flag(*flag),
        DeValue::Datetime(_) => Node::Date,
        DeValue::Array(list) => Node::List(from_list(list)),
        DeValue::Table(table) => Node::Table(from_table(table)),
    }
}

fn from_list(list: &DeArray<'_>) -> Vec<Spot<Node>> {
    list.iter().map(from_spanned).collect()
}

/// The same value, said to be written at `place` throughout.
fn elsewhere(node: Node, place: &Place) -> Node {
    let moved = |spot: Spot<Node>| Spot::new(elsewhere(spot.value, place), place.clone());
    match node {
        Node::List(list) => Node::List(list.into_iter().map(moved).collect()),
        Node::Table(table) => {
            let entry = |(key, value): (Spot<String>, _)| (Spot::new(key.value, place.clone()), moved(value));
            Node::Table(table.into_iter().map(entry).collect())
        }
        plain => plain,
    }
}
