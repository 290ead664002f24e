//! The registry in Redis, which all instances share.
//!
//! Every change makes a new version of the whole. A change is written only onto the version that the writer has checked it against, so
//! that two instances never undo each other's changes or remove an entry that the other relies on. Readers keep a copy, are notified of
//! changes by messages, and also poll.

mod mirror;
mod page;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use spile_redis::{RedisStore, Script, Session, SessionError, Subscription, Value as Reply};

use self::mirror::{Mirror, Version};
use self::page::{NextPage, Page};
use super::{Entries, EntryId, Quarantine, RegistryError, Written};

static READ: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("read.lua")));
static WRITE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("write.lua")));
static RESTORE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("restore.lua")));

/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long putting a whole registry back may take.
const RESTORE_PATIENCE: Duration = Duration::from_secs(10);
/// The approximate size of a page, in bytes of documents. A single document is never larger.
const PAGE_BYTES: &[u8] = b"262144";
/// The most attempts at a write whose outcome is unknown. It takes effect once.
const ATTEMPTS: u32 = 3;
/// How often reading starts over before other tasks get a turn.
const STARTS: u32 = 3;

/// The registry in Redis, and this instance's copy of it.
pub(crate) struct SharedRegistry {
    session: Session,
    keys: [String; 3],
    mirror: Mirror,
}

impl SharedRegistry {
    pub(super) fn new(store: &RedisStore) -> Self {
        let session = store.session("registry");
        let keys = ["entries", "order", "history"].map(|name| session.key(name));
        Self { session, keys, mirror: Mirror::default() }
    }

    /// Receives a message for every change.
    pub(super) fn subscribe(&self) -> Subscription {
        self.session.subscribe()
    }

    /// The version of the copy.
    pub(super) const fn version(&self) -> u64 {
        self.mirror.version.number
    }

    pub(super) const fn entries(&self) -> &Arc<Entries> {
        &self.mirror.entries
    }

    /// Documents of the copy that cannot be read as an entry.
    pub(super) const fn broken(&self) -> &Quarantine {
        &self.mirror.broken
    }

    /// Brings the copy up to date. Returns whether it has changed.
    ///
    /// If Redis has lost documents without a recorded change, they are restored from the copy.
    pub(super) async fn catch_up(&mut self) -> Result<bool, RegistryError> {
        for _ in 0..STARTS {
            let mut next = self.mirror.clone();
            let then = match self.changes(&mut next).await? {
                ReadResult::Current { count, .. } if count >= self.mirror.len() => return Ok(false),
                ReadResult::Current { .. } => {
                    self.restore(&self.mirror.version).await?;
                    continue;
                }
                ReadResult::UpTo(then) => then,
                ReadResult::Gone if self.mirror.len() > 0 => {
                    self.restore(&Version::default()).await?;
                    continue;
                }
                ReadResult::Gone => {
                    self.mirror = Mirror::default();
                    return Ok(true);
                }
            };
            if then == NextPage::Done || self.all(&mut next).await? == NextPage::Done {
                self.mirror = next;
                return Ok(true);
            }
        }
        Err(RegistryError::Busy)
    }

    /// Writes one change onto the version of the copy. The copy is then `next`.
    pub(super) async fn write(
        &mut self,
        which: &EntryId,
        document: Option<&str>,
        next: Arc<Entries>,
    ) -> Result<Written, RegistryError> {
        let name = which.to_string();
        let stamp = stamp()?;
        let number = self.mirror.version.number.to_string();
        let count = self.mirror.len().to_string();
        let mut arguments = vec![
            number.as_bytes(),
            self.mirror.version.stamp.as_bytes(),
            stamp.as_bytes(),
            self.session.channel().as_bytes(),
            count.as_bytes(),
            name.as_bytes(),
        ];
        arguments.extend(document.map(str::as_bytes));
        let reply = self.run_to_an_answer(&WRITE, &arguments).await?;
        let parts = reply.as_array().unwrap_or_default();
        let written = parts.get(1).and_then(Reply::as_str).and_then(|version| version.parse().ok());
        match (parts.first().and_then(Reply::as_str), written) {
            (Some("stale"), _) => Ok(Written::Stale),
            (Some("done"), Some(number)) => {
                self.mirror.mend(&name);
                self.mirror.entries = next;
                self.mirror.version = Version { number, stamp };
                Ok(Written::Yes)
            }
            _ => Err(RegistryError::Unreadable("no reply to a change".to_owned())),
        }
    }

    /// Sends an idempotent script until its outcome is known.
    async fn run_to_an_answer(&self, script: &Script, arguments: &[&[u8]]) -> Result<Reply, RegistryError> {
        let mut unsure = None;
        for _ in 0..ATTEMPTS {
            match self.session.run(script, &self.keys, arguments, PATIENCE).await {
                Ok(reply) => return Ok(reply),
                Err(why) if why.may_have_run() => unsure = Some(why),
                Err(why) => return Err(unsure.map_or(why.into(), RegistryError::Unsure)),
            }
        }
        Err(unsure.map_or(RegistryError::Busy, RegistryError::Unsure))
    }

