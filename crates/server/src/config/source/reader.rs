//! Reads JSON values into types by serde, and continues after a fault.
//!
//! serde stops at the first error. A table with an error is therefore read again without the wrong value, until the rest is valid: its
//! type gets every valid value, and each wrong one becomes a fault with its location.

use std::fmt;

use serde::de::{self, DeserializeOwned};
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

use super::environment;
use super::faults::Faults;
use super::location::{Location, Path, in_file, in_json};
use super::suggest::did_you_mean;
use crate::secret::mask_typed;

/// The most faults reported per table.
const MOST: usize = 100;

/// Separates the fault from the fix in the single text that a serde error carries.
const BETWEEN: char = '\u{1f}';

/// The expected values of some keys, in more detail than their types report.
const TAKES: [(&str, &str); 12] = [
    ("capacity", "a number of tokens from 1 to 1000000000, with at most six decimals"),
    ("quota", "a number of tokens from 1 to 1000000000, with at most six decimals"),
    ("debt", "a number of tokens from 0 to 1000000000, with at most six decimals"),
    ("per", "text: `minute`, `hour`, `day`, `week`, `month` or `year`"),
    ("zone", "text: a time zone, as in `Europe/Berlin`"),
    ("anchor", "a day of the month, an hour, a weekday such as `\"mon\"` or a date such as `\"04-01\"`"),
    ("cost", "a number of tokens from 0 to 1000000000, with at most six decimals"),
    ("refill", "text: tokens per period, as in `1/s` or `100/min`"),
    ("key", "a list of texts: who pays, as in `[\"tenant\", \"ip\"]`"),
    ("plans", "a list of plan names, one of them, `\"tenant\"`, `\"unlimited\"` or `\"banned\"`"),
    ("also", "a list of texts: the ids of other rules"),
    ("api_keys", "a list of hashes: `sha256:` and 64 hexadecimal digits each"),
];

/// An error about a value of the right type: the fault, and a fix.
pub(in crate::config) fn wrong<E: de::Error>(message: impl fmt::Display, fix: impl fmt::Display) -> E {
    E::custom(format_args!("{message}{BETWEEN}{fix}"))
}

/// The keys that a type accepts, in the order of its fields. They are taken from its error about an unknown key.
pub(super) fn keys_of<T: DeserializeOwned>() -> Vec<String> {
    let unknown = Value::Object(Map::from_iter([("?".to_owned(), Value::Null)]));
    T::deserialize(unknown).map_or_else(|why| quoted(&why.to_string()).skip(1).collect(), |_| Vec::new())
}

/// The words between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

/// Marks a key that the type must not know, although it has a field of that name.
const UNKNOWN: char = '\u{1e}';

/// Whether this is a member that the admin API adds when it shows an entry. A file has no such keys.
fn is_hidden(key: &str, is_plan: bool) -> bool {
    ["source", "apiKeyCount"].contains(&key) || (is_plan && key == "name")
}

/// Hides the keys of a plan, a rule or a tenant that its type has and files do not.
pub(super) fn hide_json_keys(table: &mut Value, is_plan: bool) {
    hide(table, |key| is_hidden(key, is_plan) || in_file(key) != key);
}

/// Hides keys of a table that its type has.
pub(super) fn hide(table: &mut Value, is_hidden: impl Fn(&str) -> bool) {
    let Value::Object(members) = table else { return };
    while let Some(key) = members.keys().find(|key| is_hidden(key)).cloned() {
        let value = members.swap_remove(&key).unwrap_or_default();
        members.insert(format!("{key}{UNKNOWN}"), value);
    }
}

/// Reads tables. Text of the environment variables may be read as any type.
pub(super) struct TreeReader<'r> {
    pub(super) variables: &'r [(String, String)],
    pub(super) faults: &'r mut Faults,
}

