//! Values as people write them, for the fields of tables: `#[serde(with = "Text")]`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use http::HeaderName;
use humantime::format_duration;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use spile_core::FailurePolicy;
use spile_policy::HostPattern;
use utoipa::ToSchema;

use super::source::{Location, wrong};
use crate::input::typed::Object;

/// A value that is written as text.
pub(super) trait Written: Sized {
    /// The expected form, for errors.
    const RIGHT: &'static str;

    /// Parses it, or returns the fault.
    fn read(text: &str) -> Result<Self, String>;
}

impl Written for HeaderName {
    const RIGHT: &'static str = "for instance `x-forwarded-user`";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("`{text}` is not a header name"))
    }
}

impl Written for HostPattern {
    const RIGHT: &'static str = "for instance `api.example.com` or `*.example.com`";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|why: <Self as std::str::FromStr>::Err| why.to_string())
    }
}

impl Written for FailurePolicy {
    const RIGHT: &'static str = "`allow`, `deny` or `local`";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|why: <Self as std::str::FromStr>::Err| why.to_string())
    }
}

/// A text that is parsed into another type.
pub(super) struct Text;

impl Text {
    pub(super) fn deserialize<'de, T: Written, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        T::read(&String::deserialize(from)?).map_err(|why| wrong(why, T::RIGHT))
    }

    pub(super) fn deserialize_some<'de, T: Written, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        Self::deserialize(from).map(Some)
    }

    pub(super) fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }
}

/// A list of texts that are parsed. Each fault is reported.
pub(super) struct Texts;

impl Texts {
    pub(super) fn deserialize<'de, T: Written, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
        #[derive(Deserialize)]
        #[serde(transparent, bound = "T: Written")]
        struct Item<T>(#[serde(deserialize_with = "Text::deserialize")] T);
        Ok(Vec::<Item<T>>::deserialize(from)?.into_iter().map(|Item(value)| value).collect())
    }

    pub(super) fn serialize<T: Display, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(values.iter().map(ToString::to_string))
    }
}

/// A span of time from `LEAST` to `MOST` milliseconds: `50ms`, `1s`, `2m`.
pub(super) struct Span<const LEAST: u64, const MOST: u64>;

/// The time that a store, or a request to it, may take.
pub(super) type StoreSpan = Span<1, 60_000>;
/// How long tokens may be kept that were taken in advance: the bounds of `spile_core::Limit::LEASES`.
pub(super) type LeaseSpan = Span<1, 10_000>;
/// How long a permit may be held without being renewed: the bounds of `spile_core::Limit::HOLDS`.
pub(super) type HoldSpan = Span<1_000, 86_400_000>;
/// The time that a whole request may take, or that a client may be asked to wait.
pub(super) type RequestSpan = Span<1, 3_600_000>;

impl<const LEAST: u64, const MOST: u64> Span<LEAST, MOST> {
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Self::read(&String::deserialize(from)?)
    }

    fn read<E: Error>(text: &str) -> Result<Duration, E> {
        let (least, most) = (Duration::from_millis(LEAST), Duration::from_millis(MOST));
        let Ok(span) = humantime::parse_duration(text) else {
            let message = format!("`{text}` is not a span of time");
            return Err(wrong(message, "a number and a unit, as in `50ms` or `1s`"));
        };
        if !(least..=most).contains(&span) {
            let bounds = format!("{} to {}", format_duration(least), format_duration(most));
            return Err(wrong(format_args!("`{text}` is out of bounds"), bounds));
        }
        Ok(span)
    }

    pub(super) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_duration(*span))
    }

    pub(super) fn deserialize_some<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Option::<String>::deserialize(from)?.map(|text| Self::read(&text)).transpose()
    }

    #[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
    pub(super) fn serialize_some<S: Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        span.map(|span| format_duration(span).to_string()).serialize(to)
    }
}

/// A span of time of up to `MOST` milliseconds. Zero can be written without a unit.
pub(super) struct SpanOrZero<const MOST: u64>;

#[derive(Deserialize)]
#[serde(untagged, expecting = "invalid type, expected a span of time, as in `100ms`, or 0")]
enum WrittenSpan {
    Number(u64),
    Text(String),
}

impl<const MOST: u64> SpanOrZero<MOST> {
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        match WrittenSpan::deserialize(from)? {
            WrittenSpan::Number(0) => Ok(Duration::ZERO),
            WrittenSpan::Number(number) => {
                Err(wrong(format_args!("{number} has no unit"), format_args!("`{number}ms`, or 0")))
            }
            WrittenSpan::Text(text) if text == "0" => Ok(Duration::ZERO),
            WrittenSpan::Text(text) => Span::<0, MOST>::read(&text),
        }
    }

    pub(super) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        Span::<0, MOST>::serialize(span, to)
    }
}

/// A whole number within bounds.
pub(super) fn within<'de, const LEAST: u64, const MOST: u64, T: TryFrom<u64>, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    let number = u64::deserialize(from)?;
    let inside = Some(number).filter(|number| (LEAST..=MOST).contains(number));
    inside.and_then(|number| T::try_from(number).ok()).ok_or_else(|| out_of_bounds(number, LEAST, MOST))
}

/// A share of a whole.
pub(super) fn share<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(from)?;
    if (0.001..=1.0).contains(&number) { Ok(number) } else { Err(out_of_bounds(number, 0.001, 1)) }
}

/// A share of a whole, which may be zero.
pub(super) fn share_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(from)?;
    if (0.0..=1.0).contains(&number) { Ok(number) } else { Err(out_of_bounds(number, 0, 1)) }
}

