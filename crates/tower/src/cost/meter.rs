//! Reads an answer's cost as the answer passes, and settles once, however it ends.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Waker};

use tokio::runtime::Handle;

use super::reader::{CostReader, ReportedCost};

/// Settles a request.
pub type SettleFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

type SettleFn = Box<dyn FnOnce(AnswerUsage) -> SettleFuture + Send>;

/// The cost that an answer reported until its end, and its size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AnswerUsage {
    /// The cost that the answer reported.
    pub reported: ReportedCost,
    /// The bytes of the body that passed.
    pub bytes: u64,
}

/// Reads what an answer cost while it passes, and settles when it is dropped: once, and whether the answer came to its end or
/// broke off.
pub struct CostMeter {
    /// `None` if the body cannot be read. Its bytes are counted all the same.
    reader: Option<CostReader>,
    bytes: u64,
    is_whole: bool,
    /// `None` once it has settled.
    settle: Option<SettleFn>,
}

impl CostMeter {
    /// Calls `settle` with what `reader` has found when the answer ends. Without a reader, the body is only counted.
    pub fn new(
        reader: Option<CostReader>,
        settle: impl FnOnce(AnswerUsage) -> SettleFuture + Send + 'static,
    ) -> Self {
        Self { reader, bytes: 0, is_whole: false, settle: Some(Box::new(settle)) }
    }

    /// Reads the next piece of the answer.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        if let Some(reader) = &mut self.reader {
            reader.push(piece);
        }
    }

    /// Settles an answer that has come to its end. Dropping the meter settles one that broke off.
    pub fn finish(mut self) {
        self.is_whole = true;
    }
}

impl Drop for CostMeter {
    fn drop(&mut self) {
        let Some(settle) = self.settle.take() else { return };
        // Without a runtime no store can be asked, and what was charged stays.
        let Ok(runtime) = Handle::try_current() else { return };
        let report = |reader: &CostReader| reader.report(self.is_whole);
        let reported = self.reader.as_ref().map_or(ReportedCost::Unknown, report);
        let mut settling = settle(AnswerUsage { reported, bytes: self.bytes });
        // A store in memory settles at once, before the client sees the end of its answer. The task polls again in any case.
        if settling.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            runtime.spawn(settling);
        }
    }
}

impl fmt::Debug for CostMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CostMeter").field("reader", &self.reader).finish_non_exhaustive()
    }
}
