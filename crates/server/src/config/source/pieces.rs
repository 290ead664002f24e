//! Reads a large file a piece at a time.
//!
//! The parser's tree takes twenty times the file's size in memory, most of it for long lists of tables: a hundred thousand tenants. Such
//! a list is cut out and parsed in pieces. A file that cannot be cut unambiguously, or that has a fault, is parsed as a whole: the result
//! is the same.

use std::ops::Range;

use serde_json::Value;

use super::faults::Faults;
use super::tree::{Table, from_toml};

/// The size from which a file is read in pieces.
const LARGE: usize = 256 * 1024;
/// The number of bytes that are parsed at once.
const PIECE: usize = 64 * 1024;
/// Replaces a piece in the rest of the text. It is a table of a list, so that it is refused wherever the piece would be.
const STAND_IN: &str = "[[_]]\n";
const STAND_IN_NAME: &str = "_";

/// Reads TOML as far as it can be read. Adds a fault for each part that cannot.
pub(super) fn parse(text: &str, faults: &mut Faults) -> Table {
    let in_pieces = if text.len() < LARGE { None } else { parse_in_pieces(text, PIECE) };
    in_pieces.unwrap_or_else(|| from_toml(text, faults))
}

/// `None` if anything is wrong or in doubt.
fn parse_in_pieces(text: &str, size: usize) -> Option<Table> {
    // Within a text of several lines, a single line cannot be interpreted.
    if text.contains("\"\"\"") || text.contains("'''") {
        return None;
    }
    let pieces = cut(text, size);
    let mut table = without(text, &pieces)?;
    let mut lists = Table::new();
    for piece in &pieces {
        let mut read = sound(&text[piece.range.clone()])?.into_iter();
        let ((key, Value::Array(items)), None) = (read.next()?, read.next()) else { return None };
        match lists.get_mut(&key) {
            Some(Value::Array(before)) => before.extend(items),
            _ => drop(lists.insert(key, Value::Array(items))),
        }
    }
    if lists.keys().any(|name| table.contains_key(name)) {
        return None;
    }
    table.extend(lists);
    Some(table)
}

/// The table of the text without its pieces.
fn without(text: &str, pieces: &[Piece<'_>]) -> Option<Table> {
    let (mut rest, mut at) = (String::new(), 0);
    for Piece { range, .. } in pieces {
        rest.push_str(&text[at..range.start]);
        rest.push_str(STAND_IN);
        at = range.end;
    }
    rest.push_str(&text[at..]);
    let mut table = sound(&rest)?;
    let is_stand_in = |value: &Value| value.as_object().is_some_and(Table::is_empty);
    match table.shift_remove(STAND_IN_NAME) {
        None if pieces.is_empty() => Some(table),
        Some(Value::Array(items)) if items.len() == pieces.len() && items.iter().all(is_stand_in) => {
            Some(table)
        }
        _ => None,
    }
}

/// The table of the text, or `None` if it has a fault.
fn sound(text: &str) -> Option<Table> {
    let mut faults = Faults::default();
    let table = from_toml(text, &mut faults);
    faults.is_empty().then_some(table)
}

/// Neighbouring tables of one list.
struct Piece<'t> {
    name: &'t str,
    range: Range<usize>,
}

/// Cuts the text where a line is `[[name]]`, into pieces of about that size.
fn cut(text: &str, size: usize) -> Vec<Piece<'_>> {
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    let (mut at, mut open) = (0, false);
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('[') {
            let name = list_name(line);
            open = name.is_some();
            match (name, pieces.last()) {
                (Some(name), Some(last))
                    if last.name == name && last.range.end == at && last.range.len() < size => {}
                (Some(name), _) => pieces.push(Piece { name, range: at..at }),
                (None, _) => {}
            }
        }
        at += line.len();
        if open && let Some(last) = pieces.last_mut() {
            last.range.end = at;
        }
    }
    pieces
}

/// The name in a line that is `[[name]]` and nothing else.
fn list_name(line: &str) -> Option<&str> {
    let name = line.trim_end().strip_prefix("[[")?.strip_suffix("]]")?;
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    plain.then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The content of a table, regardless of the order of lists and other tables.
    fn sorted(table: &Table) -> Vec<String> {
        let mut entries: Vec<String> = table.iter().map(|entry| format!("{entry:?}")).collect();
        entries.sort();
        entries
    }

    /// Lines that make sense in some order, and in others do not.
    const LINES: [&str; 20] = [
        "[[tenants]]",
        "[[tenants]]",
        "[[tenants]]",
        "[[tenants]] # the first",
        "  [[tenants]]",
        "[[rules]]",
        "[rules.match]",
        "[plans.free]",
        "[store]",
        "id = \"a\"",
        "plan = \"b [[tenants]] c\"",
        "api_keys = [\"x\", \"y\"]",
        "limits = [",
        "  [\"nested\"],",
        "]",
        "tenants = 1",
        "[tenants.more]",
        "capacity = 10",
        "",
        "broken = ",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_file_in_pieces_says_what_it_says_as_a_whole(
            lines in prop::collection::vec(prop::sample::select(&LINES[..]), 0..40),
            size in 1_usize..60,
        ) {
            let text = lines.join("\n");
            let mut faults = Faults::default();
            let whole = from_toml(&text, &mut faults);
            if let Some(pieces) = parse_in_pieces(&text, size) {
                prop_assert!(faults.is_empty());
                prop_assert_eq!(sorted(&pieces), sorted(&whole));
            }
        }
    }

    #[test]
    fn fuzzed_files_say_the_same_in_pieces_as_they_do_as_a_whole() {
        let words = [
            "[[tenants]]\n",
            "[[rules]]\n",
            "[store]\n",
            "[tenants.more]\n",
            "\n",
            "[[_]]\n",
            "\"\"\"",
            "\r\n",
        ];
        spile_testkit::fuzz::fuzz("config", &words, |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let mut faults = Faults::default();
            let whole = from_toml(&text, &mut faults);
            for size in [1, 40, 200] {
                if let Some(pieces) = parse_in_pieces(&text, size) {
                    assert!(faults.is_empty());
                    assert_eq!(sorted(&pieces), sorted(&whole));
                }
            }
            (faults.is_empty(), whole.len().min(8))
        });
    }

    #[test]
    fn a_long_list_is_cut_and_a_mistake_in_it_is_not() {
        let tenants = "[[tenants]]\nid = \"a\"\nplan = \"free\"\n".repeat(100);
        let text = format!("[plans.free]\nrefill = \"1/s\"\n{tenants}[store]\nreplicas = 2\n{tenants}");
        let mut whole = Faults::default();
        let read = parse_in_pieces(&text, 200).expect("nothing is wrong with it");
        assert_eq!(sorted(&read), sorted(&from_toml(&text, &mut whole)));
        assert!(parse_in_pieces(&format!("{text}id = \"a\"\n"), 200).is_none(), "a key stands twice");
        let within = "[rules.match]\nlimits = [\n[[tenants]]\n  [\"nested\"],\n]";
        assert!(parse_in_pieces(within, 1).is_none(), "it is part of a list");
        assert!(parse_in_pieces(&format!("note = '''\n{text}'''\n"), 200).is_none());
    }
}
