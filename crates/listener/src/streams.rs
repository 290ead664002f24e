//! What the parts of one HTTP/2 connection know of each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Streams of one connection that stay open for a moment after an early answer. What arrives on them meanwhile uses up
/// the connection's window, which others need.
const MAX_LINGERING: u32 = 4;

/// The streams of one connection. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    under_way: AtomicU32,
    ever: AtomicU32,
    lingering: AtomicU32,
    writes: AtomicU32,
    /// Bytes of answers that were given to the connection, and how many of what it wrote since may have been those.
    handed: AtomicU64,
    taken: AtomicU64,
}

/// A stream that is under way for as long as this is held.
#[derive(Debug)]
pub(crate) struct UnderWay {
    counts: Arc<Counts>,
    lingers: bool,
}

impl Streams {
    pub(crate) fn begin(&self) -> UnderWay {
        self.0.under_way.fetch_add(1, Ordering::Relaxed);
        self.0.ever.fetch_add(1, Ordering::Relaxed);
        UnderWay { counts: Arc::clone(&self.0), lingers: false }
    }

    pub(crate) fn any(&self) -> bool {
        self.0.under_way.load(Ordering::Relaxed) > 0
    }

    /// How many there have been. Starts over after very many: only whether it has changed says anything.
    pub(crate) fn ever(&self) -> u32 {
        self.0.ever.load(Ordering::Relaxed)
    }

    /// The client's side took some of what was written. That counts only as far as there are answers to take: what is
    /// said to pings and settings, however much of it, shows no interest in any.
    pub(crate) fn wrote(&self, bytes: usize) {
        let (handed, taken) = (self.0.handed.load(Ordering::Relaxed), self.0.taken.load(Ordering::Relaxed));
        let counted = handed.saturating_sub(taken).min(bytes as u64);
        if counted > 0 {
            self.0.taken.fetch_add(counted, Ordering::Relaxed);
            self.0.writes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often it took some of an answer. As with [`ever`](Self::ever), only a change says anything.
    pub(crate) fn writes(&self) -> u32 {
        self.0.writes.load(Ordering::Relaxed)
    }
}

impl UnderWay {
    /// So many bytes of its answer were given to the connection.
    pub(crate) fn hand(&self, bytes: u64) {
        self.counts.handed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether the stream may stay open though everything is said on it.
    pub(crate) fn may_linger(&mut self) -> bool {
        if !self.lingers {
            let one_more = |lingering| (lingering < MAX_LINGERING).then_some(lingering + 1);
            let counted = self.counts.lingering.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
            self.lingers = counted.is_ok();
        }
        self.lingers
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.counts.under_way.fetch_sub(1, Ordering::Relaxed);
        self.counts.lingering.fetch_sub(u32::from(self.lingers), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_counts_only_as_far_as_there_are_answers() {
        let streams = Streams::default();
        streams.wrote(4096);
        assert_eq!(streams.writes(), 0, "pongs");
        let answered = streams.begin();
        answered.hand(100);
        drop(answered);
        for _ in 0..9 {
            streams.wrote(40);
        }
        assert_eq!(streams.writes(), 3, "then the answer is taken, or might be");
    }

    #[test]
    fn a_few_streams_linger_and_their_places_come_back() {
        let streams = Streams::default();
        let mut lingering: Vec<_> = (0..=MAX_LINGERING).map(|_| streams.begin()).collect();
        let granted = lingering.iter_mut().filter_map(|stream| stream.may_linger().then_some(())).count();
        assert_eq!(granted, MAX_LINGERING as usize);
        assert!(lingering[0].may_linger(), "once granted, it stays so");
        drop(lingering);
        assert!(streams.begin().may_linger() && !streams.any());
    }
}
