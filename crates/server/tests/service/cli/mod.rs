//! The command line: what commands print, ask and end with.

mod convert;
mod process;
mod server;
mod store;
mod terminal;
