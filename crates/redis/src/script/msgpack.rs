//! Writes numbers and names as msgpack, which the script unpacks in one call.

/// Appends a whole number in the fewest bytes.
pub(crate) fn push_int(out: &mut Vec<u8>, number: u64) {
    match number {
        0..=0x7f => out.push(number as u8),
        0x80..=0xffff => {
            out.push(0xcd);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        _ => {
            out.push(0xcf);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// Appends a whole number that may be below zero.
pub(crate) fn push_signed(out: &mut Vec<u8>, number: i64) {
    if number >= 0 {
        push_int(out, number.unsigned_abs());
    } else {
        out.push(0xd3);
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// Appends true or false.
pub(crate) fn push_bool(out: &mut Vec<u8>, value: bool) {
    out.push(if value { 0xc3 } else { 0xc2 });
}

/// Appends the exact bits of a double, so that the script calculates with the same number.
pub(crate) fn push_double(out: &mut Vec<u8>, number: f64) {
    out.push(0xcb);
    out.extend_from_slice(&number.to_bits().to_be_bytes());
}

/// Appends a text that consists of these parts. The longest, the amounts of a settled chain, have less than 1,000 bytes.
pub(crate) fn push_text(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    debug_assert!(length < 1 << 16, "two bytes have room for the length");
    if let Ok(length) = u8::try_from(length) {
        out.extend_from_slice(&[0xd9, length]);
    } else {
        out.push(0xda);
        out.extend_from_slice(&(length as u16).to_be_bytes());
    }
    for part in parts {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kind and the bits of the first number, and the rest of the bytes.
    fn read(bytes: &[u8]) -> Option<((u8, u64), &[u8])> {
        let (&kind, rest) = bytes.split_first()?;
        let width = match kind {
            0..=0x7f => return Some(((0, kind.into()), rest)),
            0xcd => 2,
            0xce => 4,
            0xcb | 0xcf => 8,
            _ => return None,
        };
        let (number, rest) = rest.split_at_checked(width)?;
        let number = number.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        Some(((if kind == 0xcb { kind } else { 0 }, number), rest))
    }

    #[test]
    fn fuzzed_numbers_read_back_as_they_were_written() {
        spile_testkit::fuzz::fuzz("msgpack", &["\0\0\0\0\0\0\0\x7f", "\0\0\0\0\0\0"], |bytes| {
            let numbers: Vec<u64> =
                bytes.as_chunks().0.iter().map(|word| u64::from_be_bytes(*word)).collect();
            let mut out = Vec::new();
            for number in &numbers {
                push_int(&mut out, *number);
                push_double(&mut out, f64::from_bits(*number));
            }
            let mut rest = out.as_slice();
            let mut next = || {
                let (number, after) = read(rest).expect("a number");
                rest = after;
                number
            };
            for number in &numbers {
                assert_eq!(next(), (0, *number));
                // A NaN may be written as another NaN.
                let double = f64::from_bits(next().1);
                assert!(double.to_bits() == *number || double.is_nan());
            }
            assert_eq!(rest, b"");
            out.len()
        });
    }

    #[test]
    fn numbers_are_written_as_msgpack_says() {
        let mut out = Vec::new();
        for number in [0, 127, 128, 65_535, 65_536, 4_294_967_295, 4_294_967_296] {
            push_int(&mut out, number);
        }
        push_signed(&mut out, 7);
        push_signed(&mut out, -2);
        push_bool(&mut out, true);
        push_bool(&mut out, false);
        push_double(&mut out, 1.5);
        push_text(&mut out, &[b"d", b"ay"]);
        let expected: &[&[u8]] = &[
            &[0, 127, 0xcd, 0, 128, 0xcd, 255, 255, 0xce, 0, 1, 0, 0, 0xce, 255, 255, 255, 255],
            &[0xcf, 0, 0, 0, 1, 0, 0, 0, 0, 7, 0xd3, 255, 255, 255, 255, 255, 255, 255, 254, 0xc3, 0xc2],
            &[0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0],
            b"\xd9\x03day",
        ];
        assert_eq!(out, expected.concat());
        out.clear();
        push_text(&mut out, &[&[b'1'; 300]]);
        assert_eq!(out, [&[0xda, 1, 44][..], &[b'1'; 300]].concat(), "the amounts of a long chain");
    }
}
