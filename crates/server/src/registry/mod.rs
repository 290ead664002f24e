//! What was changed while the server ran: entries that stand above those of the file.

mod entries;
mod file;

pub(crate) use self::entries::{Entries, Kind};
pub(crate) use self::file::{RegistryFile, RegistryFileError};
