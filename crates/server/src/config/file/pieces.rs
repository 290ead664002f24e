//! Reads a large file a piece at a time.
//!
//! The parser's tree takes twenty times the file's size in memory, most of it for long lists of tables: a hundred thousand
//! tenants. Such a list is cut out and read in pieces. What cannot be cut without doubt is read as a whole, and so is a
//! file with a mistake in it: the result is the same, down to every place.

use std::ops::Range;

use super::fault::Faults;
use super::node::{self, Node, Table};
use super::place::{Place, Spot};

/// The size from which on it is worth it.
const LARGE: usize = 256 * 1024;
/// How much is read at once.
const PIECE: usize = 64 * 1024;
/// What stands for a piece in the rest of the text: a table of a list, so that it is refused wherever the piece would be.
const STAND_IN: &str = "[[_]]";
const STAND_IN_NAME: &str = "_";

/// Reads TOML as far as it can be read; what cannot is a fault each.
pub(super) fn parse(text: &str, faults: &mut Faults) -> Table {
    let in_pieces = if text.len() < LARGE { None } else { parse_in_pieces(text, PIECE) };
    in_pieces.unwrap_or_else(|| node::parse(text, faults))
}

/// Nothing where anything is wrong or in doubt.
fn parse_in_pieces(text: &str, size: usize) -> Option<Table> {
    // Within a text of several lines nothing can be said about a line.
    if text.contains("\"\"\"") || text.contains("'''") {
        return None;
    }
    let pieces = cut(text, size);
    let mut table = sound(&without(text, &pieces), 0)?;
    if !pieces.is_empty() {
        let at = table.iter().position(|(key, _)| key.value == STAND_IN_NAME)?;
        let is_ours = |item: &Spot<Node>| matches!(&item.value, Node::Table(inner) if inner.is_empty());
        match table.remove(at).1.value {
            Node::List(items) if items.len() == pieces.len() && items.iter().all(is_ours) => {}
            _ => return None,
        }
    }
    if pieces.iter().any(|piece| find(&mut table, piece.name).is_some()) {
        return None;
    }
    for piece in &pieces {
        let mut read = sound(&text[piece.range.clone()], piece.range.start)?.into_iter();
        let ((key, list), None) = (read.next()?, read.next()) else { return None };
        match (find(&mut table, piece.name), list) {
            (None, list) => table.push((key, list)),
            (Some(Node::List(standing)), Spot { value: Node::List(more), .. }) => standing.extend(more),
            _ => return None,
        }
    }
    table.sort_by_key(|(key, _)| match &key.place {
        Place::File(span) => span.start,
        _ => usize::MAX,
    });
    Some(table)
}

/// Neighbouring tables of one list.
struct Piece<'t> {
    name: &'t str,
    range: Range<usize>,
}

/// Cuts the text where `[[name]]` stands on a line of its own, into pieces of about that size.
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

/// The text with a stand-in and blanks in place of each piece, so that everything else stands where it stood.
fn without(text: &str, pieces: &[Piece<'_>]) -> String {
    let (mut rest, mut at) = (String::with_capacity(text.len()), 0);
    for Piece { range, .. } in pieces {
        rest.push_str(&text[at..range.start]);
        rest.push_str(STAND_IN);
        // The name of a list has one letter at least. Only a piece at the end of the text may have no end of line.
        let blanks = range.len() - STAND_IN.len();
        rest.extend(std::iter::repeat_n(' ', blanks.saturating_sub(1)));
        rest.extend((blanks > 0).then_some('\n'));
        at = range.end;
    }
    rest.push_str(&text[at..]);
    rest
}

/// What the text says, moved to where it stands in the file; nothing where anything is wrong with it.
fn sound(text: &str, at: usize) -> Option<Table> {
    let mut faults = Faults::default();
    let mut table = node::parse(text, &mut faults);
    move_table(&mut table, at);
    faults.is_empty().then_some(table)
}

fn find<'t>(table: &'t mut Table, name: &str) -> Option<&'t mut Node> {
    table.iter_mut().find(|(key, _)| key.value == name).map(|(_, spot)| &mut spot.value)
}

fn move_table(table: &mut Table, by: usize) {
    for (key, value) in table {
        move_place(&mut key.place, by);
        move_spot(value, by);
    }
}

fn move_spot(spot: &mut Spot<Node>, by: usize) {
    move_place(&mut spot.place, by);
    match &mut spot.value {
        Node::List(items) => items.iter_mut().for_each(|item| move_spot(item, by)),
        Node::Table(table) => move_table(table, by),
        _ => {}
    }
}

fn move_place(place: &mut Place, by: usize) {
    if let Place::File(span) = place {
        *span = span.start + by..span.end + by;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            let whole = node::parse(&text, &mut faults);
            if let Some(pieces) = parse_in_pieces(&text, size) {
                prop_assert!(faults.is_empty());
                prop_assert_eq!(format!("{pieces:?}"), format!("{whole:?}"));
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
            let whole = node::parse(&text, &mut faults);
            for size in [1, 40, 200] {
                if let Some(pieces) = parse_in_pieces(&text, size) {
                    assert!(faults.is_empty());
                    assert_eq!(format!("{pieces:?}"), format!("{whole:?}"));
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
        assert_eq!(format!("{read:?}"), format!("{:?}", node::parse(&text, &mut whole)));
        assert!(parse_in_pieces(&format!("{text}id = \"a\"\n"), 200).is_none(), "a key stands twice");
        let within = "[rules.match]\nlimits = [\n[[tenants]]\n  [\"nested\"],\n]";
        assert!(parse_in_pieces(within, 1).is_none(), "it is part of a list");
        assert!(parse_in_pieces(&format!("note = '''\n{text}'''\n"), 200).is_none());
    }
}
