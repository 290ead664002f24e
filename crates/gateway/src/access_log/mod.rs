//! The access log: one line for each request, written by a dedicated thread.
//!
//! Requests put their records into a bounded queue and never wait. If the queue is full, the line is dropped and counted. No line holds a
//! credential: header fields that carry one are not read here.

mod escape;
mod line;
mod record;
mod timestamp;
mod writer;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use metrics::{Counter, counter};
use parking_lot::Mutex;
use spile_core::Clock;

pub(crate) use record::AccessRecord;
use record::FinishedRecord;
use writer::{LogFile, Writer};

/// How many lines may wait to be written.
const QUEUE: usize = 4_096;

/// How lines of the access log are written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum AccessLogFormat {
    /// The combined log format of Apache and nginx, followed by `name=value` pairs.
    #[default]
    Text,
    /// One JSON object on each line.
    Json,
}

/// Settings of the access log.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AccessLogSettings {
    /// How lines are written.
    pub format: AccessLogFormat,
    /// The file that lines are appended to. `None` means the standard output.
    pub file: Option<PathBuf>,
    /// The share of requests that are logged, from 0 to 1. Requests with the status 429 or 5xx are always logged.
    pub sample: f64,
    /// Whether the query of a request is logged. Queries often hold tokens, so they are left out by default.
    pub query: bool,
}

impl Default for AccessLogSettings {
    fn default() -> Self {
        Self { format: AccessLogFormat::Text, file: None, sample: 1.0, query: false }
    }
}

/// The access log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the access log cannot be written to {}: {why}", path.display())]
pub struct AccessLogError {
    path: PathBuf,
    why: io::Error,
}

/// An open access log. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AccessLog(Arc<AccessLogState>);

struct AccessLogState {
    settings: AccessLogSettings,
    clock: Arc<dyn Clock>,
    queue: SyncSender<Message>,
    requests: Arc<WriterRequests>,
    dropped: Counter,
}

/// A message to the writer.
enum Message {
    Record(Box<FinishedRecord>),
    /// There is something to do in [`WriterRequests`].
    Wake,
}

/// Requests to the writer other than lines. They are read after each batch of lines.
#[derive(Default)]
struct WriterRequests {
    reopen: AtomicBool,
    /// Notified once all lines that were queued before are written.
    flushed: Mutex<Option<SyncSender<()>>>,
    /// Lines that did not fit into the queue, since the last warning.
    dropped: AtomicU64,
}

impl AccessLog {
    /// Opens the log and starts its writer. It ends when the last clone is dropped and all lines are written.
    pub(crate) fn open(settings: AccessLogSettings, clock: Arc<dyn Clock>) -> Result<Self, AccessLogError> {
        let file = LogFile::open(settings.file.as_deref())?;
        let path = settings.file.clone().unwrap_or_else(|| PathBuf::from("the standard output"));
        Self::start(file, settings, clock).map_err(|why| AccessLogError { path, why })
    }

    fn start(file: LogFile, settings: AccessLogSettings, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let (queue, received) = sync_channel(QUEUE);
        let requests = Arc::new(WriterRequests::default());
        let count = |reason: &'static str| counter!("gateway_access_log_dropped_total", "reason" => reason);
        let (dropped, unwritten) = (count("queue_full"), count("write_failed"));
        for counter in [&dropped, &unwritten] {
            counter.increment(0);
        }
        let lines = counter!("gateway_access_log_lines_total");
        let writer = Writer::new(file, settings.format, Arc::clone(&requests), lines, unwritten);
        let thread = std::thread::Builder::new().name("spile-access-log".to_owned());
        thread.spawn(move || writer.run(&received))?;
        Ok(Self(Arc::new(AccessLogState { settings, clock, queue, requests, dropped })))
    }

    /// Closes the file and opens it again by its name, so that a file that was renamed meanwhile is released.
    pub(crate) fn reopen(&self) {
        self.0.requests.reopen.store(true, Ordering::Release);
        self.wake();
    }

    /// Waits until all lines so far are written, but no longer than this. Blocks.
    pub(crate) fn flush(&self, within: Duration) {
        let (flushed, done) = sync_channel(1);
        *self.0.requests.flushed.lock() = Some(flushed);
        self.wake();
        // Lines that are not written in time are lost with the process.
        let _in_time = done.recv_timeout(within);
    }

    /// If the queue is full, the writer is awake.
    fn wake(&self) {
        let _full = self.0.queue.try_send(Message::Wake);
    }

    fn send(&self, record: Box<FinishedRecord>) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.0.queue.try_send(Message::Record(record))
        {
            self.0.dropped.increment(1);
            self.0.requests.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether one more request is part of the sample.
    fn is_sampled(&self) -> bool {
        let sample = self.0.settings.sample;
        sample >= 1.0 || fastrand::f64() < sample
    }
}

impl std::fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AccessLog").field(&self.0.settings).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use http::Request;
    use spile_core::{FakeClock, Micros};

    use super::*;
    use crate::forward::headers::RequestId;

    #[test]
    fn a_reader_that_stands_still_costs_lines_and_no_request_waits() {
        let (mut reader, pipe) = io::pipe().expect("a pipe");
        let file = LogFile::File(PathBuf::from("a pipe"), File::from(OwnedFd::from(pipe)));
        let log = AccessLog::start(file, AccessLogSettings::default(), Arc::new(FakeClock::default()))
            .expect("a thread");
        let (parts, ()) = Request::builder().uri("/a").body(()).expect("a request").into_parts();
        let id = RequestId::of(&parts.headers, false);
        let sent = 20_000;
        for _ in 0..sent {
            drop(log.record(Micros::new(0), [127, 0, 0, 1].into(), &parts, &id));
        }
        let dropped = log.0.requests.dropped.load(Ordering::Relaxed);
        assert!(dropped > 0, "a pipe and the queue hold less");
        drop(log);
        let mut written = String::new();
        reader.read_to_string(&mut written).expect("the writer ends with the log");
        let lines = written.lines().count() as u64;
        assert!(written.lines().all(|line| line.ends_with("tenant=-")), "no line is cut");
        assert_eq!(lines + dropped, sent);
    }
}
