//! Text as TOML has it. Rust's own `{:?}` writes escapes that TOML does not know.

use std::fmt::{self, Display, Write};

/// A text in quotation marks.
pub(super) struct Quoted<T>(pub(super) T);

/// A list of such texts.
pub(super) struct QuotedList<I>(pub(super) I);

impl<T: Display> Display for Quoted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for letter in self.0.to_string().chars() {
            match letter {
                '"' | '\\' => write!(f, "\\{letter}")?,
                // Control characters, all below U+00A0. TOML takes some of them as they are, and this form of all.
                _ if letter.is_control() => write!(f, "\\u{:04X}", u32::from(letter))?,
                _ => f.write_char(letter)?,
            }
        }
        f.write_char('"')
    }
}

impl<I: IntoIterator<Item: Display> + Clone> Display for QuotedList<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (index, text) in self.0.clone().into_iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { ", " }, Quoted(text))?;
        }
        f.write_char(']')
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_text_reads_back_as_it_was(texts in prop::collection::vec(any::<String>(), 0..4)) {
            let document = format!("{} = {}", Quoted("a key \n'\"\u{200d}"), QuotedList(&texts));
            let read: toml::Table = document.parse().expect("it is TOML");
            let values = read["a key \n'\"\u{200d}"].as_array().expect("a list");
            prop_assert_eq!(values.iter().map(|text| text.as_str().unwrap_or_default()).collect::<Vec<_>>(), texts);
        }
    }

    #[test]
    fn every_character_reads_back_as_it_was() {
        let all: String = ('\0'..=char::MAX).collect();
        let read: toml::Table = format!("x = {}", Quoted(&all)).parse().expect("it is TOML");
        assert!(read["x"].as_str() == Some(&all));
    }
}