impl TreeReader<'_> {
    /// Reads one table. `None` if it is not a table, or has too many faults. `others` are keys that it may have besides those of the
    /// type.
    pub(super) fn read<T: DeserializeOwned>(
        &mut self,
        mut value: Value,
        at: &Location<'_>,
        others: &[String],
    ) -> Option<T> {
        if !value.is_object() {
            let path = at.path();
            let takes = if path.is_json() { "an object" } else { "a table" };
            let message = format!("`{}` is {}", path.name(), kind(&value, &path));
            self.faults.add_path(path, message, format_args!("this takes {takes}"));
            return None;
        }
        if let Ok(read) = T::deserialize(&value) {
            return Some(read);
        }
        let mut taken = Taken::default();
        for _ in 0..MOST {
            let why = match serde_path_to_error::deserialize::<_, T>(&value) {
                Ok(read) => return Some(read),
                Err(why) => why,
            };
            let steps = steps(why.path());
            let path = taken.path(at, &steps);
            // A text that its type has parsed and refused was meant as text.
            let is_refused = why.inner().to_string().contains(BETWEEN);
            if !is_refused
                && let Some(text) = self.variable_at(&path)
                && let Some(found) = get(&mut value, &steps)
                && found.is_string()
            {
                *found = guess(text);
                taken.guessed.push(path);
                continue;
            }
            let found = match get(&mut value, &steps) {
                Some(_) if taken.guessed.contains(&path) => {
                    Value::String(self.variable_at(&path).unwrap_or_default().to_owned())
                }
                Some(found) => found.clone(),
                None => Value::String(String::new()),
            };
            let others = if steps.len() == 1 { others } else { &[] };
            self.report(&why.into_inner().to_string(), path.clone(), &found, others);
            if !remove(&mut value, &steps) {
                return None;
            }
            taken.removed.push(path);
        }
        None
    }

    /// The text of the variable that sets exactly this value.
    fn variable_at(&self, path: &Path) -> Option<&str> {
        let sets = |name: &str| environment::keys(name).is_some_and(|keys| keys == path.steps);
        let variable = self.variables.iter().find(|(name, _)| !path.is_json() && sets(name));
        variable.map(|(_, text)| text.as_str())
    }

    /// Adds serde's error to the faults, in an operator's terms.
    fn report(&mut self, why: &str, mut path: Path, found: &Value, others: &[String]) {
        let mut words = quoted(why);
        let (message, fix) = if let Some((message, fix)) = why.split_once(BETWEEN) {
            (message.to_owned(), fix.to_owned())
        } else if why.starts_with("unknown field") {
            path.is_key = true;
            let key = path.steps.pop().unwrap_or_default();
            let is_plan = path.steps.first().is_some_and(|first| first == "plans") && path.steps.len() == 2;
            let known = others.iter().cloned().chain(words.skip(1));
            // Types take the keys of both.
            let is_json = path.is_json();
            let takes: Vec<String> = known
                .filter(|key| {
                    if is_json {
                        in_json(key) == key
                    } else {
                        in_file(key) == key && !is_hidden(key, is_plan)
                    }
                })
                .collect();
            let guess = did_you_mean(&key, takes.iter().map(String::as_str));
            let message = format!("`{}` has no key `{key}`", path.name());
            path.steps.push(key);
            (message, format!("{guess}it takes {}", takes.join(", ")))
        } else if why.starts_with("unknown variant") {
            let (word, known) = (words.next().unwrap_or_default(), words.map(|word| format!("`{word}`")));
            let known = known.collect::<Vec<_>>().join(", ");
            let known =
                known.rsplit_once(", ").map_or(known.clone(), |(but, last)| format!("{but} or {last}"));
            (format!("`{}` cannot be `{word}`", path.name()), format!("this takes {known}"))
        } else {
            let wants = wants(why, &path);
            let found = match found {
                // Where a whole number is expected, another is refused only for its size, and tokens for size or decimals.
                Value::Number(number)
                    if wants.starts_with("a number of tokens")
                        || wants.starts_with("a whole") && !number.is_f64() =>
                {
                    number.to_string()
                }
                // The text of a variable in place of a number or a keyword, which is not a secret.
                Value::String(text) if is_plain(&wants) && self.variable_at(&path).is_some() => shown(text),
                other => kind(other, &path).to_owned(),
            };
            (format!("`{}` is {found}", path.name()), format!("this takes {wants}"))
        };
        self.faults.add_path(path, message, fix);
    }
}

