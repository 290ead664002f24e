//! Finds numbers in a JSON document that comes in pieces, without holding the document.
//!
//! The scanner follows the containers that lie on the way to a number that is looked for. All others are only counted until
//! they are closed again. So the memory depends on the pointers, and not on the document: a name of a member is the longest
//! text that is held.

use memchr::memchr2;
use spile_core::Amount;

use super::parse_amount;
use super::pointer::JsonPointer;

/// The numbers that are looked for, at most.
pub(super) const NUMBERS: usize = 4;

/// The numbers that were found: those of the last document that has them.
pub(super) type Numbers = [Option<Amount>; NUMBERS];

/// The longest number that is read. One byte more than an amount has.
const LONGEST_NUMBER: usize = 65;

/// Looks for amounts in one document after the other. What is not valid JSON is skipped as far as it can be.
#[derive(Debug)]
pub(super) struct JsonScanner {
    targets: Vec<Target>,
    /// The numbers of the documents that are complete.
    complete: Numbers,
    /// The open containers on the way to a target, at most as many as a pointer has steps.
    open: Vec<Container>,
    /// The open containers below these that lead to no target.
    skipped: u64,
    token: Token,
    /// The name of a member as it is written, up to `longest_name`.
    name: Vec<u8>,
    longest_name: usize,
    /// The number at a target as it is written, up to [`LONGEST_NUMBER`].
    number: Vec<u8>,
}

/// One place where a number may be.
#[derive(Debug)]
struct Target {
    pointer: JsonPointer,
    /// The index of the number that it gives.
    number: usize,
    /// How many steps of the pointer lead to where the scanner is.
    matched: usize,
    found: Option<Amount>,
}

#[derive(Debug)]
enum Container {
    Object {
        /// Whether the next text is the name of a member.
        at_name: bool,
    },
    Array {
        index: u64,
    },
}

/// The part of a JSON text that the next byte belongs to.
#[derive(Debug)]
enum Token {
    Between,
    Name {
        escaped: bool,
    },
    Text {
        escaped: bool,
    },
    /// A value at a target.
    Number,
}

impl JsonScanner {
    /// Looks for numbers at these places, each with the index of its number. If a number has several places, the last that
    /// comes counts.
    pub(super) fn new(places: impl IntoIterator<Item = (usize, JsonPointer)>) -> Self {
        let target = |(number, pointer)| Target { pointer, number, matched: 0, found: None };
        let targets: Vec<_> = places.into_iter().map(target).collect();
        let names = targets.iter().flat_map(|target| target.pointer.tokens());
        // Each byte of a name takes at most six when it is written: `\u0061`.
        let longest_name = names.map(|token| 6 * token.name.len()).max().unwrap_or(0);
        Self {
            targets,
            complete: [None; NUMBERS],
            open: Vec::new(),
            skipped: 0,
            token: Token::Between,
            name: Vec::new(),
            longest_name,
            number: Vec::new(),
        }
    }

