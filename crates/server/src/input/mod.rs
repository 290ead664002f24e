//! Inputs of people and programs in bodies, paths and flags: parsed into types, or refused by the name of the field.

pub(crate) mod fault;
pub(crate) mod permit_ticket;
pub(crate) mod recorded_chain;
pub(crate) mod tokens;
pub(crate) mod typed;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// A name as one segment of a URL's path, percent-encoded except for the unreserved characters of RFC 3986.
pub(crate) fn segment(name: &str) -> String {
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(name, ESCAPED).to_string()
}
