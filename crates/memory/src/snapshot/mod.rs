//! Snapshots: all buckets of a store as bytes, for another process to restore.
//!
//! A header (magic, version, seeds, time), one block of buckets per shard, a trailer with their number, and the permits that
//! are held. Each part has a checksum. Numbers are little-endian. Keys are not saved, only fingerprints: a snapshot shows no key, but its
//! holder can test guessed ones.

pub(crate) mod auto_save;
pub(crate) mod file;

use std::io::{self, BufReader, ErrorKind, Read, Write};

use spile_core::{Clock, Key, Limit, LimitName, Micros, NamedLimit, PermitId};

use crate::store::{MemoryStore, MemoryStoreBuilder};
use crate::table::entry::BucketEntry;
use crate::table::fingerprint::{Fingerprint, Fingerprinter, Seeds};
use crate::table::now::Now;

const MAGIC: [u8; 8] = *b"spile\0bk";
const VERSION: u32 = 3;
/// Marks the trailer: the count of an empty block, which is never written.
const END: u32 = 0;

/// The result of a save.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Saved {
    /// The number of saved buckets. Full buckets are not saved.
    pub buckets: u64,
    /// The checksum of all blocks: equal for equal buckets of one store.
    pub(crate) digest: u32,
}

/// Why a snapshot cannot be restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The data is not a snapshot.
    #[error("this is not a snapshot of buckets")]
    Foreign,
    /// The snapshot has another version of the format.
    #[error("it has format {0}, and this version reads format {VERSION}")]
    OtherFormat(u32),
    /// The snapshot was made by a version that hashes keys in another way: its buckets would never be found.
    #[error("it was made by a version that hashes keys in another way")]
    OtherHash,
    /// A part is missing or damaged.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// The snapshot cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
}

impl<C: Clock> MemoryStore<C> {
    /// Writes every bucket that is not full. Locks one shard at a time while it is copied, so decisions continue meanwhile, and the
    /// buckets of different shards are from slightly different times.
    ///
    /// Writes one large piece per shard, so `to` needs no buffer.
    pub fn save(&self, mut to: impl Write) -> io::Result<Saved> {
        let (now, wall) = (Now::of(&self.clock), self.clock.wall());
        let (seeds, probe) = (self.fingerprinter.seeds(), probe(&self.fingerprinter));
        to.write_all(&SnapshotHeader { seeds, probe, now: now.steady, wall }.to_bytes())?;
        let (mut copied, mut block, mut permits) = (Vec::new(), Vec::new(), Vec::new());
        let (mut buckets, mut digest) = (0_u64, crc32fast::Hasher::new());
        for shard in &self.shards {
            copied.clear();
            // Memory is reserved before the lock is taken, so that decisions do not wait for the allocator.
            let slots = shard.lock().table.slots.len();
            copied.reserve(slots);
            // Copies free slots, too: the fastest way, since the lock is held meanwhile.
            copied.extend_from_slice(&shard.lock().table.slots);
            copied.retain(|entry| !entry.is_empty() && entry.level(now) < 1.0);
            if copied.is_empty() {
                continue;
            }
            block.clear();
            block.extend((copied.len() as u32).to_le_bytes());
            for entry in &copied {
                block.extend_from_slice(entry.to_bytes().as_flattened());
            }
            write_part(&mut to, &mut block, &mut digest)?;
            buckets += copied.len() as u64;
        }
        let mut end = Vec::from(END.to_le_bytes());
        end.extend(buckets.to_le_bytes());
        seal(&mut end);
        to.write_all(&end)?;
        for shard in &self.shards {
            permits.extend(
                shard.lock().permits.iter().map(|(fingerprint, id, until)| (fingerprint, id.clone(), until)),
            );
        }
        let mut block = Vec::from((permits.len() as u32).to_le_bytes());
        for (fingerprint, id, until) in permits {
            block.extend(
                [fingerprint.place, fingerprint.check, until.get()].into_iter().flat_map(u64::to_le_bytes),
            );
            // Ids are shorter than 256 bytes.
            block.push(id.as_str().len() as u8);
            block.extend(id.as_str().as_bytes());
        }
        write_part(&mut to, &mut block, &mut digest)?;
        to.flush()?;
        Ok(Saved { buckets, digest: digest.finalize() })
    }
}

impl<C: Clock> MemoryStoreBuilder<C> {
    /// A store with the buckets of a snapshot, refilled for the time in between. If the clock is behind the snapshot,
    /// buckets keep their tokens and refill from now, as after any backward step of the clock.
    pub fn restore(self, from: impl Read) -> Result<MemoryStore<C>, RestoreError> {
        let mut from = ChecksumReader::new(BufReader::with_capacity(64 * 1024, from));
        let header = SnapshotHeader::read(&mut from)?;
        let store = self.build_with(Fingerprinter::seeded(header.seeds));
        if probe(&store.fingerprinter) != header.probe {
            return Err(RestoreError::OtherHash);
        }
        let now = Now::of(&store.clock);
        // Times are converted by the wall clock, because the clocks of the two stores may differ.
        let here = Micros::new(header.wall.plus_us(now.steady.get()).since_us(store.clock.wall()));
        let (mut buckets, mut block) = (0, Vec::new());
        while let count @ 1.. = u32::from_le_bytes(from.take()?) {
            block.clear();
            for _ in 0..count {
                let entry = BucketEntry::from_bytes(&from.take()?)
                    .ok_or(RestoreError::Damaged("no bucket is like this"))?;
                block.push(entry.by_another_clock(header.now, here));
            }
            from.check()?;
            buckets += u64::from(count);
            block.retain(|entry| entry.level(now) < 1.0);
            store.put_back(&mut block, now);
        }
        if u64::from_le_bytes(from.take()?) != buckets {
            return Err(RestoreError::Damaged("buckets are missing"));
        }
        from.check()?;
        let since_us = here.get().cast_signed() - header.now.get().cast_signed();
        restore_permits(&mut from, &store, since_us)?;
        from.end()?;
        Ok(store)
    }
}

