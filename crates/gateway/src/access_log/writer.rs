//! The thread that writes lines, so that no request waits for a disk or a pipe.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use metrics::Counter;
use spile_core::{Clock, Micros, SystemClock};

use super::{AccessLogError, AccessLogFormat, Message, QUEUE, WriterRequests};

/// Lines are written in batches of about this many bytes.
const BATCH_BYTES: usize = 64 << 10;
/// Dropped lines are reported in the log of the process at most this often.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Where lines go.
pub(super) enum LogFile {
    Stdout,
    File(PathBuf, File),
}

/// Writes lines until every sender is gone.
pub(super) struct Writer {
    file: LogFile,
    format: AccessLogFormat,
    requests: Arc<WriterRequests>,
    lines: Counter,
    unwritten: Counter,
    clock: SystemClock,
    batch: Vec<u8>,
    /// Lines in the batch.
    pending: u64,
    failing: bool,
    last_warned: Option<Micros>,
}

impl LogFile {
    pub(super) fn open(path: Option<&Path>) -> Result<Self, AccessLogError> {
        let Some(path) = path else { return Ok(Self::Stdout) };
        match open(path) {
            Ok(file) => Ok(Self::File(path.to_owned(), file)),
            Err(why) => Err(AccessLogError { path: path.to_owned(), why }),
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines).and_then(|()| stdout.flush())
            }
            Self::File(_, file) => file.write_all(lines),
        }
    }

    fn name(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::Stdout => "the standard output".into(),
            Self::File(path, _) => path.to_string_lossy(),
        }
    }
}

/// Only the user and the group that Spile runs as may read the file.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

impl Writer {
    pub(super) fn new(
        file: LogFile,
        format: AccessLogFormat,
        requests: Arc<WriterRequests>,
        lines: Counter,
        unwritten: Counter,
    ) -> Self {
        Self {
            file,
            format,
            requests,
            lines,
            unwritten,
            clock: SystemClock::new(),
            batch: Vec::with_capacity(BATCH_BYTES),
            pending: 0,
            failing: false,
            last_warned: None,
        }
    }

    pub(super) fn run(mut self, queue: &Receiver<Message>) {
        while let Ok(first) = queue.recv() {
            // Taken before the queue is emptied: all lines that were sent before the request are in the queue now.
            let flushed = self.requests.flushed.lock().take();
            self.add(first);
            for next in queue.try_iter().take(QUEUE) {
                self.add(next);
                if self.batch.len() >= BATCH_BYTES {
                    self.write_batch();
                }
            }
            self.write_batch();
            if self.requests.reopen.swap(false, Ordering::AcqRel) {
                self.reopen();
            }
            self.warn_of_dropped();
            if let Some(flushed) = flushed {
                let _gone = flushed.try_send(());
            }
        }
    }

    fn add(&mut self, message: Message) {
        if let Message::Record(record) = message {
            self.format.write(&record, &mut self.batch);
            self.pending += 1;
        }
    }

    fn write_batch(&mut self) {
        let lines = std::mem::take(&mut self.pending);
        if lines == 0 {
            return;
        }
        let written = self.file.write(&self.batch);
        self.batch.clear();
        match written {
            Ok(()) => {
                self.lines.increment(lines);
                if std::mem::take(&mut self.failing) {
                    tracing::info!(target: "spile::access", "the access log is written to {} again", self.file.name());
                }
            }
            Err(why) => {
                self.unwritten.increment(lines);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!(
                        target: "spile::access",
                        "the access log cannot be written to {}, and lines are lost: {why}", self.file.name()
                    );
                }
            }
        }
    }

    /// The old file stays in use if there is no new one.
    fn reopen(&mut self) {
        if let LogFile::File(path, file) = &mut self.file {
            match open(path) {
                Ok(new) => *file = new,
                Err(why) => tracing::error!(
                    target: "spile::access",
                    "the access log {} cannot be opened again, the old file stays in use: {why}", path.display()
                ),
            }
        }
    }

    fn warn_of_dropped(&mut self) {
        let now = self.clock.now();
        let recently =
            self.last_warned.is_some_and(|last| now.since_us(last) < WARN_INTERVAL.as_micros() as u64);
        if recently {
            return;
        }
        let dropped = self.requests.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            self.last_warned = Some(now);
            tracing::warn!(
                target: "spile::access", dropped,
                "lines of the access log were dropped: they came faster than {} takes them", self.file.name()
            );
        }
    }
}