/// The members that were removed from a table so far.
#[derive(Default)]
struct Taken {
    removed: Vec<Path>,
    /// Texts of variables that were replaced by their guessed values.
    guessed: Vec<Path>,
}

impl Taken {
    /// The path to a value before anything was removed: items of lists have moved up since.
    fn path(&self, at: &Location<'_>, steps: &[String]) -> Path {
        let mut path = at.path();
        for step in steps {
            let mut step = step.strip_suffix(UNKNOWN).unwrap_or_else(|| in_file(step)).to_owned();
            if let Ok(mut index) = step.parse::<usize>() {
                let is_sibling = |gone: &&Path| {
                    gone.steps.len() == path.steps.len() + 1 && gone.steps.starts_with(&path.steps)
                };
                let mut gone: Vec<usize> = self
                    .removed
                    .iter()
                    .filter(is_sibling)
                    .filter_map(|gone| gone.steps.last()?.parse().ok())
                    .collect();
                gone.sort_unstable();
                for gone in gone {
                    index += usize::from(gone <= index);
                }
                step = index.to_string();
            }
            path.steps.push(step);
        }
        path
    }
}

fn steps(path: &serde_path_to_error::Path) -> Vec<String> {
    let step = |segment: &Segment| match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { .. } | Segment::Unknown => None,
    };
    path.iter().filter_map(step).collect()
}

fn get<'v>(value: &'v mut Value, steps: &[String]) -> Option<&'v mut Value> {
    steps.iter().try_fold(value, |value, step| match value {
        Value::Object(members) => members.get_mut(step),
        Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
        _ => None,
    })
}

fn remove(value: &mut Value, steps: &[String]) -> bool {
    let Some((last, parents)) = steps.split_last() else { return false };
    match (get(value, parents), last.parse::<usize>()) {
        (Some(Value::Object(members)), _) => members.shift_remove(last).is_some(),
        (Some(Value::Array(items)), Ok(index)) if index < items.len() => {
            items.remove(index);
            true
        }
        _ => false,
    }
}

/// Guesses the value of a variable that is not text: a value of TOML, or texts with commas between them.
fn guess(text: &str) -> Value {
    super::tree::from_toml_value(text).filter(|value| !value.is_string()).unwrap_or_else(|| {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        items.collect()
    })
}

/// Whether a number, or `true` or `false`, is wanted.
fn is_plain(wants: &str) -> bool {
    ["a whole number", "a number", "`true`"].iter().any(|word| wants.starts_with(word))
}

/// A text as an operator typed it, unless it may be a secret.
fn shown(text: &str) -> String {
    if text.is_empty() { "empty".to_owned() } else { format!("`{}`", mask_typed(text)) }
}

/// The kind of a value, in words.
fn kind(value: &Value, path: &Path) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "a fraction",
        Value::Number(_) => "a whole number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) if path.is_json() => "an object",
        Value::Object(_) => "a table",
    }
}

/// The expected type as serde reports it, in words that an operator knows.
fn wants(why: &str, path: &Path) -> String {
    let key = path.steps.last().map(String::as_str).unwrap_or_default();
    if let Some((_, takes)) = TAKES.iter().find(|(of, _)| *of == key) {
        return (*takes).to_owned();
    }
    let wants = why.rsplit_once(", expected ").map_or(why, |(_, wants)| wants);
    match wants {
        "a string" | "path string" => "text in quotes",
        "a boolean" => "`true` or `false`",
        "a sequence" => "a list",
        "u64" => "a whole number from 0",
        "f64" => "a number",
        "a map" | "an object" if path.is_json() => "an object",
        "a map" | "an object" => "a table",
        _ => wants,
    }
    .to_owned()
}
