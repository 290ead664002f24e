//! Which texts may name somebody.
//!
//! A name that two people read alike but two buckets tell apart, or that a log cannot show, is refused: it is
//! how limits are dodged.

use spile_core::{Key, KeyError};

/// The key that a caller writes out, unless it is empty, too long or holds a character that cannot be seen.
pub fn identity(text: &str) -> Result<Key<'_>, IdentityError> {
    let key = Key::new(text)?;
    match text.chars().enumerate().find(|&(_, c)| !is_seen(c)) {
        None => Ok(key),
        Some((at, c)) => Err(IdentityError::Invisible { at, code: u32::from(c) }),
    }
}

/// Why a text is not a valid identity.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// It is empty or too long.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// It holds a character that cannot be seen.
    #[error("character {at} is U+{code:04X}; control, format and other invisible characters are refused")]
    Invisible {
        /// Which character of the text it is, counted from zero.
        at: usize,
        /// Its code point.
        code: u32,
    },
}

/// Whether a character shows as itself. The joiners U+200C and U+200D do: scripts and emoji are spelt with them.
fn is_seen(c: char) -> bool {
    match c {
        ' '..='~' | '\u{200C}' | '\u{200D}' => true,
        _ => !(c.is_control() || is_noncharacter(c) || is_format(c) || is_blank_filler(c) || c == '\u{FFFD}'),
    }
}

fn is_noncharacter(c: char) -> bool {
    matches!(c, '\u{FDD0}'..='\u{FDEF}') || u32::from(c) & 0xFFFE == 0xFFFE
}

/// Unicode's format characters (category Cf), and the two separators that break lines.
fn is_format(c: char) -> bool {
    matches!(c,
        '\u{AD}' | '\u{600}'..='\u{605}' | '\u{61C}' | '\u{6DD}' | '\u{70F}' | '\u{890}'..='\u{891}' | '\u{8E2}'
        | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}'
        | '\u{FFF9}'..='\u{FFFB}' | '\u{110BD}' | '\u{110CD}' | '\u{13430}'..='\u{1343F}'
        | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}

/// Letters and marks that are drawn as nothing.
fn is_blank_filler(c: char) -> bool {
    matches!(c, '\u{34F}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}' | '\u{3164}' | '\u{FFA0}')
}

#[cfg(test)]
mod tests {
    use super::identity;

    #[test]
    fn names_of_any_script_are_keys() {
        for name in ["user:123", "Zoë", "山田", "نام\u{200C}ها", "👩\u{200D}🚀", "with space", "2001:db8::1"]
        {
            assert!(identity(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_name_that_hides_a_character_is_no_key() {
        for hidden in [
            '\0',
            '\n',
            '\u{7F}',
            '\u{85}',
            '\u{200B}',
            '\u{202E}',
            '\u{2066}',
            '\u{FEFF}',
            '\u{FFFD}',
            '\u{FFFE}',
            '\u{FDD0}',
            '\u{10FFFF}',
            '\u{E0041}',
            '\u{3164}',
            '\u{2028}',
        ] {
            let why = identity(&format!("user{hidden}"))
                .expect_err("an invisible character is refused")
                .to_string();
            assert!(why.contains(&format!("U+{:04X}", u32::from(hidden))), "{why}");
        }
    }
}
