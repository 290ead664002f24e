//! Saves a store periodically, on its own thread.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use spile_core::{Clock, SystemClock};

use crate::snapshot::Saved;
use crate::snapshot::file::{FileError, SnapshotFile};
use crate::store::MemoryStore;

/// The shortest pause between two saves, so that saving never occupies a whole core.
const MIN_PAUSE: Duration = Duration::from_millis(1);

/// Saves a store to its file periodically, and once more when it is dropped.
#[derive(Debug)]
pub struct AutoSave {
    /// Dropping it stops the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AutoSave {
    /// Saves `store` often enough that a crash loses at most what was spent in the last `every`, as long as a save takes less than
    /// half of that. Calls `on_save` after every save, on the saving thread. After a failed save the next one follows as usual.
    pub fn start<C: Clock + 'static>(
        store: Arc<MemoryStore<C>>,
        mut file: SnapshotFile,
        every: Duration,
        mut on_save: impl FnMut(Result<Saved, FileError>) + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let keep = move || {
            let clock = SystemClock::new();
            let mut pause = every;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let started = clock.now();
                on_save(file.save(&store));
                let took = Duration::from_micros(clock.now().since_us(started));
                // A save covers what was spent before it began, and is durable when it has ended.
                pause = every.saturating_sub(2 * took).max(took).max(MIN_PAUSE);
            }
            on_save(file.save(&store));
        };
        let thread = std::thread::Builder::new().name("spile-autosave".to_owned()).spawn(keep)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for AutoSave {
    /// Saves once more, and waits for it.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If `on_save` panicked, the panic has already been reported.
            let _ended = thread.join();
        }
    }
}
