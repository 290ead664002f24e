//! Amounts of tokens, in micro-tokens. They are exact in a double (below 2^53), so this crate and the Lua script agree bit for bit.

use std::fmt;
use std::ops::{Add, Mul, Sub};
use std::str::FromStr;

/// An amount of tokens, in micro-tokens. An amount below zero is a debt.
///
/// Reads and prints as a decimal number of tokens with at most six decimals. Whole amounts print without a point.
///
/// ```
/// use spile_core::Amount;
///
/// let amount: Amount = "0.003175".parse()?;
/// assert_eq!(amount.micro(), 3_175);
/// assert_eq!("7e2".parse::<Amount>()?, Amount::from(700));
/// assert_eq!(Amount::from_micro(-1_500_000).to_string(), "-1.5");
/// # Ok::<(), spile_core::AmountTextError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Amount(i64);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// One token.
    pub const TOKEN: Self = Self(Self::MICRO_PER_TOKEN);
    /// Micro-tokens per token.
    pub const MICRO_PER_TOKEN: i64 = 1_000_000;

    /// An amount of micro-tokens.
    pub const fn from_micro(micro_tokens: i64) -> Self {
        Self(micro_tokens)
    }

    /// An amount of whole tokens.
    pub const fn from_tokens(tokens: u32) -> Self {
        Self(tokens as i64 * Self::MICRO_PER_TOKEN)
    }

    /// The number of micro-tokens.
    pub const fn micro(self) -> i64 {
        self.0
    }

    /// The number of tokens, for displays and statistics. Exact for whole amounts.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / Self::MICRO_PER_TOKEN as f64
    }

    /// Whole tokens, rounded down. Zero for a debt.
    pub const fn whole_tokens(self) -> u64 {
        if self.0 > 0 { (self.0 / Self::MICRO_PER_TOKEN).unsigned_abs() } else { 0 }
    }

    /// Whole tokens, rounded up. Zero for a debt.
    pub const fn rounded_up(self) -> u64 {
        if self.0 > 0 { self.0.unsigned_abs().div_ceil(Self::MICRO_PER_TOKEN.unsigned_abs()) } else { 0 }
    }

    /// Rounds down to a multiple of `quantum`. Zero for a debt.
    #[inline]
    #[must_use]
    pub const fn floored_to(self, quantum: Self) -> Self {
        if self.0 > 0 { Self(self.0 - self.0 % quantum.0) } else { Self::ZERO }
    }

    /// The amount that is owed: zero unless this is a debt.
    #[must_use]
    pub const fn debt(self) -> Self {
        if self.0 < 0 { Self(self.0.saturating_neg()) } else { Self::ZERO }
    }

    /// The difference, or zero if `other` is larger.
    #[must_use]
    pub fn above(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0)).max(Self::ZERO)
    }
}

/// Converts whole tokens. A number that is too large saturates at the largest amount, which is above every bound.
impl From<u64> for Amount {
    #[inline]
    fn from(tokens: u64) -> Self {
        let micro = i64::try_from(tokens).ok().and_then(|tokens| tokens.checked_mul(Self::MICRO_PER_TOKEN));
        Self(micro.unwrap_or(i64::MAX))
    }
}

/// Compares with a number of whole tokens.
impl PartialEq<u64> for Amount {
    fn eq(&self, tokens: &u64) -> bool {
        *self == Self::from(*tokens)
    }
}

impl Add for Amount {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Amount {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Multiplies, and saturates at the largest amount.
impl Mul<u64> for Amount {
    type Output = Self;

    fn mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(i64::try_from(factor).unwrap_or(i64::MAX)))
    }
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_token = Self::MICRO_PER_TOKEN.unsigned_abs();
        let (whole, part) = (self.0.unsigned_abs() / per_token, self.0.unsigned_abs() % per_token);
        let sign = if self.0 < 0 { "-" } else { "" };
        if part == 0 {
            return f.pad(&format!("{sign}{whole}"));
        }
        let decimals = format!("{part:06}");
        f.pad(&format!("{sign}{whole}.{}", decimals.trim_end_matches('0')))
    }
}

/// Reads `5`, `700.0`, `0.003175` and `7e2`, never through a double. Every door reads amounts with it.
impl FromStr for Amount {
    type Err = AmountTextError;