pub(super) fn out_of_bounds<E: Error>(number: impl Display, least: impl Display, most: impl Display) -> E {
    wrong(format_args!("{number} is out of bounds"), format_args!("{least} to {most}"))
}

/// A number of bytes between these, with a unit or without: `1500`, `64KiB`, `10MB`.
pub(super) struct Size<const LEAST: u64, const MOST: u64>;

#[derive(Deserialize)]
#[serde(untagged, expecting = "invalid type, expected a size, as in `64MiB`")]
enum WrittenSize {
    Bytes(u64),
    Text(String),
}

impl<const LEAST: u64, const MOST: u64> Size<LEAST, MOST> {
    pub(super) fn deserialize<'de, T: TryFrom<u64>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        let (text, size) = match WrittenSize::deserialize(from)? {
            WrittenSize::Bytes(size) => (size.to_string(), Some(size)),
            WrittenSize::Text(text) => (text.clone(), bytes(&text)),
        };
        let Some(size) = size else {
            return Err(wrong(format_args!("`{text}` is not a size"), "a number and a unit, as in `64MiB`"));
        };
        let inside = Some(size).filter(|size| (LEAST..=MOST).contains(size));
        inside
            .and_then(|size| T::try_from(size).ok())
            .ok_or_else(|| out_of_bounds(format_args!("`{text}`"), show_size(LEAST), show_size(MOST)))
    }

    pub(super) fn serialize<T: Copy + TryInto<u64>, S: Serializer>(
        size: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&show_size((*size).try_into().unwrap_or(u64::MAX)))
    }
}

const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let ends_with = |unit: &str| {
        let start = text.len().checked_sub(unit.len()).filter(|&start| text.is_char_boundary(start))?;
        text[start..].eq_ignore_ascii_case(unit).then(|| &text[..start])
    };
    let (number, unit) =
        UNITS.iter().find_map(|(unit, bytes)| Some((ends_with(unit)?, *bytes))).unwrap_or((text, 1));
    number.trim().parse::<u64>().ok()?.checked_mul(unit)
}

/// The size with the largest unit that divides it.
fn show_size(bytes: u64) -> String {
    let whole = |unit: &&(&str, u64)| bytes >= unit.1 && bytes.is_multiple_of(unit.1);
    let (unit, size) = UNITS[..3].iter().find(whole).unwrap_or(&("B", 1));
    format!("{}{unit}", bytes / size)
}

/// A table that may be absent.
pub(super) fn table<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(from)?.map(|Object(table)| table))
}

/// A list of tables.
pub(super) fn tables<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<T>>, D::Error> {
    let tables = Option::<Vec<Object<T>>>::deserialize(from)?;
    Ok(tables.map(|tables| tables.into_iter().map(|Object(table)| table).collect()))
}

/// Tables by names that the operator chose.
pub(super) fn named_tables<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<BTreeMap<String, T>>, D::Error> {
    let tables = Option::<BTreeMap<String, Object<T>>>::deserialize(from)?;
    Ok(tables.map(|tables| tables.into_iter().map(|(name, Object(table))| (name, table)).collect()))
}

/// Defines a table of settings that mirrors a struct of another crate: it has the same defaults, and can be converted into it. serde
/// cannot build such a struct itself, because it may get more fields.
macro_rules! mirrors {
    ($spec:ident, $of:ty = $default:expr; $($key:ident: $field:ident),*) => {
        impl Default for $spec {
            fn default() -> Self {
                Self::from(&$default)
            }
        }

        impl From<&$of> for $spec {
            #[allow(clippy::clone_on_copy, reason = "most fields can be copied, and some cannot")]
            fn from(of: &$of) -> Self {
                Self { $($key: of.$field.clone()),* }
            }
        }

        impl $spec {
            #[allow(clippy::clone_on_copy, reason = "most fields can be copied, and some cannot")]
            pub(in crate::config) fn apply(&self, mut to: $of) -> $of {
                $(to.$field = self.$key.clone();)*
                to
            }
        }
    };
}
pub(super) use mirrors;

/// One text, or a list of them.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(untagged, expecting = "invalid type, expected a list of texts, or one of them")]
pub(crate) enum TextOrTexts {
    /// One.
    One(String),
    /// A list.
    Many(Vec<String>),
}

impl TextOrTexts {
    /// Each text with its location.
    pub(super) fn each<'a>(&'a self, at: &'a Location<'a>) -> Vec<(Location<'a>, &'a str)> {
        match self {
            Self::One(text) => vec![(*at, text)],
            Self::Many(texts) => each(texts, at).collect(),
        }
    }
}

/// Each text of a list with its location.
pub(super) fn each<'a>(
    texts: &'a [String],
    at: &'a Location<'a>,
) -> impl Iterator<Item = (Location<'a>, &'a str)> {
    texts.iter().enumerate().map(move |(index, text)| (at.item(index), text.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let table = [
            ("0", 0),
            ("1500", 1500),
            ("64KiB", 65_536),
            ("10 MB", 10_000_000),
            ("2mib", 2 << 20),
            ("7B", 7),
        ];
        for (text, expected) in table {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5MiB", "99999999999GiB", "1 apple", "é"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn a_size_is_shown_so_that_it_reads_back() {
        for size in [0, 1, 1023, 1024, 1_000_000, 64 << 20, 3 << 30] {
            assert_eq!(bytes(&show_size(size)), Some(size));
        }
    }
}
