//! What a listener puts up with.

use std::fmt;

use humantime::format_duration as span;
use spile_listener::Bounds;

use super::bounded::{self, show_size};
use super::duration;
use super::file::{BoundsFile, Faults};

/// The bounds that were typed, and these where none was.
pub(super) fn check(mut bounds: Bounds, file: BoundsFile, faults: &mut Faults) -> Bounds {
    let waits = [
        (&mut bounds.header_timeout, file.header_timeout),
        (&mut bounds.write_timeout, file.write_timeout),
        (&mut bounds.handshake_timeout, file.handshake_timeout),
        (&mut bounds.drain, file.drain_timeout),
    ];
    for (wait, text) in waits {
        *wait = text.and_then(|text| duration::check(&text, duration::REQUEST, faults)).unwrap_or(*wait);
    }
    let counts = [
        (&mut bounds.connections, file.max_connections, 1..=1_000_000),
        (&mut bounds.header_fields, file.max_header_fields, 10..=1_000),
    ];
    for (count, number, within) in counts {
        *count = bounded::check(number, within, faults).map_or(*count, |number| number as usize);
    }
    // hyper reads into a buffer of 8 KiB at least.
    let header = bounded::check_size(file.max_header_bytes, 8 << 10..=1 << 20, faults);
    bounds.header_bytes = header.map_or(bounds.header_bytes, |bytes| bytes as usize);
    let streams = bounded::check(file.max_streams, 1..=10_000, faults);
    bounds.streams = streams.map_or(bounds.streams, |streams| streams as u32);
    bounds
}

/// As a file would have them.
pub(super) fn show(bounds: &Bounds, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "max_connections = {}", bounds.connections)?;
    writeln!(f, "max_header_bytes = \"{}\"", show_size(bounds.header_bytes as u64))?;
    writeln!(f, "max_header_fields = {}\nmax_streams = {}", bounds.header_fields, bounds.streams)?;
    writeln!(f, "header_timeout = \"{}\"", span(bounds.header_timeout))?;
    writeln!(f, "write_timeout = \"{}\"", span(bounds.write_timeout))?;
    writeln!(f, "handshake_timeout = \"{}\"", span(bounds.handshake_timeout))?;
    writeln!(f, "drain_timeout = \"{}\"", span(bounds.drain))
}
