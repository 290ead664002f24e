//! The registry in a file, in which entries survive a restart and every change is atomic.
//!
//! The database rejects all writes after a disk error. It is then reopened, with growing pauses, and synchronized with the entries in
//! force before the next change is written.

use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redb::backends::InMemoryBackend;
use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend, Table, TableDefinition,
};
use spile_core::{Clock, Micros, SystemClock};

use super::entries::{Entries, EntryId};
use super::quarantine::{NO_ENTRY, Quarantine};
use crate::config::Spec;

/// Maps `plans/gold` to its document in JSON.
const ENTRIES: TableDefinition<'_, &str, &str> = TableDefinition::new("entries");

/// Readable by its owner alone: it holds hashes of API keys, and names of tenants.
const MODE: u32 = 0o600;

/// The pause after the first failure. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The file, or `None`: entries then live as long as the process.
pub(crate) struct RegistryFile(Option<Mutex<KeptRegistry>>);

/// Opens the database.
type Open = Box<dyn Fn() -> Result<Database, redb::Error> + Send>;

struct KeptRegistry {
    open: Open,
    /// `None` after a failure, until it is opened again.
    database: Option<Database>,
    clock: Box<dyn Clock>,
    /// How often it has failed since it last worked.
    failures: u32,
    retry_at: Micros,
}

impl RegistryFile {
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, RegistryFileError> {
        let Some(path) = path.map(Path::to_owned) else { return Ok(Self(None)) };
        Self::opened_by(Box::new(move || open_private(&path)), Box::new(SystemClock::new()))
    }

    fn opened_by(open: Open, clock: Box<dyn Clock>) -> Result<Self, RegistryFileError> {
        let open: Open = Box::new(move || sound(&open));
        let database = Some(open().map_err(RegistryFileError::Failed)?);
        Ok(Self(Some(Mutex::new(KeptRegistry {
            open,
            database,
            clock,
            failures: 0,
            retry_at: Micros::default(),
        }))))
    }

    /// Reads every entry, and puts documents that cannot be read in quarantine.
    pub(crate) fn read(&self) -> Result<(Entries, Quarantine), RegistryFileError> {
        let Some(kept) = &self.0 else { return Ok(Default::default()) };
        let kept = kept.lock();
        let rows = kept.database.as_ref().map(|database| sound(|| rows(&database.begin_read()?))).transpose();
        Ok(sorted(rows.map_err(RegistryFileError::Failed)?.unwrap_or_default()))
    }

    /// Reads a copy of a file in memory. A server may be using the file, or may have been killed while it did.
    pub(crate) fn look(path: &Path) -> Result<(Entries, Quarantine), RegistryFileError> {
        let look = || copied(&std::fs::read(path)?);
        Ok(sorted(sound(look).map_err(RegistryFileError::Failed)?))
    }

    /// Stores the document, or removes it if it is `None`. The change is on disk once this returns. `known` holds the entries before it,
    /// in case the file has to be synchronized with them.
    pub(crate) fn write(
        &self,
        key: &str,
        document: Option<&str>,
        known: &Entries,
    ) -> Result<(), RegistryFileError> {
        match &self.0 {
            Some(kept) => kept.lock().write(key, document, known),
            None => Ok(()),
        }
    }
}

impl KeptRegistry {
    fn write(&mut self, key: &str, document: Option<&str>, known: &Entries) -> Result<(), RegistryFileError> {
        let now = self.clock.now();
        if self.database.is_none() && now < self.retry_at {
            let wait = Duration::from_micros(self.retry_at.since_us(now));
            return Err(RegistryFileError::Resting(wait));
        }
        let written = sound(|| self.try_write(key, document, known));
        match &written {
            Ok(()) if self.failures > 0 => {
                self.failures = 0;
                tracing::info!(target: "spile::registry", "the registry file is written again");
            }
            Ok(()) => {}
            Err(why) => {
                let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
                self.failures = self.failures.saturating_add(1);
                // Dropped before it is opened again: the file is locked for as long as it lives.
                self.database = None;
                self.retry_at = self.clock.now() + pause;
                tracing::error!(
                    target: "spile::registry",
                    "the registry file failed, and is opened again in {pause:?}: {why}"
                );
            }
        }
        written.map_err(RegistryFileError::Failed)
    }