    /// Reads the next piece.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while let Some((&first, rest)) = bytes.split_first() {
            bytes = match self.token {
                Token::Between => {
                    self.begin_token(first);
                    rest
                }
                Token::Name { escaped } => self.read_name(bytes, escaped),
                Token::Text { escaped } => self.skip_text(bytes, escaped),
                Token::Number => self.read_number(bytes),
            };
        }
    }

    /// Ends the document, complete or not. The next piece begins another one.
    pub(super) fn end_document(&mut self) {
        (self.complete, self.token, self.skipped) = (self.found(), Token::Between, 0);
        self.open.clear();
        for target in &mut self.targets {
            (target.matched, target.found) = (0, None);
        }
    }

    /// The numbers that have been found until now.
    pub(super) fn found(&self) -> Numbers {
        let mut found = self.complete;
        for target in self.targets.iter().filter(|target| target.found.is_some()) {
            found[target.number] = target.found;
        }
        found
    }

    /// Handles the first byte of a token.
    fn begin_token(&mut self, byte: u8) {
        match (byte, self.open.last_mut()) {
            (b' ' | b'\t' | b'\n' | b'\r' | b':', _) => {}
            (b'{', _) => self.open_container(Container::Object { at_name: true }),
            (b'[', _) => self.open_container(Container::Array { index: 0 }),
            (b'}' | b']', _) => self.close_container(),
            (b'"', Some(Container::Object { at_name: true })) if self.skipped == 0 => {
                self.name.clear();
                self.token = Token::Name { escaped: false };
            }
            (b'"', _) => {
                self.begin_value();
                self.token = Token::Text { escaped: false };
            }
            _ if self.skipped > 0 => {}
            (b',', Some(Container::Object { at_name })) => {
                *at_name = true;
                self.match_member(|_, _| false);
            }
            (b',', Some(Container::Array { index })) => {
                *index += 1;
                self.match_element();
            }
            _ => {
                self.begin_value();
                if self.is_at_target() {
                    self.token = Token::Number;
                    self.number.clear();
                    self.number.push(byte);
                }
            }
        }
    }

    /// Forgets what was found within the value that begins: if an object has two members of one name, the last counts.
    fn begin_value(&mut self) {
        let depth = self.open.len();
        if self.skipped == 0 {
            self.targets
                .iter_mut()
                .filter(|target| target.matched == depth)
                .for_each(|target| target.found = None);
        }
    }

    fn open_container(&mut self, container: Container) {
        self.begin_value();
        let depth = self.open.len();
        let leads_inside = |target: &Target| target.matched == depth && target.pointer.tokens().len() > depth;
        if self.skipped > 0 || !self.targets.iter().any(leads_inside) {
            self.skipped += 1;
            return;
        }
        let is_array = matches!(container, Container::Array { .. });
        self.open.push(container);
        if is_array {
            self.match_element();
        }
    }

    fn close_container(&mut self) {
        if self.skipped > 0 {
            self.skipped -= 1;
        } else if self.open.pop().is_some() {
            let depth = self.open.len();
            for target in &mut self.targets {
                target.matched = target.matched.min(depth);
            }
            if depth == 0 {
                self.end_document();
            }
        }
    }

    fn read_name<'b>(&mut self, bytes: &'b [u8], escaped: bool) -> &'b [u8] {
        let (written, rest, ended) = text_piece(bytes, escaped);
        // A name that is longer than the longest that is looked for stays too long, and matches none.
        let room = (self.longest_name + 1).saturating_sub(self.name.len());
        self.name.extend_from_slice(&written[..written.len().min(room)]);
        match ended {
            TextEnd::Open { escaped } => self.token = Token::Name { escaped },
            TextEnd::Closed => {
                self.token = Token::Between;
                if let Some(Container::Object { at_name }) = self.open.last_mut() {
                    *at_name = false;
                }
                let name = decoded(&std::mem::take(&mut self.name));
                self.match_member(|target, step| {
                    let looked_for = target.pointer.tokens().get(step).map(|token| token.name.as_bytes());
                    looked_for.is_some() && looked_for == name.as_deref()
                });
            }
        }
        rest
    }

    fn skip_text<'b>(&mut self, bytes: &'b [u8], escaped: bool) -> &'b [u8] {
        let (_, rest, ended) = text_piece(bytes, escaped);
        self.token = match ended {
            TextEnd::Open { escaped } => Token::Text { escaped },
            TextEnd::Closed => Token::Between,
        };
        rest
    }

    fn read_number<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
        let end = bytes.iter().position(ends).unwrap_or(bytes.len());
        let (digits, rest) = bytes.split_at(end);
        let room = LONGEST_NUMBER.saturating_sub(self.number.len());
        self.number.extend_from_slice(&digits[..digits.len().min(room)]);
        if !rest.is_empty() {
            self.token = Token::Between;
            let value = str::from_utf8(&self.number).ok().and_then(parse_amount);
            let depth = self.open.len();
            self.targets
                .iter_mut()
                .filter(|target| target.is_at(depth))
                .for_each(|target| target.found = value);
        }
        rest
    }

    fn is_at_target(&self) -> bool {
        self.targets.iter().any(|target| target.is_at(self.open.len()))
    }

    /// Matches the element of the innermost array that begins.
    fn match_element(&mut self) {
        if let Some(Container::Array { index }) = self.open.last() {
            let index = *index;
            self.match_member(|target, step| {
                target.pointer.tokens().get(step).is_some_and(|token| token.index == Some(index))
            });
        }
    }

    /// Matches a member of the innermost container for the targets that lie within it.
    fn match_member(&mut self, matches: impl Fn(&Target, usize) -> bool) {
        let step = self.open.len() - 1;
        for target in self.targets.iter_mut().filter(|target| target.matched >= step) {
            target.matched = step + usize::from(matches(target, step));
        }
    }
}

impl Target {
    /// Whether the value that begins below this many containers is the one that it looks for.
    fn is_at(&self, depth: usize) -> bool {
        self.matched == depth && self.pointer.tokens().len() == depth
    }
}

enum TextEnd {
    Open { escaped: bool },
    Closed,
}

