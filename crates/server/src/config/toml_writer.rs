//! Writes serde types as TOML: keys in the order of the fields, and each value on one line. Members that are `None` are
//! left out.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::source::in_file;

/// Writes the members of a struct, one `key = value` per line.
pub(super) fn members(value: &impl Serialize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let value = serde_json::to_value(value).map_err(|_| fmt::Error)?;
    pairs(&value).try_for_each(|pair| writeln!(f, "{pair}"))
}

fn pairs(table: &Value) -> impl Iterator<Item = String> {
    let members = table.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    members.map(|(name, value)| {
        let name = in_file(name);
        let is_bare = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        format!("{} = {}", if is_bare { name.to_owned() } else { quoted(name) }, inline(value))
    })
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let texts: Vec<String> = items.iter().map(inline).collect();
            if items.iter().any(Value::is_object) {
                format!("[\n  {},\n]", texts.join(",\n  "))
            } else {
                format!("[{}]", texts.join(", "))
            }
        }
        Value::Object(_) => format!("{{ {} }}", pairs(value).collect::<Vec<_>>().join(", ")),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Writes a text in quotation marks. Rust's own `{:?}` writes escapes that TOML does not know.
pub(super) fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|letter| match letter {
        '"' | '\\' => format!("\\{letter}"),
        // Control characters, all below U+00A0. TOML takes some of them as they are, and this form of all.
        _ if letter.is_control() => format!("\\u{:04X}", u32::from(letter)),
        _ => letter.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    struct Example {
        texts: Vec<String>,
        by_name: BTreeMap<String, f64>,
        tables: Vec<BTreeMap<String, bool>>,
        nothing: Option<u8>,
    }

    impl fmt::Display for Example {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            members(self, f)
        }
    }

    proptest! {
        #[test]
        fn every_text_and_name_reads_back_as_it_was(
            texts in prop::collection::vec(any::<String>(), 0..4),
            name in any::<String>(),
            number in -1e9..1e9,
        ) {
            let example = Example {
                texts: texts.clone(),
                by_name: [(name.clone(), number)].into(),
                tables: vec![[(name.clone(), true)].into(); 2],
                nothing: None,
            };
            let read: toml::Table = example.to_string().parse().expect("it is TOML");
            let read_texts = read["texts"].as_array().expect("a list");
            prop_assert_eq!(read_texts.iter().map(|text| text.as_str().unwrap_or_default()).collect::<Vec<_>>(), texts);
            prop_assert_eq!(read["by_name"][&name].as_float(), Some(number));
            prop_assert_eq!(read["tables"][1][&name].as_bool(), Some(true));
            prop_assert_eq!(read.len(), 3);
        }
    }

    #[test]
    fn every_character_reads_back_as_it_was() {
        let all: String = ('\0'..=char::MAX).collect();
        let read: toml::Table = format!("x = {}", quoted(&all)).parse().expect("it is TOML");
        assert!(read["x"].as_str() == Some(&all));
    }
}
