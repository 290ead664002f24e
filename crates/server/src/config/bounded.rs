//! Numbers and sizes within bounds.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::file::{Faults, Spot};

/// The number, or a fault where it is out of bounds. Nothing where nothing was said.
pub(super) fn check<T: Copy + Display + PartialOrd>(
    number: Option<Spot<T>>,
    bounds: RangeInclusive<T>,
    faults: &mut Faults,
) -> Option<T> {
    let Spot { value, place } = number?;
    let within = bounds.contains(&value);
    if !within {
        let fix = format!("{} to {}", bounds.start(), bounds.end());
        faults.add(&place, format_args!("{value} is out of bounds"), fix);
    }
    within.then_some(value)
}

/// The bytes that a size stands for: `1500`, `64KiB`, `10MB`.
pub(super) fn check_size(
    size: Option<Spot<String>>,
    bounds: RangeInclusive<u64>,
    faults: &mut Faults,
) -> Option<u64> {
    let Spot { value, place } = size?;
    match bytes(&value) {
        None => {
            faults.add(&place, format_args!("`{value}` is no size"), "a number and a unit, as in `64MiB`");
            None
        }
        Some(bytes) if bounds.contains(&bytes) => Some(bytes),
        Some(_) => {
            let fix = format!("{} to {}", show_size(*bounds.start()), show_size(*bounds.end()));
            faults.add(&place, format_args!("`{value}` is out of bounds"), fix);
            None
        }
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
pub(super) fn show_size(bytes: u64) -> String {
    let whole = |unit: &&(&str, u64)| bytes >= unit.1 && bytes.is_multiple_of(unit.1);
    let (unit, size) = UNITS[..3].iter().find(whole).unwrap_or(&("B", 1));
    format!("{}{unit}", bytes / size)
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