/// The bytes up to the next quote or backslash, and the rest. `escaped` if the byte before was a backslash.
fn text_piece(bytes: &[u8], escaped: bool) -> (&[u8], &[u8], TextEnd) {
    if escaped {
        let (one, rest) = bytes.split_at(1);
        return (one, rest, TextEnd::Open { escaped: false });
    }
    match memchr2(b'"', b'\\', bytes) {
        None => (bytes, &[], TextEnd::Open { escaped: false }),
        Some(at) if bytes[at] == b'"' => (&bytes[..at], &bytes[at + 1..], TextEnd::Closed),
        Some(at) => (&bytes[..=at], &bytes[at + 1..], TextEnd::Open { escaped: true }),
    }
}

/// The text without its escapes. `None` if an escape is not one.
fn decoded(written: &[u8]) -> Option<Vec<u8>> {
    let (mut rest, mut text) = (written, Vec::with_capacity(written.len()));
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            text.push(byte);
            continue;
        }
        let (&escape, after) = rest.split_first()?;
        rest = after;
        let letter = match escape {
            b'"' | b'\\' | b'/' => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => code_point(&mut rest)?,
            _ => return None,
        };
        text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Some(text)
}

/// The letter that four hexadecimal digits stand for, or twice four if it is outside the basic plane.
fn code_point(rest: &mut &[u8]) -> Option<char> {
    let first = code_unit(rest)?;
    if !(0xd800..0xdc00).contains(&first) {
        return char::from_u32(first.into());
    }
    *rest = rest.strip_prefix(b"\\u")?;
    char::decode_utf16([first, code_unit(rest)?]).next()?.ok()
}

