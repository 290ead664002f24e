//! The charge for a request before its answer reports the cost.

use std::fmt;
use std::str::FromStr;

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName};
use spile_core::Cost;

use super::{parse_amount, parse_count};

/// The charge for a request before its answer reports the cost.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Estimate {
    /// A fixed number of tokens for each request: `500`.
    Tokens(Cost),
    /// As many as the request says in a header field: `header:NAME`.
    Header(HeaderName),
    /// One token per this many bytes of the request's body, rounded up: `body/4`.
    BodyBytes(u32),
}

/// Why a text is not an estimate.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EstimateError {
    /// The word is not known.
    #[error("`{0}` is not an estimate")]
    Unknown(String),
    /// The name of the header field is not one.
    #[error("`{0}` is not a header name")]
    Header(String),
    /// The number is out of bounds.
    #[error("{0} is out of bounds")]
    OutOfBounds(String),
}

impl Estimate {
    /// The most bytes that one token may stand for.
    pub const MAX_BYTES: u32 = 1 << 20;

    /// The tokens that a request with this header is expected to cost: one at least, and no more than any limit holds.
    /// `None` if the header does not show it.
    pub fn of(&self, headers: &HeaderMap) -> Option<Cost> {
        // A field with two values is not read: a client must not choose which one counts.
        let value = |name: &HeaderName| spile_policy::single_value(headers, name);
        let tokens = match self {
            Self::Tokens(cost) => return Some(*cost),
            Self::Header(name) => parse_amount(value(name)?)?,
            Self::BodyBytes(bytes) => {
                parse_count(value(&CONTENT_LENGTH)?)?.div_ceil(u64::from(*bytes).max(1)).into()
            }
        };
        Some(Cost::saturating(tokens).max(Cost::ONE))
    }
}

impl FromStr for Estimate {
    type Err = EstimateError;

    fn from_str(text: &str) -> Result<Self, EstimateError> {
        let out_of_bounds = || EstimateError::OutOfBounds(text.to_owned());
        if let Some(name) = text.strip_prefix("header:") {
            return name.parse().map(Self::Header).map_err(|_| EstimateError::Header(name.to_owned()));
        }
        let (digits, is_body) = text.strip_prefix("body/").map_or((text, false), |bytes| (bytes, true));
        let unknown = || EstimateError::Unknown(text.to_owned());
        if is_body {
            let bytes = u32::try_from(parse_count(digits).ok_or_else(unknown)?)
                .ok()
                .filter(|bytes| (1..=Self::MAX_BYTES).contains(bytes));
            return bytes.map(Self::BodyBytes).ok_or_else(out_of_bounds);
        }
        let cost =
            Cost::new(parse_amount(digits).ok_or_else(unknown)?).ok().filter(|cost| *cost > Cost::ZERO);
        cost.map(Self::Tokens).ok_or_else(out_of_bounds)
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens(cost) => cost.amount().fmt(f),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::BodyBytes(bytes) => write!(f, "body/{bytes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(estimate: &str, fields: &[(&'static str, &'static str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        estimate.parse::<Estimate>().unwrap().of(&headers).map(|cost| cost.amount().whole_tokens())
    }

    #[test]
    fn a_request_is_estimated_by_a_number_a_field_or_the_size_of_its_body() {
        assert_eq!(of("500", &[]), Some(500));
        assert_eq!(of("header:x-tokens", &[("x-tokens", "70")]), Some(70));
        assert_eq!(of("body/4", &[("content-length", "401")]), Some(101));
    }

    #[test]
    fn what_a_client_says_is_bounded_and_ignored_if_it_says_two_things() {
        let says = |value| of("header:x-tokens", &[("x-tokens", value)]);
        assert_eq!((says("0"), says("99999999999999999999")), (Some(1), Some(1_000_000_000)));
        assert_eq!((says("many"), says("-5"), of("header:x-tokens", &[])), (None, None, None));
        assert_eq!(of("header:x-tokens", &[("x-tokens", "70"), ("x-tokens", "1")]), None);
        assert_eq!((of("body/4", &[]), of("body/4", &[("content-length", "0")])), (None, Some(1)));
    }

    #[test]
    fn every_spelling_reads_back_and_others_are_refused_by_name() {
        for text in ["500", "header:x-tokens", "body/4"] {
            assert_eq!(text.parse::<Estimate>().unwrap().to_string(), text);
        }
        for text in ["", "many", "body", "body/0", "body/x", "0", "-1", "1000000001", "header:a b", "bytes/4"]
        {
            assert!(text.parse::<Estimate>().is_err(), "{text}");
        }
    }
}