    /// Follows the changes since the copy was made.
    async fn changes(&self, next: &mut Mirror) -> Result<ReadResult, RegistryError> {
        let mut first = true;
        loop {
            let page = self.page(&next.version, None).await?;
            if page.then == NextPage::Lost {
                // Starts over, from the version that is the latest now.
                let gone = page.head.number == 0;
                *next = Mirror::at(page.head);
                return Ok(if gone { ReadResult::Gone } else { ReadResult::UpTo(NextPage::Lost) });
            }
            if first && page.is_empty() {
                return Ok(ReadResult::Current { documents: page.documents, count: page.count });
            }
            first = false;
            page.note_in(next);
            next.version = page.at;
            if page.then == NextPage::Done {
                return Ok(ReadResult::UpTo(NextPage::Done));
            }
        }
    }

    /// Reads all entries, page by page, and then those that have changed meanwhile.
    async fn all(&self, next: &mut Mirror) -> Result<NextPage, RegistryError> {
        let mut after = 0;
        loop {
            let page = self.page(&next.version, Some(after)).await?;
            if page.then == NextPage::Lost {
                return Ok(NextPage::Lost);
            }
            page.note_in(next);
            after = page.at.number;
            if page.then == NextPage::Done {
                break;
            }
        }
        match self.changes(next).await? {
            ReadResult::Current { documents, .. } if documents > 0 && next.len() == 0 => {
                Err(RegistryError::Unreadable(format!("{} lists none of {documents} entries", self.keys[1])))
            }
            ReadResult::Current { documents, .. } => {
                if let Some(unlisted) = documents.checked_sub(next.len()).filter(|unlisted| *unlisted > 0) {
                    let why = format!("{} does not list {unlisted} of {documents} entries", self.keys[1]);
                    next.broken.add("order", why);
                }
                Ok(NextPage::Done)
            }
            ReadResult::UpTo(then) => Ok(then),
            ReadResult::Gone => Ok(NextPage::Lost),
        }
    }

    async fn page(&self, since: &Version, after: Option<u64>) -> Result<Page, RegistryError> {
        let number = since.number.to_string();
        let after = after.map(|after| after.to_string()).unwrap_or_default();
        let arguments = [number.as_bytes(), since.stamp.as_bytes(), after.as_bytes(), PAGE_BYTES];
        let reply = self.session.run(&READ, &self.keys, &arguments, PATIENCE).await?;
        Page::read(reply).ok_or_else(|| RegistryError::Unreadable("a reply of another shape".to_owned()))
    }

    /// Restores the copy if Redis has lost all or part of it. `head` is the version in Redis, which must be unchanged. The first instance
    /// restores it, and the others then read it.
    async fn restore(&self, head: &Version) -> Result<(), RegistryError> {
        let count = self.mirror.len();
        let version = self.mirror.version.number.max(count as u64) + 1;
        let documents: Vec<Vec<u8>> =
            self.mirror.documents().flat_map(|(name, document)| [name.into_bytes(), document]).collect();
        let (version, stamp) = (version.to_string(), stamp()?);
        let (head_number, expected) = (head.number.to_string(), count.to_string());
        let mut arguments = vec![
            head_number.as_bytes(),
            head.stamp.as_bytes(),
            version.as_bytes(),
            stamp.as_bytes(),
            self.session.channel().as_bytes(),
            expected.as_bytes(),
        ];
        arguments.extend(documents.iter().map(Vec::as_slice));
        let reply = self.session.run(&RESTORE, &self.keys, &arguments, RESTORE_PATIENCE).await?;
        if reply.as_array().and_then(|parts| parts.first()?.as_str()) == Some("done") {
            tracing::warn!(
                target: "spile::registry",
                "Redis has lost entries of the registry: all {count} were put back from memory"
            );
        }
        Ok(())
    }
}

/// The result of reading changes.
enum ReadResult {
    /// No changes.
    Current {
        /// The number of documents.
        documents: usize,
        /// The number of documents, or of the names in their order if those are fewer.
        count: usize,
    },
    UpTo(NextPage),
    /// There is no registry any more.
    Gone,
}

fn stamp() -> Result<String, RegistryError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|why| RegistryError::Unreadable(why.to_string()))?;
    Ok(hex::encode(bytes))
}

impl From<SessionError> for RegistryError {
    fn from(why: SessionError) -> Self {
        match why {
            SessionError::Refused(text) => Self::Unreadable(text),
            why => Self::OutOfReach(why),
        }
    }
}
