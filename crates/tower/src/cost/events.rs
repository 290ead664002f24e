//! Reads the data of server-sent events as they come in pieces, and hands it on without holding it.

use memchr::memchr2;

use super::json::JsonScanner;

/// The field that carries the data of an event.
const DATA: &[u8] = b"data:";

/// Reads lines of server-sent events. The data of each event is one document for the scanner.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    line: Line,
    /// Whether the last byte was a carriage return: a line feed after it ends no second line.
    after_return: bool,
    /// Whether the event has had a line of data.
    has_data: bool,
}

/// Where in a line the next byte is.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// So many bytes of the line are the beginning of `data:`.
    Name(usize),
    /// The first byte after `data:`, where one space is not part of the data.
    Value,
    Data,
    Other,
}

impl Default for Line {
    fn default() -> Self {
        Self::Name(0)
    }
}

impl EventReader {
    /// Reads the next piece.
    pub(super) fn push(&mut self, mut bytes: &[u8], data: &mut JsonScanner) {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_return)
                && let Some(rest) = bytes.strip_prefix(b"\n")
            {
                bytes = rest;
                continue;
            }
            let end = memchr2(b'\r', b'\n', bytes);
            self.read(&bytes[..end.unwrap_or(bytes.len())], data);
            let Some(end) = end else { return };
            self.end_line(data);
            self.after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
        }
    }

    /// Reads a part of a line.
    fn read(&mut self, mut part: &[u8], data: &mut JsonScanner) {
        while let (Line::Name(matched), Some((byte, rest))) = (self.line, part.split_first()) {
            self.line = match matched + 1 {
                _ if *byte != DATA[matched] => Line::Other,
                all if all == DATA.len() => Line::Value,
                more => Line::Name(more),
            };
            part = rest;
        }
        if let (Line::Value, false) = (self.line, part.is_empty()) {
            part = part.strip_prefix(b" ").unwrap_or(part);
            self.line = Line::Data;
            if std::mem::replace(&mut self.has_data, true) {
                data.push(b"\n");
            }
        }
        if let Line::Data = self.line {
            data.push(part);
        }
    }

    /// An empty line ends the event.
    fn end_line(&mut self, data: &mut JsonScanner) {
        if let Line::Name(0) = std::mem::take(&mut self.line) {
            self.has_data = false;
            data.end_document();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;
    use spile_core::Amount;
    use spile_testkit::fuzz::{fuzz, pieces};

    use super::*;

    const POINTER: &str = "/usage/total_tokens";

    fn found<'t>(pieces: impl IntoIterator<Item = &'t [u8]>) -> Option<Amount> {
        let mut scanner = JsonScanner::new([(0, POINTER.parse().unwrap())]);
        let mut events = EventReader::default();
        pieces.into_iter().for_each(|piece| events.push(piece, &mut scanner));
        scanner.found()[0]
    }

    /// The expected amount, found by reading the whole text line by line.
    fn expected(text: &str) -> Option<Amount> {
        let lines = text.replace("\r\n", "\n").replace('\r', "\n");
        let mut last = None;
        for event in lines.split("\n\n") {
            let data: Vec<&str> = event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
            let data: Vec<&str> = data.iter().map(|data| data.strip_prefix(' ').unwrap_or(data)).collect();
            let value: Value = serde_json::from_str(&data.join("\n")).unwrap_or_default();
            last = value.pointer(POINTER).and_then(Value::as_u64).map(Amount::from).or(last);
        }
        last
    }

    #[test]
    fn the_last_event_that_has_the_number_counts() {
        for (text, tokens) in [
            ("data: {\"usage\":{\"total_tokens\":5}}\n\n", Some(5)),
            ("data:{\"usage\":{\"total_tokens\":5}}\r\rdata: {\"usage\":null}\r\rdata: [DONE]\r\r", Some(5)),
            ("event: a\r\ndata: {\"usage\":\r\ndata: {\"total_tokens\":\r\ndata:6}}\r\n\r\n", Some(6)),
            ("data: {\"usage\":{\"total_tokens\":5}}\n\ndata: {\"usage\":{\"total_tokens\":7}}", Some(7)),
            ("data: {\"usage\":{\n\ndata: \"total_tokens\":5}}\n\n", None),
            (": data: {\"usage\":{\"total_tokens\":5}}\n\n", None),
            ("dat: {\"usage\":{\"total_tokens\":5}}\n\n", None),
            ("data: \"\n\ndata: {\"usage\":{\"total_tokens\":5}}\n\n", Some(5)),
            ("", None),
        ] {
            let tokens = tokens.map(Amount::from_tokens);
            assert_eq!(found([text.as_bytes()]), tokens, "{text}");
            assert_eq!(found(text.as_bytes().chunks(1)), tokens, "byte by byte: {text}");
        }
    }

    #[test]
    fn fuzzed_events_are_read_the_same_however_they_are_cut() {
        let words = [
            "data:",
            "data: ",
            "\r\n",
            "\n\n",
            "\r\r",
            "{\"usage\":{\"total_tokens\":1}}",
            "[DONE]",
            "event: x",
        ];
        fuzz("response-events", &words, |bytes| {
            let whole = found([bytes]);
            assert_eq!(found(pieces(bytes)), whole);
            (whole.is_some(), memchr::memchr_iter(b'\n', bytes).count().min(8))
        });
    }

    proptest! {
        #[test]
        fn every_stream_of_events_is_read_as_by_lines(
            events in proptest::collection::vec(
                (0_u64..100, proptest::sample::select(vec!["usage", "other"]), proptest::option::of("[a-z]{0,5}")), 0..8,
            ),
            end in proptest::sample::select(vec!["\n", "\r", "\r\n"]),
            piece in 1_usize..20,
        ) {
            let event = |(tokens, member, name): &(u64, &str, Option<String>)| {
                let name = name.as_ref().map_or(String::new(), |name| format!("event: {name}{end}"));
                format!("{name}data: {{\"{member}\":{end}data:  {{\"total_tokens\":{tokens}}}}}{end}{end}")
            };
            let text: String = events.iter().map(event).collect();
            prop_assert_eq!(found(text.as_bytes().chunks(piece)), expected(&text));
        }
    }
}
