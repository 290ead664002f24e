//! The cost of an answer that does not report one.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use spile_core::{Amount, Cost};

use super::estimate::Estimate;
use super::{parse_amount, parse_count};

/// A price by size: one token for every N bytes, rounded up. Written `bytes/N`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BytesPerToken(NonZeroU32);

/// The least that an answer costs whose cost cannot be read. It never costs less than was charged before it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum UnreadCost {
    /// By the size of its body: `bytes/4`.
    Bytes(BytesPerToken),
    /// A fixed number of tokens for each answer: `5000`.
    Tokens(Cost),
    /// The amount that was charged before it: `estimate`.
    Estimate,
}

/// The cost of an upstream's error that does not report one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum ErrorCost {
    /// The cost that each rule sets: `rule`.
    #[default]
    Rule,
    /// Nothing: `none`.
    None,
    /// The amount that was charged before it: `estimate`.
    Estimate,
}

/// Why a text is not a cost for answers that report none.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FallbackCostError {
    /// The word is not known.
    #[error("`{0}` is not a cost of an answer")]
    Unknown(String),
    /// The number is out of bounds.
    #[error("{0} is out of bounds")]
    OutOfBounds(String),
}

impl BytesPerToken {
    /// One token for every `bytes` bytes. `None` if that is 0 or above [`Estimate::MAX_BYTES`].
    pub fn new(bytes: u32) -> Option<Self> {
        NonZeroU32::new(bytes).filter(|bytes| bytes.get() <= Estimate::MAX_BYTES).map(Self)
    }

    /// The cost of this many bytes, in whole tokens.
    pub fn cost_of(self, bytes: u64) -> Amount {
        bytes.div_ceil(self.0.get().into()).into()
    }
}

impl UnreadCost {
    /// The least that an answer of this size costs.
    pub fn cost_of(self, bytes: u64) -> Amount {
        match self {
            Self::Bytes(price) => price.cost_of(bytes),
            Self::Tokens(cost) => cost.amount(),
            Self::Estimate => Amount::ZERO,
        }
    }
}

/// One token for every 4 bytes.
impl Default for BytesPerToken {
    fn default() -> Self {
        Self(const { NonZeroU32::new(4).unwrap() })
    }
}

/// One token for every 4 bytes.
impl Default for UnreadCost {
    fn default() -> Self {
        Self::Bytes(BytesPerToken::default())
    }
}

impl FromStr for BytesPerToken {
    type Err = FallbackCostError;

    fn from_str(text: &str) -> Result<Self, FallbackCostError> {
        let number = text.strip_prefix("bytes/").and_then(parse_count);
        let number = number.ok_or_else(|| FallbackCostError::Unknown(text.to_owned()))?;
        let price = u32::try_from(number).ok().and_then(Self::new);
        price.ok_or_else(|| FallbackCostError::OutOfBounds(text.to_owned()))
    }
}

impl FromStr for UnreadCost {
    type Err = FallbackCostError;

    fn from_str(text: &str) -> Result<Self, FallbackCostError> {
        if text == "estimate" {
            return Ok(Self::Estimate);
        }
        let Some(tokens) = parse_amount(text) else { return text.parse().map(Self::Bytes) };
        let cost = Cost::new(tokens).ok().filter(|cost| *cost > Cost::ZERO);
        cost.map(Self::Tokens).ok_or_else(|| FallbackCostError::OutOfBounds(text.to_owned()))
    }
}

impl FromStr for ErrorCost {
    type Err = FallbackCostError;

    fn from_str(text: &str) -> Result<Self, FallbackCostError> {
        match text {
            "rule" => Ok(Self::Rule),
            "none" => Ok(Self::None),
            "estimate" => Ok(Self::Estimate),
            _ => Err(FallbackCostError::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for BytesPerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes/{}", self.0)
    }
}

impl fmt::Display for UnreadCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(price) => price.fmt(f),
            Self::Tokens(cost) => cost.amount().fmt(f),
            Self::Estimate => f.write_str("estimate"),
        }
    }
}

impl fmt::Display for ErrorCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rule => "rule",
            Self::None => "none",
            Self::Estimate => "estimate",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_priced_in_whole_tokens_rounded_up() {
        let price: UnreadCost = "bytes/4".parse().unwrap();
        assert_eq!([0, 1, 4, 5].map(|bytes| price.cost_of(bytes)), [0, 1, 1, 2].map(Amount::from_tokens));
        assert_eq!("5000".parse::<UnreadCost>().unwrap().cost_of(1 << 40), 5_000);
        assert_eq!("estimate".parse::<UnreadCost>().unwrap().cost_of(1 << 40), 0);
    }

    #[test]
    fn every_spelling_reads_back_and_others_are_refused_by_name() {
        for text in ["bytes/4", "bytes/1048576", "5000", "estimate"] {
            assert_eq!(text.parse::<UnreadCost>().unwrap().to_string(), text);
        }
        for text in ["rule", "none", "estimate"] {
            assert_eq!(text.parse::<ErrorCost>().unwrap().to_string(), text);
        }
        for text in
            ["", "0", "bytes", "bytes/0", "bytes/x", "bytes/1048577", "body/4", "1000000001", "rule", "-1"]
        {
            assert!(text.parse::<UnreadCost>().is_err(), "{text}");
        }
        assert!("bytes/4".parse::<ErrorCost>().is_err() && "4".parse::<BytesPerToken>().is_err());
    }
}
