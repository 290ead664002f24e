//! Commands that a person types into telnet: words on a line, with quotes around what holds a space.

/// The words of the line. `None` if a quote is not closed, or if no space follows a closing quote.
pub(crate) fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let (word, after) = word(rest)?;
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Some(words)
}

/// The first word, without its quotes, and what follows it.
fn word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    while let Some((&byte, after)) = rest.split_first() {
        if byte.is_ascii_whitespace() {
            break;
        }
        rest = if byte == b'"' || byte == b'\'' {
            let after = quoted(byte, after, &mut word)?;
            let ends_the_word = after.first().is_none_or(u8::is_ascii_whitespace);
            return ends_the_word.then_some((word, after));
        } else {
            word.push(byte);
            after
        };
    }
    Some((word, rest))
}

/// Reads up to the closing quote, and returns what follows it.
fn quoted<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = match byte {
            _ if byte == quote => return Some(after),
            b'\\' if quote == b'"' => escaped(after, word)?,
            b'\\' if after.first() == Some(&b'\'') => {
                word.push(b'\'');
                &after[1..]
            }
            _ => {
                word.push(byte);
                after
            }
        };
    }
}

/// Reads what follows a backslash between double quotes.
fn escaped<'a>(rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut byte = [0];
    if let [b'x', high, low, after @ ..] = rest
        && hex::decode_to_slice([*high, *low], &mut byte).is_ok()
    {
        word.extend(byte);
        return Some(after);
    }
    let (&byte, after) = rest.split_first()?;
    word.push(match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    });
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_would() {
        let table: [(&str, &[&str]); 7] = [
            ("", &[]),
            ("  PING  ", &["PING"]),
            ("a  b\tc", &["a", "b", "c"]),
            (r#"a "b c" 'd e'"#, &["a", "b c", "d e"]),
            (r#"key"quoted part""#, &["keyquoted part"]),
            (r#""\x41\n\"" '\'x\n'"#, &["A\n\"", "'x\\n"]),
            (r#""" ''"#, &["", ""]),
        ];
        for (line, words) in table {
            let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            assert_eq!(split(line.as_bytes()), Some(words), "{line}");
        }
        for line in [r#""open"#, "'open", r#""a"b"#, r#""\"#] {
            assert_eq!(split(line.as_bytes()), None, "{line}");
        }
    }
}
