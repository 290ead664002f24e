//! How many streams of one HTTP/2 connection are under way, for whoever has to tell an idle one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The streams of one connection. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    under_way: AtomicU32,
    ever: AtomicU32,
}

/// A stream that is under way for as long as this is held.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Counts>);

impl Streams {
    pub(crate) fn begin(&self) -> UnderWay {
        self.0.under_way.fetch_add(1, Ordering::Relaxed);
        self.0.ever.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(&self.0))
    }

    pub(crate) fn any(&self) -> bool {
        self.0.under_way.load(Ordering::Relaxed) > 0
    }

    /// How many there have been. Starts over after very many: only whether it has changed says anything.
    pub(crate) fn ever(&self) -> u32 {
        self.0.ever.load(Ordering::Relaxed)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
