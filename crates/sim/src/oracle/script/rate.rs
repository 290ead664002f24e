//! The refill of a rate, exactly.

/// Micro-tokens per microsecond: `mantissa / 2^shift`, which is the exact value of the double in the call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PlainRate {
    /// A whole number below 2^53.
    pub mantissa: i128,
    /// The power of two below it.
    pub shift: u32,
}

/// Bits of a double's mantissa that are stored.
const STORED_BITS: u32 = 52;

impl PlainRate {
    /// The exact value of a double. `None` if no limit has such a rate.
    pub(super) fn new(rate: f64) -> Option<Self> {
        // Beyond the fastest refill per microsecond, or so slow that an empty bucket is not full within ten years.
        if !(1e-15..=1e9).contains(&rate) {
            return None;
        }
        let bits = rate.to_bits();
        let exponent = (bits >> STORED_BITS) as u32;
        let mantissa = (bits & ((1 << STORED_BITS) - 1)) | 1 << STORED_BITS;
        let zeros = mantissa.trailing_zeros();
        let (mantissa, shift) =
            (i128::from(mantissa >> zeros), 1_075_i64 - i64::from(exponent) - i64::from(zeros));
        // A whole number has no fraction to shift out.
        if shift < 0 {
            return Some(Self { mantissa: mantissa << -shift, shift: 0 });
        }
        Some(Self { mantissa, shift: shift as u32 })
    }

    /// The least and the most that may come back in this time: rounded down, and one more if the product is so close to the next
    /// whole number that a double may show it as that.
    pub(super) fn gained(self, elapsed: i128) -> (i128, i128) {
        if elapsed <= 0 {
            return (0, 0);
        }
        let product = elapsed * self.mantissa;
        let whole = product >> self.shift;
        let missing = ((whole + 1) << self.shift) - product;
        // Half a unit in the last place of the product, rounded up.
        let error = product >> STORED_BITS;
        (whole, whole + i128::from(missing <= error))
    }

    /// How long `amount` takes to come back, less than a microsecond too little. Only used for times to live.
    pub(crate) fn time_for(self, amount: i128) -> i128 {
        // 2^shift may be above 2^127, and the result is below 2^53 or capped anyway.
        let time = amount as f64 / self.mantissa as f64 * 2_f64.powi(self.shift.cast_signed());
        (time.floor() as i128 - 1).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::PlainRate;

    #[test]
    fn a_refill_is_exact() {
        let gained = |rate: f64, elapsed| PlainRate::new(rate).expect("a rate").gained(elapsed);
        assert_eq!(gained(1.0, 7), (7, 7));
        assert_eq!(gained(1e9, 3), (3_000_000_000, 3_000_000_000));
        assert_eq!(gained(0.5, 3), (1, 1));
        assert_eq!(gained(0.75, 4), (3, 3));
        // The double of a tenth is above it, that of seven tenths below: the product rounds to seven.
        assert_eq!(gained(0.1, 10), (1, 1));
        assert_eq!(gained(0.7, 10), (6, 7));
        assert_eq!(gained(0.7, -10), (0, 0));
        for none in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e9, 1e-300] {
            assert_eq!(PlainRate::new(none), None, "{none}");
        }
    }

    #[test]
    fn a_time_to_refill_is_not_too_long() {
        let time = |rate: f64, amount| PlainRate::new(rate).expect("a rate").time_for(amount);
        assert_eq!(time(1.0, 1_000), 999);
        assert_eq!(time(1e9, 0), 0);
        assert_eq!(time(3.2e-15, 1), 312_499_999_999_999);
    }
}