/// Adds the permits of a snapshot, and moves them forward by the time that its clock was behind.
fn restore_permits<C: Clock>(
    from: &mut ChecksumReader<impl Read>,
    store: &MemoryStore<C>,
    behind_us: i64,
) -> Result<(), RestoreError> {
    let mut permits = Vec::new();
    for _ in 0..u32::from_le_bytes(from.take()?) {
        let mut word = || from.take().map(u64::from_le_bytes);
        let (fingerprint, until) = (Fingerprint { place: word()?, check: word()? }, word()?);
        let [bytes] = from.take()?;
        let text = (0..bytes).map(|_| from.take().map(|[byte]| byte)).collect::<Result<Vec<u8>, _>>()?;
        let id = std::str::from_utf8(&text).ok().and_then(|text| PermitId::parse(text).ok());
        let id = id.ok_or(RestoreError::Damaged("no permit is like this"))?;
        permits.push((fingerprint, id, Micros::new(until.saturating_add_signed(behind_us))));
    }
    from.check()?;
    for (fingerprint, id, until) in permits {
        store.shards[store.shard(fingerprint)].lock().permits.hold(fingerprint, &id, until);
    }
    Ok(())
}

/// The header of a snapshot.
struct SnapshotHeader {
    seeds: Seeds,
    /// The fingerprint of a fixed key, to check that keys are still hashed in the same way.
    probe: Fingerprint,
    /// The time by the store's clock, which the buckets use, and by the wall clock at the same moment.
    now: Micros,
    wall: Micros,
}

impl SnapshotHeader {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::from(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        let words = [self.probe.place, self.probe.check, self.now.get(), self.wall.get()];
        bytes.extend(self.seeds.0.into_iter().chain(words).flat_map(u64::to_le_bytes));
        seal(&mut bytes);
        bytes
    }

    fn read(from: &mut ChecksumReader<impl Read>) -> Result<Self, RestoreError> {
        let magic: [u8; 8] = from.take()?;
        if magic != MAGIC {
            return Err(RestoreError::Foreign);
        }
        let version = u32::from_le_bytes(from.take()?);
        if version != VERSION {
            return Err(RestoreError::OtherFormat(version));
        }
        let mut word = || from.take().map(u64::from_le_bytes);
        let seeds = Seeds([word()?, word()?, word()?, word()?]);
        let probe = Fingerprint { place: word()?, check: word()? };
        let (now, wall) = (Micros::new(word()?), Micros::new(word()?));
        from.check()?;
        Ok(Self { seeds, probe, now, wall })
    }
}

fn probe(fingerprinter: &Fingerprinter) -> Fingerprint {
    let key = Key::new("a key that is never used").expect("a word is a key");
    let limit = Limit::per_second(1).build().expect("a token is within bounds");
    fingerprinter.of(key, &NamedLimit::new(LimitName::new("probe").expect("a word is a name"), limit))
}

/// Writes a part with its checksum. The digest leaves that out: the CRC of data followed by its CRC is constant.
fn write_part(to: &mut impl Write, part: &mut Vec<u8>, digest: &mut crc32fast::Hasher) -> io::Result<()> {
    digest.update(part);
    seal(part);
    to.write_all(part)
}

fn seal(bytes: &mut Vec<u8>) {
    let sum = crc32fast::hash(bytes);
    bytes.extend(sum.to_le_bytes());
}

/// A reader that checks the checksum at the end of each part.
struct ChecksumReader<R> {
    from: R,
    sum: crc32fast::Hasher,
}

impl<R: Read> ChecksumReader<R> {
    fn new(from: R) -> Self {
        Self { from, sum: crc32fast::Hasher::new() }
    }

    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], RestoreError> {
        let mut bytes = [0; BYTES];
        self.from.read_exact(&mut bytes).map_err(|why| match why.kind() {
            ErrorKind::UnexpectedEof => RestoreError::Damaged("its end is missing"),
            _ => RestoreError::Unreadable(why),
        })?;
        self.sum.update(&bytes);
        Ok(bytes)
    }

    /// Reads the checksum of the part that ends here, and compares it.
    fn check(&mut self) -> Result<(), RestoreError> {
        let sum = self.sum.clone().finalize();
        let is_sound = u32::from_le_bytes(self.take()?) == sum;
        self.sum.reset();
        is_sound.then_some(()).ok_or(RestoreError::Damaged("a checksum does not match"))
    }

    fn end(mut self) -> Result<(), RestoreError> {
        match self.from.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(RestoreError::Damaged("data follows its end")),
        }
    }
}