    fn try_write(&mut self, key: &str, document: Option<&str>, known: &Entries) -> Result<(), redb::Error> {
        let reopened = self.database.is_none();
        let database = match &mut self.database {
            Some(database) => database,
            none => none.insert((self.open)()?),
        };
        let transaction = database.begin_write()?;
        {
            let mut table = transaction.open_table(ENTRIES)?;
            if reopened {
                bring_in_line(&mut table, known)?;
            }
            match document {
                Some(document) => drop(table.insert(key, document)?),
                None => drop(table.remove(key)?),
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

/// Makes the file hold the entries in force, whether or not the failed change reached the disk. Documents that cannot be read are left as
/// they are.
fn bring_in_line(table: &mut Table<'_, &str, &str>, known: &Entries) -> Result<(), redb::Error> {
    let mut gone = Vec::new();
    for row in table.iter()? {
        let (key, document) = row?;
        let is_gone = |which: &EntryId| {
            known.get(which.kind, &which.name).is_none()
                && Spec::read_text(which, document.value().as_bytes()).is_ok()
        };
        if EntryId::parse(key.value()).as_ref().is_some_and(is_gone) {
            gone.push(key.value().to_owned());
        }
    }
    for key in gone {
        table.remove(key.as_str())?;
    }
    for (kind, name, spec) in known.iter() {
        table.insert(format!("{kind}/{name}").as_str(), spec.to_json().to_string().as_str())?;
    }
    Ok(())
}

/// Returns the answer of the database, or an error if its file is damaged: a truncated or overwritten file makes it panic.
fn sound<T>(ask: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, redb::Error> {
    catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|_panic| {
        Err(redb::Error::Corrupted("it was cut short, or overwritten by another program".to_owned()))
    })
}

/// Opens the file for its owner alone, even if others could read it before.
fn open_private(path: &Path) -> Result<Database, redb::Error> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(MODE).open(path)?;
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        tighten(&file, path)?;
    }
    Ok(Database::builder().create_file(file)?)
}

/// Restricts the file's permissions. A file of another owner cannot be restricted, and can still be used.
fn tighten(file: &std::fs::File, path: &Path) -> io::Result<()> {
    match file.set_permissions(Permissions::from_mode(MODE)) {
        Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
            tracing::warn!(
                target: "spile::registry",
                "others may read the registry file {}, and it belongs to another user: {why}",
                path.display()
            );
            Ok(())
        }
        done => done,
    }
}

/// The documents in these bytes of a file.
fn copied(bytes: &[u8]) -> Result<Vec<(String, String)>, redb::Error> {
    let copy = InMemoryBackend::new();
    copy.set_len(bytes.len() as u64)?;
    copy.write(0, bytes)?;
    rows(&Database::builder().create_with_backend(copy)?.begin_read()?)
}

fn rows(transaction: &ReadTransaction) -> Result<Vec<(String, String)>, redb::Error> {
    let table = match transaction.open_table(ENTRIES) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        table => table?,
    };
    let rows =
        table.iter()?.map(|row| row.map(|(key, value)| (key.value().to_owned(), value.value().to_owned())));
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Separates entries from documents that cannot be read.
fn sorted(rows: Vec<(String, String)>) -> (Entries, Quarantine) {
    let (mut entries, mut broken) = (Entries::default(), Quarantine::default());
    for (key, document) in rows {
        let read = |which: EntryId| Ok((Spec::read_text(&which, document.as_bytes())?, which));
        match EntryId::parse(&key).ok_or_else(|| NO_ENTRY.to_owned()).and_then(read) {
            Ok((spec, which)) => entries.set(&which, Some(Arc::new(spec))),
            Err(why) => broken.add(&key, why),
        }
    }
    (entries, broken)
}

/// A registry file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistryFileError {
    #[error("the registry file cannot be used: {0}")]
    Failed(redb::Error),
    /// The pause after a failure is not over. Nothing was tried.
    #[error("the registry file failed, and is opened again in {0:?}: try again then")]
    Resting(Duration),
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use spile_core::FakeClock;

