//! TOML as a tree of JSON values: files, environment variables and JSON are read into types in the same way.

use serde_json::{Map, Number, Value};
use toml::de::{DeTable, DeValue};

use super::faults::Faults;

/// A table of TOML. Its keys are in the order of the file.
pub(super) type Table = Map<String, Value>;

/// Reads TOML as far as it can be read. Adds a fault for each part that cannot.
pub(super) fn from_toml(text: &str, faults: &mut Faults) -> Table {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        faults.add_span(error.span().unwrap_or(0..0), error.message(), "write it as TOML has it");
    }
    from_table(table.into_inner())
}

/// Reads one value of TOML, which an environment variable may hold.
pub(super) fn from_toml_value(text: &str) -> Option<Value> {
    DeValue::parse(text).ok().map(|value| from_value(value.into_inner()))
}

fn from_table(table: DeTable<'_>) -> Table {
    let mut entries: Vec<_> = table.into_iter().collect();
    // The parser sorts by name. Plans and rules keep the order of the file.
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
        .into_iter()
        .map(|(key, value)| (key.into_inner().into_owned(), from_value(value.into_inner())))
        .collect()
}

fn from_value(value: DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.into_owned()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => number.into(),
            // A larger number is out of every bound here.
            Err(_) => u64::MAX.into(),
        },
        // Infinity and NaN are out of every bound here, too.
        DeValue::Float(number) => number
            .as_str()
            .replace('_', "")
            .parse()
            .ok()
            .and_then(Number::from_f64)
            .map_or_else(|| f64::MAX.into(), Value::Number),
        DeValue::Boolean(flag) => Value::Bool(flag),
        DeValue::Datetime(date) => Value::String(date.to_string()),
        DeValue::Array(list) => list.into_iter().map(|item| from_value(item.into_inner())).collect(),
        DeValue::Table(table) => Value::Object(from_table(table)),
    }
}
