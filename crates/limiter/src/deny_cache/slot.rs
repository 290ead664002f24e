//! One remembered bucket, which many threads read without waiting.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use spile_core::{Amount, Bucket, Micros};

use crate::bucket_hash::BucketHash;
use crate::bucket_note::BucketNote;

/// A note behind a version: odd while it is written. A reader that meets a writer finds nothing and asks the store.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct NoteSlot {
    version: AtomicU64,
    /// Zero if the slot is free.
    hash: AtomicU64,
    amount: AtomicU64,
    moment: AtomicU64,
    store_heard: AtomicU64,
    sent: AtomicU64,
    heard: AtomicU64,
    /// When the question was sent whose answer one caller is renewing.
    renewed: AtomicU64,
}

impl NoteSlot {
    /// The note, if it is of this bucket.
    pub(super) fn read(&self, hash: BucketHash) -> Option<BucketNote> {
        let version = self.version.load(Ordering::Acquire);
        if !version.is_multiple_of(2) || !self.holds(hash) {
            return None;
        }
        let note = self.note();
        // Orders the loads above before the one below: if the version is still the same, they belong together.
        fence(Ordering::Acquire);
        (self.version.load(Ordering::Relaxed) == version).then_some(note)
    }

    fn note(&self) -> BucketNote {
        let [amount, moment, store_heard, sent, heard] =
            [&self.amount, &self.moment, &self.store_heard, &self.sent, &self.heard]
                .map(|field| field.load(Ordering::Relaxed));
        BucketNote {
            bucket: Bucket::new(Amount::from_micro(amount.cast_signed()), Micros::new(moment)),
            store_heard: Micros::new(store_heard),
            sent: Micros::new(sent),
            heard: Micros::new(heard),
        }
    }

    /// Writes a note, unless the slot has a later one of this bucket. Waits for a thread that is writing.
    pub(super) fn write(&self, hash: BucketHash, note: &BucketNote) {
        let version = self.lock();
        if self.holds(hash) && self.note().is_later_than(note) {
            return self.unlock(version);
        }
        let fields = [
            (&self.hash, hash.get()),
            (&self.amount, note.bucket.amount().micro().cast_unsigned()),
            (&self.moment, note.bucket.moment().get()),
            (&self.store_heard, note.store_heard.get()),
            (&self.sent, note.sent.get()),
            (&self.heard, note.heard.get()),
        ];
        for (field, value) in fields {
            field.store(value, Ordering::Relaxed);
        }
        self.unlock(version);
    }

    /// Removes the note if it is of this bucket. Waits for a thread that is writing one of it.
    pub(super) fn remove(&self, hash: BucketHash) {
        // Most slots have no such note, and are not written to: they stay in the caches of all threads.
        if !self.holds(hash) {
            return;
        }
        let version = self.lock();
        if self.holds(hash) {
            self.hash.store(0, Ordering::Relaxed);
        }
        self.unlock(version);
    }

    /// True for the first caller that wants to renew this note.
    pub(super) fn claim(&self, note: &BucketNote) -> bool {
        let (sent, renewed) = (note.sent.get(), self.renewed.load(Ordering::Relaxed));
        renewed != sent
            && self.renewed.compare_exchange(renewed, sent, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(super) fn holds(&self, hash: BucketHash) -> bool {
        self.hash.load(Ordering::Relaxed) == hash.get()
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn lock(&self) -> u64 {
        let lock = |version: u64| version.is_multiple_of(2).then(|| version.wrapping_add(1));
        loop {
            if let Ok(version) = self.version.fetch_update(Ordering::Acquire, Ordering::Relaxed, lock) {
                // Orders the odd version before the fields that are written under it.
                fence(Ordering::Release);
                return version;
            }
            std::thread::yield_now();
        }
    }

    fn unlock(&self, version: u64) {
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}
