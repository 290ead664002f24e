//! The registry: entries that instances share, and entries that do not fit the file.

mod fleet;
mod quarantine;
