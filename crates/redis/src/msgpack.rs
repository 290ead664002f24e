//! Numbers as msgpack, which the script reads all at once. Just what it takes, nothing to read back.

/// Opens an array of `length` numbers.
pub(crate) fn push_array(out: &mut Vec<u8>, length: usize) {
    out.push(0xdd);
    out.extend_from_slice(&(length as u32).to_be_bytes());
}

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

/// Appends a double, bit by bit, so that the script multiplies by the same one.
pub(crate) fn push_double(out: &mut Vec<u8>, number: f64) {
    out.push(0xcb);
    out.extend_from_slice(&number.to_bits().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_msgpack_says() {
        let mut out = Vec::new();
        for number in [0, 127, 128, 65_535, 65_536, 4_294_967_295, 4_294_967_296] {
            push_int(&mut out, number);
        }
        push_double(&mut out, 1.5);
        let expected: &[&[u8]] = &[
            &[0, 127, 0xcd, 0, 128, 0xcd, 255, 255, 0xce, 0, 1, 0, 0, 0xce, 255, 255, 255, 255],
            &[0xcf, 0, 0, 0, 1, 0, 0, 0, 0, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(out, expected.concat());
    }
}
