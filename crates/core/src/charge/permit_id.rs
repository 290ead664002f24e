//! The id of a permit: unique, with the time at which it was requested and the name of its holder.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::key::first_control;
use crate::Micros;

/// Identifies a permit: 32 hexadecimal digits, then `@` and the name of its holder if it has one. The first 12 digits are the time of
/// the request in milliseconds since the Unix epoch, the next two the hold time in milliseconds as a power of two, rounded up. The others
/// are random.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PermitId(Arc<str>);

impl PermitId {
    /// The longest name of a holder, in bytes.
    pub const MAX_HOLDER_BYTES: usize = 64;

    const DIGITS: usize = 32;
    const TIME_DIGITS: usize = 12;
    const HOLD_DIGITS: usize = 2;
    /// The power of two of the longest hold time: more than a day.
    const MAX_HOLD: u32 = 27;

    /// The id of a permit that is requested now and held for this time. `random` has to differ from that of every other permit. An empty
    /// `holder` means no holder.
    pub fn new(now: Micros, hold: Duration, random: u128, holder: &str) -> Result<Self, PermitIdError> {
        Self::check_holder(holder)?;
        let millis = (now.get() / 1_000) & 0xFFFF_FFFF_FFFF;
        let hold = hold.as_millis().max(1).next_power_of_two().ilog2().min(Self::MAX_HOLD);
        let random = random & 0xFF_FFFF_FFFF_FFFF_FFFF;
        let at = if holder.is_empty() { "" } else { "@" };
        Ok(Self(format!("{millis:012x}{hold:02x}{random:018x}{at}{holder}").into()))
    }

    /// Parses an id.
    pub fn parse(text: &str) -> Result<Self, PermitIdError> {
        let (digits, holder) = text.split_at_checked(Self::DIGITS).ok_or(PermitIdError::Form)?;
        if !digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(PermitIdError::Form);
        }
        match holder.strip_prefix('@') {
            Some(holder) if !holder.is_empty() => Self::check_holder(holder)?,
            None if holder.is_empty() => {}
            _ => return Err(PermitIdError::Form),
        }
        Ok(Self(text.into()))
    }

    /// Checks that a text can be the name of a holder.
    pub fn check_holder(holder: &str) -> Result<(), PermitIdError> {
        if holder.len() > Self::MAX_HOLDER_BYTES {
            return Err(PermitIdError::Holder(holder.len()));
        }
        let control = first_control(holder);
        control.map_or(Ok(()), |(at, code)| Err(PermitIdError::HolderControl { at, code }))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the holder, if it has one.
    pub fn holder(&self) -> Option<&str> {
        self.0[Self::DIGITS..].strip_prefix('@')
    }

    /// The time of the request, by the clock of the instance that made it.
    pub fn since(&self) -> Micros {
        let millis = u64::from_str_radix(&self.0[..Self::TIME_DIGITS], 16);
        Micros::new(1_000 * millis.unwrap_or_default())
    }
}

impl PermitId {
    /// The time for which it is held at most without being renewed, unless its limit has a longer one now. Shortening the hold time of a
    /// limit does not end permits before they are renewed.
    pub fn longest_hold(&self, of_limit: Duration) -> Duration {
        let digits = &self.0[Self::TIME_DIGITS..Self::TIME_DIGITS + Self::HOLD_DIGITS];
        let power = u32::from_str_radix(digits, 16).unwrap_or_default().min(Self::MAX_HOLD);
        of_limit.max(Duration::from_millis(1 << power))
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is not the id of a permit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PermitIdError {
    /// The text does not start with the digits of an id, or does not continue with a holder.
    #[error("the id of a permit is 32 hexadecimal digits, and behind an `@` its holder if it has one")]
    Form,
    /// The name of the holder is too long.
    #[error(
        "the holder of a permit has {0} bytes; it takes 0 to {max} without control characters",
        max = PermitId::MAX_HOLDER_BYTES
    )]
    Holder(usize),
    /// The name of the holder has a control character.
    #[error(
        "character {at} of the holder of a permit is U+{code:04X}; it takes 0 to {max} bytes without control characters",
        max = PermitId::MAX_HOLDER_BYTES
    )]
    HolderControl {
        /// The position of the character in the name, counted from zero.
        at: usize,
        /// Its code point.
        code: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_its_holder_and_its_time_and_reads_back() {
        let now = Micros::new(1_763_415_000_123_456);
        for (holder, shown) in [("web-1", Some("web-1")), ("", None), ("job@7 {x}", Some("job@7 {x}"))] {
            let id = PermitId::new(now, Duration::from_secs(5), u128::MAX, holder).expect("a sound holder");
            assert_eq!(id.holder(), shown);
            assert_eq!(id.since(), Micros::new(1_763_415_000_123_000));
            assert_eq!(id.longest_hold(Duration::from_secs(1)), Duration::from_millis(8_192));
            assert_eq!(id.longest_hold(Duration::from_secs(9)), Duration::from_secs(9));
            assert_eq!(PermitId::parse(id.as_str()), Ok(id));
        }
    }

    #[test]
    fn what_is_not_an_id_is_refused_with_the_form_or_the_bound() {
        let digits = "0".repeat(32);
        for text in ["", "x", &digits[1..], &format!("{digits}x"), &format!("{digits}@"), &"A".repeat(32)] {
            assert_eq!(PermitId::parse(text), Err(PermitIdError::Form), "{text}");
        }
        let long = format!("{digits}@{}", "h".repeat(65));
        let why = PermitId::parse(&long).expect_err("its holder is too long").to_string();
        assert_eq!(why, "the holder of a permit has 65 bytes; it takes 0 to 64 without control characters");
        let why = PermitId::new(Micros::default(), Duration::ZERO, 7, "a\nb")
            .expect_err("it has a line feed")
            .to_string();
        let told = "character 1 of the holder of a permit is U+000A; it takes 0 to 64 bytes without control characters";
        assert_eq!(why, told);
    }
}
