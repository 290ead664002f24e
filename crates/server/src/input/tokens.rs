//! Numbers of tokens in bodies, files and answers: read from their text, and written exactly.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use spile_core::Amount;

/// A number of tokens in an entry of the file or of the admin API, or in an answer.
///
/// Files and entries are held as JSON values, whose fractions are doubles. All amounts within bounds have at most 15 digits, which
/// survive the round trip through a double.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Tokens(pub(crate) Amount);

/// A number of tokens in a body, read from its text at any length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TypedTokens(pub(crate) Amount);

impl Tokens {
    /// Reads the text of a query's parameter.
    pub(crate) fn from_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Self>, D::Error> {
        Option::<Cow<'de, str>>::deserialize(from)?.map(|text| read(&text)).transpose()
    }
}

impl From<Amount> for Tokens {
    fn from(amount: Amount) -> Self {
        Self(amount)
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Tokens {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(amount) = *self;
        if amount.micro() % Amount::MICRO_PER_TOKEN == 0 {
            to.serialize_i64(amount.micro() / Amount::MICRO_PER_TOKEN)
        } else {
            RawValue::from_string(amount.to_string()).expect("a decimal number is JSON").serialize(to)
        }
    }
}

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TokensVisitor;

        impl Visitor<'_> for TokensVisitor {
            type Value = Tokens;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Tokens, E> {
                read(&number.to_string())
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Tokens, E> {
                read(&number.to_string())
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Tokens, E> {
                read(&format!("{number:?}"))
            }
        }

        from.deserialize_any(TokensVisitor)
    }
}

impl Serialize for TypedTokens {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Tokens(self.0).serialize(to)
    }
}

impl<'de> Deserialize<'de> for TypedTokens {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(from)?.get();
        let other = match text.as_bytes().first() {
            Some(b'"') => Unexpected::Other("text"),
            Some(b'[') => Unexpected::Seq,
            Some(b'{') => Unexpected::Map,
            Some(b't' | b'f') => Unexpected::Bool(text == "true"),
            Some(b'n') => Unexpected::Unit,
            _ => return read(text).map(|Tokens(amount)| Self(amount)),
        };
        Err(D::Error::invalid_type(other, &EXPECTED))
    }
}

const EXPECTED: &str = "a number of tokens";

/// The most bytes of a number that an error shows.
const MAX_SHOWN_BYTES: usize = 32;

fn read<E: Error>(text: &str) -> Result<Tokens, E> {
    let shown = text.get(..MAX_SHOWN_BYTES).unwrap_or(text);
    text.parse().map(Tokens).map_err(|why| E::custom(format_args!("{shown} is {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_exactly_and_whole_ones_without_a_point() {
        for (micro, text) in
            [(0, "0"), (5_000_000, "5"), (-1, "-0.000001"), (999_999_999_999_999, "999999999.999999")]
        {
            let tokens = Tokens(Amount::from_micro(micro));
            assert_eq!(serde_json::to_string(&tokens).unwrap(), text);
            if micro >= 0 {
                let value: serde_json::Value = serde_json::from_str(text).unwrap();
                assert_eq!(serde_json::from_value::<Tokens>(value).unwrap(), tokens);
                assert_eq!(serde_json::from_str::<TypedTokens>(text).unwrap().0, tokens.0);
            }
        }
    }

    #[test]
    fn a_seventh_decimal_is_refused_however_little_it_is_worth() {
        for text in ["0.1234567", "1.00000000000000000001", "1e-7"] {
            assert!(
                serde_json::from_str::<TypedTokens>(text).unwrap_err().to_string().contains("six decimals"),
                "{text}"
            );
        }
        for text in ["\"5\"", "true", "null", "[1]", "{}", "-1", "1e300"] {
            assert!(serde_json::from_str::<TypedTokens>(text).is_err(), "{text}");
            assert!(serde_json::from_str::<Tokens>(text).is_err(), "{text}");
        }
    }
}