fn code_unit(rest: &mut &[u8]) -> Option<u16> {
    let (digits, after) = rest.split_at_checked(4)?;
    *rest = after;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};
    use spile_testkit::fuzz::{fuzz, pieces};

    use super::*;

    const USAGE: &str = "/usage/total_tokens";

    fn scanner(pointer: &str) -> JsonScanner {
        JsonScanner::new([(0, pointer.parse().unwrap())])
    }

    /// The number at a pointer in a text that arrives in these pieces.
    fn found<'t>(pointer: &str, pieces: impl IntoIterator<Item = &'t [u8]>) -> Option<Amount> {
        let mut scanner = scanner(pointer);
        pieces.into_iter().for_each(|piece| scanner.push(piece));
        scanner.found()[0]
    }

    /// The expected number, found by a parser that has the whole text.
    fn expected(pointer: &str, text: &[u8]) -> Result<Option<Amount>, serde_json::Error> {
        let value: Value = serde_json::from_slice(text)?;
        Ok(value.pointer(pointer).and_then(|value| parse_amount(&value.as_number()?.to_string())))
    }

    #[test]
    fn a_number_is_found_wherever_it_is_and_whatever_is_around_it() {
        for (text, tokens) in [
            (r#"{"usage":{"total_tokens":7}}"#, Some("7")),
            (
                r#" { "id" : "\"}{\\" , "usage" : { "x" : [ 1 , {} ] , "total_tokens" : 7 } , "z":[[]]} "#,
                Some("7"),
            ),
            (r#"{"usage":{"total_tokens":7},"usage":null}"#, None),
            (r#"{"usage":{"total_tokens":7,"total_tokens":8}}"#, Some("8")),
            (r#"{"usage":{"total_tokens":7},"usage":{}}"#, None),
            (r#"{"\u0075s\u0061ge":{"total\u005ftokens":7}}"#, Some("7")),
            (r#"{"a":{"usage":{"total_tokens":7}}}"#, None),
            (r#"[{"usage":{"total_tokens":7}}]"#, None),
            (r#"{"usage":[{"total_tokens":7}]}"#, None),
            (r#"{"usage":{"total_tokens":"7"}}"#, None),
            (r#"{"usage":{"total_tokens":-7}}"#, None),
            (r#"{"usage":{"total_tokens":7.5}}"#, Some("7.5")),
            (r#"{"usage":{"total_tokens":7e2}}"#, Some("700")),
            (r#"{"usage":{"total_tokens":700.0}}"#, Some("700")),
            (r#"{"usage":{"total_tokens":0.0000001}}"#, None),
            (r#"{"usage":{"total_tokens":null}}"#, None),
            (r#"{"usage":{"total_tokens":{"total_tokens":7}}}"#, None),
            (r#"{"usage":{"total_tokens":99999999999999999999}}"#, Some("9223372036854.775807")),
            (r#"{"usage":{"total_tokens":7"#, None),
            ("{\"usage\":{\"total_tokens\":7}}\n{\"usage\":{\"total_tokens\":9}}\n{}\n", Some("9")),
            ("<html>usage: 7</html>", None),
            ("", None),
        ] {
            let tokens = tokens.map(|text: &str| text.parse().expect("an amount"));
            assert_eq!(found(USAGE, [text.as_bytes()]), tokens, "{text}");
            assert_eq!(found(USAGE, text.as_bytes().chunks(1)), tokens, "byte by byte: {text}");
        }
        assert_eq!(found("/0/b/1", [&b"[{\"b\":[5,[6],7]},{\"b\":[1,2]}]"[..]]), None);
        assert_eq!(found("/0/b/2", [&b"[{\"b\":[5,[6],7]},{\"b\":[1,2]}]"[..]]), Some(Amount::from(7)));
        assert_eq!(found("/a~1b", [&b"{\"a/b\":3}"[..]]), Some(Amount::from(3)));
        assert_eq!(found("/\u{1f600}", [&br#"{"\ud83d\ude00":4}"#[..]]), Some(Amount::from(4)));
    }

    #[test]
    fn several_numbers_are_found_in_one_pass() {
        let places = [(0, "/a/in"), (0, "/b/in"), (1, "/a/out"), (1, "/a")];
        let mut scanner = JsonScanner::new(places.map(|(number, text)| (number, text.parse().unwrap())));
        scanner.push(br#"{"a":{"in":1,"out":2},"b":{"in":3}}"#);
        assert_eq!(scanner.found()[..2], [3, 2].map(|tokens| Some(Amount::from_tokens(tokens))));
        scanner.push(br#"{"a":{"in":4}} {"a":9}"#);
        let last = [4, 9].map(|tokens| Some(Amount::from_tokens(tokens)));
        assert_eq!(scanner.found()[..2], last, "the last that comes counts");
    }

    #[test]
    fn a_body_of_any_size_is_read_with_as_much_memory_as_a_pointer_needs() {
        let mut scanner = scanner(USAGE);
        scanner.push(b"{\"choices\":[");
        for _ in 0..1_000 {
            scanner.push(&b"[".repeat(1_000));
            scanner.push(b"\"");
            scanner.push(&b"x\\\\".repeat(1_000));
            scanner.push(b"\"");
        }
        scanner.push(&b"]".repeat(1_000_000));
        scanner.push(b"],\"");
        (0..1_000).for_each(|_| scanner.push(&b"name".repeat(250)));
        scanner.push(b"\":1,\"usage\":{\"total_tokens\":42}");
        assert_eq!(scanner.found()[0], Some(Amount::from(42)));
        assert!(scanner.name.capacity() < 256 && scanner.open.capacity() < 32);
    }

    #[test]
    fn a_document_that_breaks_off_is_no_part_of_the_next_one() {
        let mut scanner = scanner(USAGE);
        scanner.push(br#"{"usage":{"total_tokens":5},"text":"\"#);
        scanner.end_document();
        assert_eq!(scanner.found()[0], Some(Amount::from(5)));
        scanner.push(br#"{"usage":{"total_tokens":6}}"#);
        assert_eq!(scanner.found()[0], Some(Amount::from(6)));
    }

    #[test]
    fn fuzzed_bodies_are_read_as_a_parser_reads_them_whole_however_they_are_cut() {
        let words = [
            "\"usage\":{",
            "\"total_tokens\":",
            "\\u0075",
            "\\\"",
            "[[",
            "]]",
            "{}",
            "18446744073709551616",
            "null",
        ];
        fuzz("response-json", &words, |bytes| {
            let whole = found(USAGE, [bytes]);
            assert_eq!(found(USAGE, pieces(bytes)), whole, "in pieces");
            let expected = expected(USAGE, bytes);
            if let Ok(expected) = expected {
                assert_eq!(whole, expected);
            }
            let containers = bytes.iter().filter(|byte| b"{[".contains(byte)).count();
            (expected.is_ok(), whole.is_some(), containers.min(16))
        });
    }

    fn name() -> impl Strategy<Value = String> {
        prop_oneof![Just("a".to_owned()), Just("b".to_owned()), Just("0".to_owned()), ".{0,3}"]
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::vec((name(), inner), 0..5)
                    .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    fn pointer() -> impl Strategy<Value = String> {
        let step = prop_oneof![Just("a"), Just("b"), Just("0"), Just("1"), Just("")];
        proptest::collection::vec(step, 1..5).prop_map(|steps| format!("/{}", steps.join("/")))
    }

    proptest! {
        #[test]
        fn every_pointer_into_every_document_finds_what_a_parser_finds(
            document in document(), pointer in pointer(), pretty in any::<bool>(), piece in 1_usize..20,
        ) {
            let text = if pretty { serde_json::to_vec_pretty(&document) } else { serde_json::to_vec(&document) }.unwrap();
            let number = document.pointer(&pointer).and_then(Value::as_number);
            let expected = number.and_then(|number| parse_amount(&number.to_string()));
            prop_assert_eq!(found(&pointer, text.chunks(piece)), expected);
        }
    }
}
