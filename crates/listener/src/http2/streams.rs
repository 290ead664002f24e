//! Counts the streams of an HTTP/2 connection and the progress of their responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How many streams of a connection may stay open for a moment after an early response. What arrives on them meanwhile
/// uses the connection's window, which other streams need.
const MAX_LINGERING: u32 = 4;

/// The streams of one connection. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamTracker(Arc<StreamCounts>);

#[derive(Debug, Default)]
struct StreamCounts {
    open: AtomicU32,
    opened: AtomicU32,
    lingering: AtomicU32,
    writes: AtomicU32,
    /// Response bytes that were passed to the connection, and how many of the bytes written since may be among them.
    response_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

/// Counts a stream as open for as long as it is held.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    counts: Arc<StreamCounts>,
    lingers: bool,
}

impl StreamTracker {
    pub(crate) fn open(&self) -> StreamGuard {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        self.0.opened.fetch_add(1, Ordering::Relaxed);
        StreamGuard { counts: Arc::clone(&self.0), lingers: false }
    }

    pub(crate) fn has_open(&self) -> bool {
        self.0.open.load(Ordering::Relaxed) > 0
    }

    /// How many streams there have been. It may wrap, so that only a change of it has a meaning.
    pub(crate) fn opened(&self) -> u32 {
        self.0.opened.load(Ordering::Relaxed)
    }

    /// Counts bytes that were written to the client. They count as progress only up to the number of response bytes:
    /// answers to pings and settings are no progress.
    pub(crate) fn record_write(&self, bytes: usize) {
        let (response_bytes, written_bytes) =
            (self.0.response_bytes.load(Ordering::Relaxed), self.0.written_bytes.load(Ordering::Relaxed));
        let counted = response_bytes.saturating_sub(written_bytes).min(bytes as u64);
        if counted > 0 {
            self.0.written_bytes.fetch_add(counted, Ordering::Relaxed);
            self.0.writes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many writes contained response bytes. As with [`opened`](Self::opened), only a change of it has a meaning.
    pub(crate) fn writes(&self) -> u32 {
        self.0.writes.load(Ordering::Relaxed)
    }
}

impl StreamGuard {
    /// Counts response bytes that were passed to the connection.
    pub(crate) fn add_response_bytes(&self, bytes: u64) {
        self.counts.response_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether the stream may stay open although its response is complete.
    pub(crate) fn may_linger(&mut self) -> bool {
        if !self.lingers {
            let one_more = |lingering| (lingering < MAX_LINGERING).then_some(lingering + 1);
            let counted = self.counts.lingering.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
            self.lingers = counted.is_ok();
        }
        self.lingers
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Ordering::Relaxed);
        self.counts.lingering.fetch_sub(u32::from(self.lingers), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_counts_only_as_far_as_there_are_answers() {
        let streams = StreamTracker::default();
        streams.record_write(4096);
        assert_eq!(streams.writes(), 0, "pongs");
        let answered = streams.open();
        answered.add_response_bytes(100);
        drop(answered);
        for _ in 0..9 {
            streams.record_write(40);
        }
        assert_eq!(streams.writes(), 3, "then the answer is taken, or might be");
    }

    #[test]
    fn a_few_streams_linger_and_their_places_come_back() {
        let streams = StreamTracker::default();
        let mut lingering: Vec<_> = (0..=MAX_LINGERING).map(|_| streams.open()).collect();
        let granted = lingering.iter_mut().filter_map(|stream| stream.may_linger().then_some(())).count();
        assert_eq!(granted, MAX_LINGERING as usize);
        assert!(lingering[0].may_linger(), "once granted, it stays so");
        drop(lingering);
        assert!(streams.open().may_linger() && !streams.has_open());
    }
}
