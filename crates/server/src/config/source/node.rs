//! What TOML, JSON and the environment write, as one kind of tree.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::faults::Faults;

/// A value as it was written.
#[derive(Clone, Debug)]
pub(crate) enum Node<'t> {
    /// JSON's `null`. A member that is null counts as absent.
    Null,
    Text(Cow<'t, str>),
    Whole(i128),
    Fraction(f64),
    Flag(bool),
    Date,
    List(Vec<Node<'t>>),
    Table(Table<'t>),
    /// From an environment variable: text that is read as whatever type its key takes.
    Raw(Cow<'t, str>),
}

/// Keys and values in the order in which they were written.
pub(crate) type Table<'t> = Vec<(Cow<'t, str>, Node<'t>)>;

impl<'t> Node<'t> {
    /// Reads TOML as far as it can be read. Adds a fault for each part that cannot.
    pub(super) fn from_toml(text: &'t str, faults: &mut Faults) -> Table<'t> {
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            faults.add_span(error.span().unwrap_or(0..0), error.message(), "write it as TOML has it");
        }
        from_table(table.into_inner())
    }

    /// Reads one value of TOML: what an environment variable holds in place of a list or a table.
    pub(super) fn from_toml_value(text: &'t str) -> Option<Self> {
        DeValue::parse(text).ok().map(|value| from_value(value.into_inner()))
    }

    /// What it is, in words.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Text(_) | Self::Raw(_) => "text",
            Self::Whole(_) => "a whole number",
            Self::Fraction(_) => "a fraction",
            Self::Flag(_) => "true or false",
            Self::Date => "a date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Raw(text) => Some(text),
            _ => None,
        }
    }

    /// The value under this key of a table.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Table(table) => table.iter().find(|(own, _)| own == key).map(|(_, value)| value),
            _ => None,
        }
    }
}

fn from_table<'t>(table: DeTable<'t>) -> Table<'t> {
    let mut entries: Vec<(Spanned<Cow<'t, str>>, Spanned<DeValue<'t>>)> = table.into_iter().collect();
    // The parser sorts by name. Plans and rules keep the order of the file.
    entries.sort_by_key(|(key, _)| key.span().start);
    entries.into_iter().map(|(key, value)| (key.into_inner(), from_value(value.into_inner()))).collect()
}

fn from_value<'t>(value: DeValue<'t>) -> Node<'t> {
    match value {
        DeValue::String(text) => Node::Text(text),
        // TOML bounds integers to 64 bits. A larger one is out of every bound here.
        DeValue::Integer(number) => {
            Node::Whole(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX))
        }
        // A number that no double holds compares as out of every bound here.
        DeValue::Float(number) => {
            Node::Fraction(number.as_str().replace('_', "").parse().unwrap_or(f64::NAN))
        }
        DeValue::Boolean(flag) => Node::Flag(flag),
        DeValue::Datetime(_) => Node::Date,
        DeValue::Array(list) => {
            Node::List(list.into_iter().map(|item| from_value(item.into_inner())).collect())
        }
        DeValue::Table(table) => Node::Table(from_table(table)),
    }
}

/// Reads JSON. A member that occurs twice is an error.
impl<'de> Deserialize<'de> for Node<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Node<'de>, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Node<'de>, E> {
        Ok(Node::Flag(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Node<'de>, E> {
        Ok(Node::Whole(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Node<'de>, E> {
        Ok(Node::Whole(number.into()))
    }

    /// JSON has one kind of number: `1.0` is 1.
    fn visit_f64<E: Error>(self, number: f64) -> Result<Node<'de>, E> {
        let is_whole = number.fract() == 0.0 && number.abs() < 1e30;
        Ok(if is_whole { Node::Whole(number as i128) } else { Node::Fraction(number) })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Borrowed(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node<'de>, A::Error> {
        let mut table = Table::new();
        while let Some((Node::Text(key), value)) = map.next_entry::<Node<'de>, Node<'de>>()? {
            table.push((key, value));
        }
        let mut keys: Vec<&str> = table.iter().map(|(key, _)| key.as_ref()).collect();
        keys.sort_unstable();
        match keys.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(twice) => Err(A::Error::custom(format_args!("duplicate field `{}`", twice[0]))),
            None => Ok(Node::Table(table)),
        }
    }
}
