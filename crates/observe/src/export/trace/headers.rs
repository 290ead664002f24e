//! Header fields that a collector requires, such as credentials.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Header fields of the requests to a collector. Their values are secrets: no error shows them, and neither does `Debug`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OtlpHeaders(pub(super) HeaderMap);

/// Why a header field cannot be sent. Names the field and never its value.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpHeaderError {
    /// No header field can have this name.
    #[error("`{0}` is not a header name")]
    Name(String),
    /// The field has no value.
    #[error("the header `{0}` is empty")]
    Empty(String),
    /// The value has characters that no header field can have.
    #[error("the value of the header `{0}` has a sign that is not visible ASCII")]
    Value(String),
    /// The field is one that the exporter sets itself.
    #[error("the header `{0}` is set by Spile itself")]
    Reserved(String),
    /// There is a field of this name already.
    #[error("the header `{0}` is defined twice")]
    Twice(String),
    /// There are too many.
    #[error("`{0}` is one header too many: there may be {MOST}")]
    TooMany(String),
}

/// The most header fields.
const MOST: usize = 32;
/// The fields that belong to the message and to the connection.
const RESERVED: [&str; 11] = [
    "host",
    "user-agent",
    "content-type",
    "content-length",
    "content-encoding",
    "transfer-encoding",
    "connection",
    "te",
    "trailer",
    "upgrade",
    "expect",
];

impl OtlpHeaders {
    /// Adds a header field.
    pub fn insert(&mut self, name: &str, value: &str) -> Result<(), OtlpHeaderError> {
        let field: HeaderName = name.parse().map_err(|_| OtlpHeaderError::Name(name.to_owned()))?;
        let name = field.as_str().to_owned();
        if RESERVED.contains(&field.as_str()) {
            return Err(OtlpHeaderError::Reserved(name));
        }
        if value.is_empty() {
            return Err(OtlpHeaderError::Empty(name));
        }
        if self.0.contains_key(&field) {
            return Err(OtlpHeaderError::Twice(name));
        }
        if self.0.len() >= MOST {
            return Err(OtlpHeaderError::TooMany(name));
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| OtlpHeaderError::Value(name))?;
        value.set_sensitive(true);
        self.0.insert(field, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_cannot_be_sent_is_refused_by_name_and_without_its_value() {
        let mut headers = OtlpHeaders::default();
        headers.insert("X-Team", "hunter2").expect("a field");
        for (name, value, why) in [
            ("x team", "hunter2", "`x team` is not a header name"),
            ("", "hunter2", "`` is not a header name"),
            ("Host", "hunter2", "the header `host` is set by Spile itself"),
            ("x-TEAM", "hunter2", "the header `x-team` is defined twice"),
            ("authorization", "", "the header `authorization` is empty"),
            ("a", "hunter2\r\nb: c", "the value of the header `a` has a sign that is not visible ASCII"),
        ] {
            assert_eq!(headers.insert(name, value).map_err(|why| why.to_string()), Err(why.to_owned()));
        }
        assert!(!format!("{headers:?}").contains("hunter2"), "{headers:?}");
    }

    #[test]
    fn there_are_so_many_fields_and_no_more() {
        let mut headers = OtlpHeaders::default();
        for field in 0..MOST {
            headers.insert(&format!("x-{field}"), "a").expect("there is room");
        }
        assert_eq!(headers.insert("x-more", "a"), Err(OtlpHeaderError::TooMany("x-more".to_owned())));
    }
}