    fn from_str(text: &str) -> Result<Self, AmountTextError> {
        let (is_negative, unsigned) =
            text.strip_prefix('-').map_or((false, text), |unsigned| (true, unsigned));
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let exponent = exponent.parse().ok().filter(|_: &i16| is_digits(whole) && is_digits(part));
        let exponent = exponent.filter(|_| text.len() <= MAX_BYTES).ok_or(AmountTextError::Form)?;
        // Zeros at the end are dropped: they are not significant, and the digits in front of them have to fit.
        let all = || whole.bytes().chain(part.bytes());
        let zeros = all().rev().take_while(|&digit| digit == b'0').count();
        let count = (whole.len() + part.len()).saturating_sub(zeros);
        let number = all()
            .take(count)
            .try_fold(0_i64, |number, digit| number.checked_mul(10)?.checked_add(i64::from(digit - b'0')));
        // The number of zeros between the last digit and a micro-token.
        let dropped = (zeros as u64).cast_signed() - (part.len() as u64).cast_signed();
        let scale = DECIMALS + i64::from(exponent) + dropped;
        match number {
            Some(0) => Ok(Self::ZERO),
            _ if is_negative => Err(AmountTextError::Negative),
            _ if scale < 0 => Err(AmountTextError::Decimals),
            _ => u32::try_from(scale)
                .ok()
                .and_then(|scale| number?.checked_mul(10_i64.checked_pow(scale)?))
                .map(Self)
                .ok_or(AmountTextError::TooLarge),
        }
    }
}

/// Decimals of a micro-token.
const DECIMALS: i64 = 6;
/// The longest text that is accepted.
const MAX_BYTES: usize = 64;

/// Why a text is not an amount. The error does not quote the text, which may be a misplaced secret.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AmountTextError {
    /// The text is not a number.
    #[error("not a number of tokens, which has digits and at most six decimals")]
    Form,
    /// The number is below zero.
    #[error("below 0, the smallest number of tokens")]
    Negative,
    /// The number is finer than a micro-token.
    #[error("finer than 0.000001: a number of tokens has at most six decimals")]
    Decimals,
    /// The number does not fit.
    #[error("above 9223372036854, the largest number of tokens")]
    TooLarge,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts_read_as_decimal_numbers_with_at_most_six_decimals() {
        for (text, micro) in [
            ("0", 0),
            ("-0", 0),
            ("0.000", 0),
            ("0e9", 0),
            ("1", 1_000_000),
            ("007", 7_000_000),
            ("700.0", 700_000_000),
            ("7e2", 700_000_000),
            ("7E+2", 700_000_000),
            ("70000e-2", 700_000_000),
            ("0.003175", 3_175),
            ("3175e-6", 3_175),
            ("1.0000000", 1_000_000),
            ("0.1234560000", 123_456),
            ("9223372036854.775807", i64::MAX),
            ("10000000000000000000000000e-20", 100_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Amount::from_micro(micro)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        use AmountTextError::{Decimals, Form, Negative, TooLarge};
        let long = "1".repeat(65);
        for (text, why) in [
            ("", Form),
            ("-", Form),
            ("+1", Form),
            (" 1", Form),
            ("1 ", Form),
            (".5", Form),
            ("1.", Form),
            ("1e", Form),
            ("1e+-2", Form),
            ("1e99999", Form),
            ("0x10", Form),
            ("1_000", Form),
            ("NaN", Form),
            ("inf", Form),
            ("١", Form),
            (long.as_str(), Form),
            ("-1", Negative),
            ("-0.0000001", Negative),
            ("0.0000001", Decimals),
            ("1.00000000000000001", Decimals),
            ("1e-7", Decimals),
            ("9223372036854.775808", TooLarge),
            ("1e13", TooLarge),
            ("99999999999999999999", TooLarge),
            ("1e32767", TooLarge),
        ] {
            assert_eq!(text.parse::<Amount>(), Err(why), "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_amount_reads_back_as_it_was_printed(micro in 0..=i64::MAX) {
            let amount = Amount::from_micro(micro);
            prop_assert_eq!(amount.to_string().parse(), Ok(amount));
        }
    }

    #[test]
    fn whole_amounts_print_without_a_point_and_debts_with_a_sign() {
        for (micro, text) in [(0, "0"), (5_000_000, "5"), (1, "0.000001"), (-2_500_000, "-2.5")] {
            assert_eq!(Amount::from_micro(micro).to_string(), text);
        }
    }
}