    use super::*;
    use crate::registry::Kind;

    /// A disk that outlives the database and fails on demand.
    #[derive(Clone, Debug, Default)]
    struct Disk {
        bytes: Arc<InMemoryBackend>,
        fails: Arc<AtomicBool>,
        opened: Arc<AtomicU32>,
    }

    impl Disk {
        fn works(&self) -> io::Result<()> {
            let fails = self.fails.load(Ordering::Relaxed);
            if fails { Err(io::Error::other("the disk is on fire")) } else { Ok(()) }
        }

        fn fail(&self, fails: bool) {
            self.fails.store(fails, Ordering::Relaxed);
        }

        fn file(&self, clock: &FakeClock) -> RegistryFile {
            let disk = self.clone();
            let open = move || {
                disk.opened.fetch_add(1, Ordering::Relaxed);
                disk.works()?;
                Ok(Database::builder().create_with_backend(disk.clone())?)
            };
            RegistryFile::opened_by(Box::new(open), Box::new(clock.clone())).expect("the disk works")
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            self.bytes.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.works()?;
            self.bytes.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.works()?;
            self.bytes.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.works()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.works()?;
            self.bytes.write(offset, data)
        }
    }

    fn entries(names: &[&str]) -> Entries {
        let mut entries = Entries::default();
        for name in names {
            let which = EntryId { kind: Kind::Plans, name: (*name).to_owned() };
            let spec = Spec::read_text(&which, br#"{"refill":"1/s"}"#).expect("it is a plan");
            entries.set(&which, Some(Arc::new(spec)));
        }
        entries
    }

    fn names(file: &RegistryFile) -> Vec<String> {
        let (entries, _) = file.read().expect("the disk works");
        entries.iter().map(|(_, name, _)| name.to_owned()).collect()
    }

    const DOCUMENT: Option<&str> = Some(r#"{"refill":"1/s"}"#);

    #[test]
    fn a_file_that_failed_is_opened_again_and_holds_what_is_in_force_and_the_next_change() {
        let (disk, clock) = (Disk::default(), FakeClock::default());
        let file = disk.file(&clock);
        file.write("plans/a", DOCUMENT, &entries(&[])).expect("the disk works");
        disk.fail(true);
        file.write("plans/b", DOCUMENT, &entries(&["a"])).expect_err("the disk fails");
        disk.fail(false);
        clock.advance(LONGEST_PAUSE);
        file.write("plans/c", DOCUMENT, &entries(&["a"])).expect("it is opened again");
        assert_eq!(names(&file), ["a", "c"]);
        file.write("plans/d", DOCUMENT, &entries(&["a", "c"])).expect("it stays so");
        assert_eq!(disk.opened.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn fuzzed_rows_are_entries_or_are_quarantined_by_name() {
        spile_testkit::fuzz::fuzz(
            "registry-rows",
            &["plans/", "rules/", "tenants/", "\n", "{}", "[", "null"],
            |bytes| {
                let text = String::from_utf8_lossy(bytes);
                let rows: Vec<(String, String)> = text
                    .split('\n')
                    .filter_map(|line| line.split_once(' '))
                    .map(|(key, document)| (key.to_owned(), document.to_owned()))
                    .collect();
                let names: std::collections::BTreeSet<&String> = rows.iter().map(|(key, _)| key).collect();
                let (entries, broken) = sorted(rows.clone());
                let told = |name: &str| broken.iter().any(|(entry, why)| entry == name && !why.is_empty());
                for name in &names {
                    let which = EntryId::parse(name);
                    let kept = which.is_some_and(|which| entries.get(which.kind, &which.name).is_some());
                    assert!(kept || told(name), "{name} is neither kept nor told of");
                }
                let again = entries
                    .iter()
                    .map(|(kind, name, spec)| (format!("{kind}/{name}"), spec.to_json().to_string()));
                let (same, none) = sorted(again.collect());
                // Numbers of very many digits are rounded, and again when they are read.
                let names = |entries: &Entries| {
                    entries.iter().map(|(kind, name, _)| format!("{kind}/{name}")).collect::<Vec<_>>()
                };
                assert_eq!((names(&same), none.iter().count()), (names(&entries), 0));
                (entries.len().min(4), broken.iter().count().min(4))
            },
        );
    }

    #[test]
    fn a_file_that_was_cut_short_is_refused_with_a_reason_and_not_by_a_panic() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("registry");
        let file = RegistryFile::open(Some(&path)).expect("the folder is ours");
        file.write("plans/a", DOCUMENT, &entries(&[])).expect("the disk works");
        drop(file);
        let whole = std::fs::read(&path).expect("it was written");
        for kept in [1, 100, 4_096, 64 * 1024, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..kept]).expect("the folder is ours");
            let looked = RegistryFile::look(&path).map(drop).map_err(|why| why.to_string());
            let opened = RegistryFile::open(Some(&path)).and_then(|file| file.read().map(drop));
            for why in [looked, opened.map_err(|why| why.to_string())] {
                let why = why.expect_err("it is damaged");
                assert!(why.starts_with("the registry file cannot be used: "), "{why}");
            }
        }
    }

    #[test]
    fn fuzzed_lengths_of_a_file_are_read_or_refused_with_a_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("registry");
        let file = RegistryFile::open(Some(&path)).expect("the folder is ours");
        file.write("plans/a", DOCUMENT, &entries(&[])).expect("the disk works");
        drop(file);
        let whole = std::fs::read(&path).expect("it was written");
        // Three bytes are the length at which the file is cut, and the rest is appended there. Bytes inside are not changed: the database
        // trusts the sizes that it reads, and some exceed the memory.
        spile_testkit::fuzz::fuzz("registry-file", &[], |input| {
            let (length, behind) = input.split_at(input.len().min(3));
            let length = length.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
            let bytes = [&whole[..length.min(whole.len())], behind].concat();
            match sound(|| copied(&bytes)) {
                Ok(rows) => (rows.len(), String::new()),
                Err(why) => (0, why.to_string().chars().take(60).collect()),
            }
        });
    }

