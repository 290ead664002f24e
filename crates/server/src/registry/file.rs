//! Where entries survive a restart: a file of its own, in which every change is whole or not there.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::entries::{Entries, Kind};

/// `plans/gold` to the document in JSON.
const ENTRIES: TableDefinition<'_, &str, &str> = TableDefinition::new("entries");

/// The file, or nothing: then entries live as long as the process.
pub(crate) struct RegistryFile(Option<Database>);

impl RegistryFile {
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, RegistryFileError> {
        let Some(path) = path else { return Ok(Self(None)) };
        let database = Database::create(path).map_err(|why| RegistryFileError(why.into()))?;
        Ok(Self(Some(database)))
    }

    /// Everything that was kept.
    pub(crate) fn read(&self) -> Result<Entries, RegistryFileError> {
        let mut entries = Entries::default();
        let Some(database) = &self.0 else { return Ok(entries) };
        let read = || -> Result<Vec<(String, String)>, redb::Error> {
            let transaction = database.begin_read()?;
            let table = match transaction.open_table(ENTRIES) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                table => table?,
            };
            let rows = table
                .iter()?
                .map(|row| row.map(|(key, value)| (key.value().to_owned(), value.value().to_owned())));
            Ok(rows.collect::<Result<_, _>>()?)
        };
        for (key, document) in read().map_err(RegistryFileError)? {
            let Some((kind, name)) = key.split_once('/') else { continue };
            if let (Some(kind), Ok(document)) = (Kind::parse(kind), serde_json::from_str(&document)) {
                entries.put(kind, name, document);
            }
        }
        Ok(entries)
    }

    /// Keeps the document, or forgets it where there is none any more. On the disk once this returns.
    pub(crate) fn write(&self, key: &str, document: Option<&str>) -> Result<(), RegistryFileError> {
        let Some(database) = &self.0 else { return Ok(()) };
        let write = || -> Result<(), redb::Error> {
            let transaction = database.begin_write()?;
            {
                let mut table = transaction.open_table(ENTRIES)?;
                match document {
                    Some(document) => drop(table.insert(key, document)?),
                    None => drop(table.remove(key)?),
                }
            }
            transaction.commit()?;
            Ok(())
        };
        write().map_err(RegistryFileError)
    }
}

/// A registry file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the registry file cannot be used: {0}")]
pub(crate) struct RegistryFileError(redb::Error);
