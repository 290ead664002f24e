//! Escapes text that clients control, so that a record stays on one line and cannot send control sequences to a terminal.

use std::io::Write;

/// Writes text between quotes as nginx does: quotes, backslashes and everything outside printable ASCII as `\xHH`.
pub(super) fn write_quoted(text: &[u8], to: &mut Vec<u8>) {
    to.push(b'"');
    write_escaped(text, to, |byte| byte == b' ');
    to.push(b'"');
}

/// Writes text as one word, with spaces escaped. `-` if it is empty.
pub(super) fn write_word(text: &[u8], to: &mut Vec<u8>) {
    if text.is_empty() {
        to.push(b'-');
    }
    write_escaped(text, to, |_| false);
}

fn write_escaped(text: &[u8], to: &mut Vec<u8>, may_stay: impl Fn(u8) -> bool) {
    for &byte in text {
        if (byte.is_ascii_graphic() && byte != b'"' && byte != b'\\') || may_stay(byte) {
            to.push(byte);
        } else {
            // Writing to memory does not fail.
            let _written = write!(to, "\\x{byte:02X}");
        }
    }
}

/// Writes a JSON string. Bytes that are not UTF-8 become the text `\xHH`.
pub(super) fn write_json(text: &[u8], to: &mut Vec<u8>) {
    to.push(b'"');
    for chunk in text.utf8_chunks() {
        chunk.valid().chars().for_each(|letter| write_json_char(letter, to));
        for byte in chunk.invalid() {
            let _written = write!(to, "\\\\x{byte:02X}");
        }
    }
    to.push(b'"');
}

fn write_json_char(letter: char, to: &mut Vec<u8>) {
    match letter {
        '"' => to.extend_from_slice(b"\\\""),
        '\\' => to.extend_from_slice(b"\\\\"),
        '\n' => to.extend_from_slice(b"\\n"),
        '\r' => to.extend_from_slice(b"\\r"),
        '\t' => to.extend_from_slice(b"\\t"),
        letter if letter.is_control() || is_format(letter) => {
            let _written = write!(to, "\\u{:04x}", u32::from(letter));
        }
        letter => to.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Line separators, and characters that change the direction of text: they make a line look like another one.
const fn is_format(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inputs of an attacker: line breaks, quotes, terminal escapes, wrong UTF-8 and text that runs backwards.
    const EVIL: [&[u8]; 7] = [
        b"a\nb\r\nc",
        b"\" 200 \"",
        b"\x1b[2J\x1b]0;owned\x07",
        b"\xff\xfe\xc3(",
        "\u{202e}txt.exe\u{2066}".as_bytes(),
        "\u{85}\u{9b}31m\u{7f}\u{2028}".as_bytes(),
        b"back\\slash\\x0a\0",
    ];

    #[test]
    fn what_is_quoted_is_printable_ascii_without_quotes_inside() {
        for evil in EVIL {
            let mut line = Vec::new();
            write_quoted(evil, &mut line);
            let inner = &line[1..line.len() - 1];
            assert!(
                inner.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'"'),
                "{}",
                line.escape_ascii()
            );
            line.clear();
            write_word(evil, &mut line);
            assert!(
                line.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'"'),
                "{}",
                line.escape_ascii()
            );
        }
    }

    #[test]
    fn what_is_json_reads_back_and_holds_nothing_that_steers_a_terminal() {
        for evil in EVIL {
            let mut line = Vec::new();
            write_json(evil, &mut line);
            let text = std::str::from_utf8(&line).unwrap();
            assert!(!text.chars().any(|letter| letter.is_control() || is_format(letter)), "{text:?}");
            let read: String = serde_json::from_str(text).unwrap();
            if let Ok(sent) = std::str::from_utf8(evil) {
                assert_eq!(read, sent);
            }
        }
        let mut line = Vec::new();
        write_json(b"a\xffb", &mut line);
        assert_eq!(line, br#""a\\xFFb""#);
    }
}