    #[test]
    fn a_disk_that_keeps_failing_is_tried_less_and_less_often() {
        let (disk, clock) = (Disk::default(), FakeClock::default());
        let file = disk.file(&clock);
        disk.fail(true);
        let known = entries(&[]);
        // One hour of a change each 50 milliseconds.
        for _ in 0..72_000 {
            file.write("plans/a", DOCUMENT, &known).expect_err("the disk fails");
            clock.advance(Duration::from_millis(50));
        }
        let opened = disk.opened.load(Ordering::Relaxed);
        assert!((300..500).contains(&opened), "opened {opened} times in an hour");
        disk.fail(false);
        clock.advance(LONGEST_PAUSE);
        file.write("plans/a", DOCUMENT, &known).expect("it works again");
    }

    #[test]
    fn what_cannot_be_read_is_told_and_left_as_it_is() {
        let (disk, clock) = (Disk::default(), FakeClock::default());
        let file = disk.file(&clock);
        for (key, document) in [("plans/a", "{}"), ("plans/b", "{"), ("shoes/c", "{}")] {
            file.write(key, Some(document), &entries(&[])).expect("the disk works");
        }
        disk.fail(true);
        file.write("plans/d", DOCUMENT, &entries(&["a"])).expect_err("the disk fails");
        disk.fail(false);
        clock.advance(LONGEST_PAUSE);
        file.write("plans/d", DOCUMENT, &entries(&["a"])).expect("it is opened again");
        let (_, broken) = file.read().expect("the disk works");
        let broken: Vec<&str> = broken.iter().map(|(entry, _)| entry).collect();
        assert_eq!(broken, ["plans/b", "shoes/c"]);
        assert_eq!(names(&file), ["a", "d"]);
    }
}
