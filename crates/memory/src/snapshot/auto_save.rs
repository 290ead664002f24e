//! Saves a store again and again while it is used, on a thread of its own.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use spile_core::{Clock, SystemClock};

use crate::file::{FileError, SnapshotFile};
use crate::snapshot::Saved;
use crate::store::MemoryStore;

/// The shortest pause between two saves, however often they are to come: a thread that does nothing else would take a
/// core from those who decide.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Saves a store into its file, every so often and when it is dropped.
#[derive(Debug)]
pub struct Keeper {
    /// Gone once the keeper is to end.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts to save `store` so often that a crash loses at most what was spent in the last `every`, as long as saving
    /// takes less than half of that. `told` hears of every save, on the keeper's thread; after one that failed, the next
    /// is tried as usual.
    pub fn start<C: Clock + 'static>(
        store: Arc<MemoryStore<C>>,
        mut file: SnapshotFile,
        every: Duration,
        mut told: impl FnMut(Result<Saved, FileError>) + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let keep = move || {
            let clock = SystemClock::new();
            let mut pause = every;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let started = clock.now();
                told(file.save(&store));
                let took = Duration::from_micros(clock.now().since_us(started));
                // A save holds what was spent before it began, and counts once it has ended.
                pause = every.saturating_sub(2 * took).max(took).max(SHORTEST_PAUSE);
            }
            told(file.save(&store));
        };
        let thread = std::thread::Builder::new().name("spile-keeper".to_owned()).spawn(keep)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Keeper {
    /// Saves once more, and waits for it.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Where `told` has panicked, the thread's own message has said so.
            let _ended = thread.join();
        }
    }
}
