//! Numbers as Redis writes and reads them.

/// Reads a whole number. Like Redis, accepts no plus sign, no spaces and no leading zeros.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

/// Reads a score or the bound of a range. `None` if it is not a number, or NaN.
pub(super) fn float(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// Writes a number as C does with `%.17g`.
pub(super) fn write(out: &mut Vec<u8>, number: f64) {
    use std::io::Write as _;
    if number.abs() < 1e17 && number.fract() == 0.0 && !(number == 0.0 && number.is_sign_negative()) {
        // Writing to a vector cannot fail.
        let _ = write!(out, "{}", number as i64);
    } else if number.is_finite() {
        out.extend_from_slice(general(number).as_bytes());
    } else {
        let sign = if number.is_sign_negative() { "-" } else { "" };
        let _ = write!(out, "{sign}{}", if number.is_nan() { "nan" } else { "inf" });
    }
}

/// The text that [`write()`] writes.
pub(super) fn text(number: f64) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, number);
    out
}

const DIGITS: i32 = 17;

fn general(number: f64) -> String {
    let scientific = format!("{number:.16e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let decimals = (DIGITS - 1 - exponent) as usize;
        return without_zeros(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(digits), exponent.abs())
}

fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (2_000_002.0, "2000002"),
            (-7.0, "-7"),
            (9_007_199_254_740_991.0, "9007199254740991"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.5e300, "1.5000000000000001e+300"),
            (0.1, "0.10000000000000001"),
            (2.5, "2.5"),
            (0.0001, "0.0001"),
            (0.000_01, "1.0000000000000001e-05"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, expected) in cases {
            assert_eq!(String::from_utf8(text(number)).unwrap(), expected);
        }
    }

    #[test]
    fn an_integer_has_one_text() {
        assert_eq!(integer(b"-12"), Some(-12));
        for other in ["+1", "01", " 1", "1.0", "", "-0", "9223372036854775808"] {
            assert_eq!(integer(other.as_bytes()), None, "{other}");
        }
    }
}
